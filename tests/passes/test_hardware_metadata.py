"""Hardware metadata of graphs in fixed point: what their Verilog has."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.verilog import rtl_folder


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(36, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return torch.softmax(self.fc(x.flatten(1)), -1)


class Summed(nn.Module):
    """Something between two layers that has no hardware."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x).cumsum(-1))


def annotated(model, values, **wishes):
    torch.manual_seed(0)
    graph = MaseGraph(model, {"x": values})
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    graph, _ = passes.init_metadata_analysis_pass(graph)
    graph, _ = passes.add_common_metadata_analysis_pass(graph)
    return passes.add_hardware_metadata_analysis_pass(graph, wishes)[0]


@pytest.fixture(scope="module")
def graph():
    return annotated(Net(), torch.randn(2, 3, 8, 8), multipliers=30)


def hardware(graph, name):
    return next(node for node in graph.nodes if node.name == name).meta["mase"]["hardware"]


def test_parameters_are_those_of_the_instances_in_the_text(graph):
    """The text of the top module says the same of every instance that has a node."""
    design = lower_graph(graph)
    text = emit_folder(design, fold_design(design, multipliers=30), "Net", random_inputs(design, 1)).top.text
    blocks = {name: body for body, name in re.findall(r"#\(\n(.*?)\n  \) (\w+) \(", text, re.DOTALL)}
    own = [
        node
        for node in graph.nodes
        if hardware(graph, node.name)["module"] and "instance" in hardware(graph, node.name)
    ]
    assert {node.name for node in own} == {"conv", "max_pool2d", "fc", "softmax"}
    for node in own:
        told = hardware(graph, node.name)["verilog_param"]
        written = dict(re.findall(r"\.(\w+)\((.*?)\)", blocks[hardware(graph, node.name)["instance"]]))
        assert {name: str(told[name]) for name in written} == {name: text.strip('"') for name, text in written.items()}


def test_sizes_precisions_and_parallelism_have_mases_names(graph):
    told = hardware(graph, "fc")["verilog_param"]
    lanes_in, lanes_out = told["DATA_IN_0_PARALLELISM_DIM_0"], told["DATA_OUT_0_PARALLELISM_DIM_0"]
    assert {name: value for name, value in told.items() if "WEIGHT" in name and "FILE" not in name} == {
        "WEIGHT_PRECISION_0": 8, "WEIGHT_PRECISION_1": 4,
        "WEIGHT_TENSOR_SIZE_DIM_0": 36, "WEIGHT_TENSOR_SIZE_DIM_1": 6,
        "WEIGHT_PARALLELISM_DIM_0": lanes_in, "WEIGHT_PARALLELISM_DIM_1": lanes_out,
    }  # fmt: skip
    assert (told["DATA_IN_0_TENSOR_SIZE_DIM_0"], told["DATA_OUT_0_TENSOR_SIZE_DIM_0"]) == (36, 6)
    assert (told["BIAS_TENSOR_SIZE_DIM_0"], told["BIAS_PARALLELISM_DIM_0"]) == (6, lanes_out)
    assert hardware(graph, "fc")["max_parallelism"] == [lanes_out]


def test_images_come_channels_first(graph):
    told = hardware(graph, "conv")["verilog_param"]
    assert [told[f"DATA_IN_0_TENSOR_SIZE_DIM_{dim}"] for dim in range(3)] == [3, 8, 8]
    assert [told[f"DATA_OUT_0_TENSOR_SIZE_DIM_{dim}"] for dim in range(3)] == [4, 6, 6]


def test_what_has_no_instance_says_whose_it_is(graph):
    parts = {
        node.name: hardware(graph, node.name)["instance"]
        for node in graph.nodes
        if "instance" in hardware(graph, node.name) and hardware(graph, node.name)["is_implicit"]
    }
    assert parts["relu"] == "conv_i"
    assert parts["flatten"] == "max_pool2d_i"
    weights = [node for node in graph.nodes if any(each.name == "fc_weight" for each in node.all_input_nodes)]
    assert [parts[node.name] for node in weights] == ["fc_i"]


def test_the_components_are_there_with_all_that_they_need(graph):
    files = hardware(graph, "fc")["dependence_files"]
    assert {"fixed_linear.sv", "fixed_dot_core.sv", "rom.sv"} <= set(files)
    assert all((rtl_folder() / file).exists() for file in files)
    assert set(files) <= set(graph.meta["mase"]["hardware"]["verilog_sources"])


def test_other_wishes_make_it_anew_and_keep_what_a_person_wrote():
    graph = annotated(Net(), torch.randn(2, 3, 8, 8))
    before = dict(hardware(graph, "fc")["verilog_param"])
    hardware(graph, "fc")["device_id"] = 2
    graph, _ = passes.add_hardware_metadata_analysis_pass(graph, {"interval": 100})
    assert hardware(graph, "fc")["verilog_param"] != before
    assert hardware(graph, "fc")["device_id"] == 2
    passes.verify_hardware_metadata_analysis_pass(graph)


def test_wishes_that_cannot_be_kept_say_what_could_be():
    with pytest.raises(ValueError, match="too few"):
        annotated(Net(), torch.randn(2, 3, 8, 8), multipliers=0)
    with pytest.raises(ValueError, match="too short"):
        annotated(Net(), torch.randn(2, 3, 8, 8), interval=1)


def test_the_rest_is_there_where_a_node_has_no_hardware():
    graph = annotated(Summed(), torch.randn(3, 4))
    assert hardware(graph, "first")["instance"] == "first_i"
    assert hardware(graph, "second")["module"] == "fixed_linear"
    assert "instance" not in hardware(graph, "cumsum")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"instance": "conv_i"}, "its instance is conv_i; the netlist has fc_i for it"),
        ({"module": "fixed_conv2d"}, "its module is 'fixed_conv2d'; in the netlist fc_i is a fixed_linear"),
    ],
    ids=["instance", "module"],
)
def test_verification_looks_into_the_netlist(change, text):
    graph = annotated(Net(), torch.randn(2, 3, 8, 8))
    passes.verify_hardware_metadata_analysis_pass(graph)
    hardware(graph, "fc").update(change)
    with pytest.raises(passes.MetadataError, match=re.escape(f"node 'fc': {text}")):
        passes.verify_hardware_metadata_analysis_pass(graph)


def test_verification_compares_parameters():
    graph = annotated(Net(), torch.randn(2, 3, 8, 8))
    hardware(graph, "fc")["verilog_param"]["RELU"] = 7
    with pytest.raises(passes.MetadataError, match="node 'fc': RELU is 7; in the netlist fc_i has 0"):
        passes.verify_hardware_metadata_analysis_pass(graph)
