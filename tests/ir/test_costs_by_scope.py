"""Operations by scope: sums of their parts, and torch's own counter agrees on what it counts."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mase_server import MaseGraph, passes
from tests.ir.models import Convolutional, Mlp, bert_inputs, bert_tiny, node_named

MODELS = {
    "mlp": (Mlp, {"x": torch.randn(2, 28, 28)}),
    "convolutional": (Convolutional, {"x": torch.randn(2, 3, 8, 8)}),
    "bert": (lambda: bert_tiny(attn_implementation="eager"), bert_inputs(padded=2)),
}


def counted(model, inputs):
    """torch's own count, by module path."""
    with FlopCounterMode(display=False) as mode, torch.no_grad():
        model(**inputs)
    return {path: sum(ops.values()) for path, ops in mode.get_flop_counts().items()}


@pytest.mark.parametrize("name", MODELS)
def test_products_agree_with_torchs_counter(name):
    build, inputs = MODELS[name]
    model = build().eval()
    ours = MaseGraph(model, inputs).scope_costs()
    theirs = counted(model, inputs)
    assert ours[""].matmul_flops == theirs["Global"]
    for path, flops in theirs.items():
        inner = path.partition(".")[2]
        if path != "Global" and inner in ours:
            assert ours[inner].matmul_flops == flops, inner


def scope_of(node):
    return node.meta["scope"].module_path if "scope" in node.meta else ""


def test_a_scope_is_the_sum_of_its_nodes():
    graph = MaseGraph(bert_tiny(), bert_inputs())
    scopes, costs = graph.scope_costs(), graph.costs()
    assert scopes[""].flops == sum(cost.flops for cost in costs.values())
    paths = {node.name: str(node.target) if node.op == "call_module" else scope_of(node) for node in graph.nodes}
    inside = [name for name, path in paths.items() if path.startswith("bert.encoder.layer.0.")]
    assert scopes["bert.encoder.layer.0"].flops >= sum(costs[name].flops for name in inside) > 0


def test_costs_follow_the_inputs():
    graph = MaseGraph(Mlp(), {"x": torch.randn(2, 28, 28)})
    one = graph.scope_costs()["fc1"].matmul_flops
    passes.add_common_metadata_analysis_pass(graph, {"dummy_in": {"x": torch.randn(6, 28, 28)}})
    assert graph.scope_costs()["fc1"].matmul_flops == 3 * one


def test_costs_follow_a_transform():
    graph = MaseGraph(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {"input": torch.randn(2, 4)})
    assert graph.costs()["_1"].flops == 8
    node = node_named(graph, "_1")
    node.replace_all_uses_with(node.args[0])
    graph.fx_graph.erase_node(node)
    assert "_1" not in graph.costs()
    assert graph.scope_costs()[""].flops == graph.costs()["_0"].flops
