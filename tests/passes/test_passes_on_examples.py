"""Every example through the passes: types as eager has them, verified metadata, products as torch counts them."""

import pytest
import torch
from torch import fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mase_server import MaseGraph, passes
from tests.examples.cases import CASES

#: torch's counter sees neither recurrent layers nor the fast path of nn.TransformerEncoder.
UNCOUNTED = {"lstm_classifier.py", "multimodal.py", "transformer_encoder.py"}


def annotated(case):
    torch.manual_seed(0)
    model = case.build(case.load()).eval()
    inputs = case.inputs(case.sizes)
    graph, _ = passes.add_common_metadata_analysis_pass(MaseGraph(model), {"dummy_in": inputs})
    return model, graph


class Types(fx.Interpreter):
    """The dtype and shape of every tensor that a node makes, by an independent real run."""

    def run_node(self, n):
        out = super().run_node(n)
        if isinstance(out, torch.Tensor):
            self.types[n] = (out.dtype, list(out.shape))
        return out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_an_example_is_annotated_and_verified(case):
    model, graph = annotated(case)
    graph, _ = passes.add_software_metadata_analysis_pass(graph)
    graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    graph, _ = passes.verify_software_metadata_analysis_pass(graph)
    passes.verify_hardware_metadata_analysis_pass(graph)
    assert graph.check_against(model, atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_types_of_an_example_are_eagers(case):
    _, graph = annotated(case)
    run = Types(graph.model)
    run.types = {}
    with torch.no_grad():
        run.run(*graph.knowledge.feed(graph.arguments))
    assert len(run.types) > 3
    for node, (dtype, shape) in run.types.items():
        entry = node.meta["mase"]["common"]["results"]["data_out_0"]
        assert (entry["torch_dtype"], entry["shape"]) == (dtype, shape), node.name


@pytest.mark.parametrize("case", [case for case in CASES if case.file not in UNCOUNTED], ids=lambda case: case.file)
def test_products_of_an_example_are_counted_as_torch_counts_them(case):
    model, graph = annotated(case)
    # The fused attention of the CPU is not counted; its plain form is, as products.
    with FlopCounterMode(display=False) as mode, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(**graph.arguments)
    assert graph.scope_costs()[""].matmul_flops == mode.get_total_flops()
