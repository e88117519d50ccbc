"""Software and hardware metadata, and the options of the passes."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from tests.ir.models import Convolutional, Mlp, bert_inputs, bert_tiny, node_named

X = {"x": torch.randn(1, 28, 28)}


def complete(model, inputs, **hardware):
    graph = MaseGraph(model, inputs)
    graph, _ = passes.init_metadata_analysis_pass(graph)
    graph, _ = passes.add_common_metadata_analysis_pass(graph)
    graph, _ = passes.add_software_metadata_analysis_pass(graph)
    return passes.add_hardware_metadata_analysis_pass(graph, hardware)[0]


#: Those that find nothing to tell; what counts zeros and movement has tests of its own.
QUIET = ("init", "add_common", "add_software", "add_hardware", "verify")


@pytest.mark.parametrize("name", [name for name in passes.__all__ if name.startswith(QUIET)])
def test_a_pass_gives_the_graph_and_a_dictionary(name):
    graph = complete(Mlp(), X)
    assert getattr(passes, name)(graph) == (graph, {})


def test_every_tensor_gets_a_place_for_its_statistics():
    software = node_named(complete(Mlp(), X), "fc1").meta["mase"]["software"]
    assert software == {
        "args": {name: {"stat": {}} for name in ("data_in_0", "weight", "bias")},
        "results": {"data_out_0": {"stat": {}}},
    }


def test_statistics_survive_another_software_pass():
    graph = complete(Mlp(), X)
    node_named(graph, "fc1").meta["mase"]["software"]["args"]["weight"]["stat"]["abs_mean"] = 1.0
    passes.add_software_metadata_analysis_pass(graph)
    assert node_named(graph, "fc1").meta["mase"]["software"]["args"]["weight"]["stat"] == {"abs_mean": 1.0}


def test_a_linear_layer_has_its_hardware_parameters():
    hardware = node_named(complete(Mlp(), X, max_parallelism=[4, 2]), "fc3").meta["mase"]["hardware"]
    assert hardware["verilog_param"] == {
        "DATA_IN_0_PRECISION_0": 32, "DATA_IN_0_TENSOR_SIZE_DIM_0": 784, "DATA_IN_0_TENSOR_SIZE_DIM_1": 1,
        "DATA_IN_0_PARALLELISM_DIM_0": 4, "DATA_IN_0_PARALLELISM_DIM_1": 1,
        "WEIGHT_PRECISION_0": 32, "WEIGHT_TENSOR_SIZE_DIM_0": 784, "WEIGHT_TENSOR_SIZE_DIM_1": 10,
        "WEIGHT_PARALLELISM_DIM_0": 4, "WEIGHT_PARALLELISM_DIM_1": 2,
        "BIAS_PRECISION_0": 32, "BIAS_TENSOR_SIZE_DIM_0": 10, "BIAS_PARALLELISM_DIM_0": 4,
        "DATA_OUT_0_PRECISION_0": 32, "DATA_OUT_0_TENSOR_SIZE_DIM_0": 10, "DATA_OUT_0_TENSOR_SIZE_DIM_1": 1,
        "DATA_OUT_0_PARALLELISM_DIM_0": 4, "DATA_OUT_0_PARALLELISM_DIM_1": 1,
    }  # fmt: skip
    assert hardware["interface"] == {name: {"storage": "BRAM", "transpose": False} for name in ("weight", "bias")}
    rest = {name: value for name, value in hardware.items() if name not in ("verilog_param", "interface")}
    assert rest == {
        "is_implicit": False, "max_parallelism": [4, 2], "device_id": -1, "toolchain": "INTERNAL",
        "module": "fixed_linear", "dependence_files": [],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "implicit"), [("x", True), ("flatten", True), ("fc1", False), ("output", True)])
def test_what_only_rearranges_has_no_hardware(name, implicit):
    hardware = node_named(complete(Mlp(), X), name).meta["mase"]["hardware"]
    assert hardware["is_implicit"] is implicit
    assert (hardware["module"] is None) is implicit


def test_what_a_person_wrote_into_the_hardware_stays():
    graph = complete(Mlp(), X)
    node_named(graph, "fc1").meta["mase"]["hardware"]["device_id"] = 3
    passes.add_hardware_metadata_analysis_pass(graph)
    assert node_named(graph, "fc1").meta["mase"]["hardware"]["device_id"] == 3


def test_hardware_without_common_metadata_says_what_to_run():
    with pytest.raises(
        ValueError, match="node 'x' has no common metadata: run add_common_metadata_analysis_pass first"
    ):
        passes.add_hardware_metadata_analysis_pass(MaseGraph(Mlp(), X))


def test_what_a_transform_made_has_hardware_too():
    graph = complete(Mlp(), X)
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,3)"})
    passes.add_hardware_metadata_analysis_pass(graph)
    assert all("module" in node.meta["mase"]["hardware"] for node in graph.nodes)
    parameters = node_named(graph, "fc1").meta["mase"]["hardware"]["verilog_param"]
    assert (parameters["DATA_IN_0_PRECISION_0"], parameters["DATA_IN_0_PRECISION_1"]) == (8, 3)
    assert (parameters["WEIGHT_PRECISION_0"], parameters["WEIGHT_PRECISION_1"]) == (8, 3)
    graph, found = passes.calculate_avg_bits_mg_analysis_pass(graph)
    assert found["w_avg_bit"] == found["data_avg_bit"] == 8


def test_an_unknown_option_is_named_with_those_there_are():
    text = r"has no option 'dummy_input'; did you mean 'dummy_in'\? It takes add_value, dummy_in, force_device_meta"
    with pytest.raises(ValueError, match=text):
        passes.add_common_metadata_analysis_pass(MaseGraph(Mlp(), X), {"dummy_input": X})


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (Mlp, X),
        (Convolutional, {"x": torch.randn(2, 3, 8, 8)}),
        (bert_tiny, bert_inputs(padded=1)),
        (lambda: nn.LSTM(4, 8), {"input": torch.randn(5, 2, 4)}),
        (
            lambda: nn.Sequential(nn.Conv3d(1, 2, 3), nn.RMSNorm(2), nn.LeakyReLU()),
            {"input": torch.randn(1, 1, 4, 4, 4)},
        ),
    ],
    ids=["mlp", "convolutional", "bert", "lstm", "conv3d"],
)
def test_what_the_passes_add_is_verified(build, inputs):
    graph = complete(build(), inputs)
    graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    graph, _ = passes.verify_software_metadata_analysis_pass(graph)
    passes.verify_hardware_metadata_analysis_pass(graph)


NEVER_NAMED = [
    ("rsqrt", torch.rsqrt), ("log1p", torch.log1p), ("atan", torch.atan), ("acos", torch.acos), ("asin", torch.asin),
    ("amax", torch.amax), ("argmin", torch.argmin), ("clone", torch.clone),
    ("logical_not", torch.logical_not),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), NEVER_NAMED, ids=[name for name, _ in NEVER_NAMED])
def test_no_operator_gets_the_name_of_another_that_it_resembles(name, function):
    class Calls(nn.Module):
        def forward(self, x):
            return function(x)

    graph = MaseGraph(Calls(), {"x": torch.rand(2, 3)}, add_metadata_args={})
    assert graph.nodes[1].meta["mase"]["common"]["mase_op"] == name


UNKNOWN = [
    torch.exp, torch.sum, lambda x: torch.einsum("ij,kj->ik", x, x), lambda x: torch.chunk(x, 2)[0],
    lambda x: torch.topk(x, 2)[0], torch.tril, lambda x: x.clamp(0, 1), lambda x: torch.stack([x, x]),
    lambda x: torch.linalg.svdvals(x), lambda x: torch.fft.rfft(x).abs(), lambda x: torch.cdist(x, x),
]  # fmt: skip


@pytest.mark.parametrize("function", UNKNOWN, ids=range(len(UNKNOWN)))
def test_an_operator_that_mase_does_not_have_is_annotated_rightly(function):
    class Calls(nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.rand(4, 4)
    graph = MaseGraph(Calls(), {"x": x}, add_metadata_args={})
    entry = graph.nodes[-1].meta["mase"]["common"]["args"]["data_in_0"]
    expected = function(x)
    assert (entry["shape"], entry["torch_dtype"]) == (list(expected.shape), expected.dtype)
    passes.verify_common_metadata_analysis_pass(graph)


def test_an_operation_that_nobody_knows_is_opaque_and_not_wrong():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Calls(nn.Module):
        def forward(self, x):
            return Doubled.apply(x) + 1

    graph = MaseGraph(Calls(), {"x": torch.rand(4, 4)}, add_metadata_args={})
    assert graph.check_against(graph.root)
    assert all(node.meta["mase"]["common"]["results"]["data_out_0"]["shape"] == [4, 4] for node in graph.nodes)
