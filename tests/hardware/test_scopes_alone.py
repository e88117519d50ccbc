"""One layer or one module of a model as hardware of its own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.hardware.design import cut_part
from mase_server.hardware.lowering import lower_graph
from mase_server.passes.verilog.told import build
from tests.hardware.test_emission import VERILATOR, make
from tests.hardware.test_lowering import config, quantised
from tests.hardware.test_partial_designs import results, rounded, run


class Block(nn.Module):
    """A residual block of images, whose streams do not flow row by row."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class Net(nn.Module):
    """Two blocks, what has no hardware before them, and a layer behind."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        x = self.blocks(F.relu(torch.cumsum(x, 1)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


SHAPE = (2, 6, 5)


def inside(design, *nodes):
    return {each.name for each in design.operations.values() if set(nodes) & set(each.nodes) and each.kind != "input"}


def test_what_flows_into_a_part_are_its_inputs_as_they_flow_in_the_whole():
    design = lower_graph(quantised(Net(), torch.randn(2, *SHAPE), config()))
    name = next(iter(inside(design, "blocks_1_conv2")))
    alone = cut_part(design, {name})
    (source,) = alone.inputs
    assert source.name == design.operations[name].inputs[0]
    assert source.out == design.operations[source.name].out
    assert torch.equal(source.out.indices, design.operations[source.name].out.indices)
    assert (alone.outputs, alone.unsupported) == ((name,), ())


def test_a_part_computes_what_the_quantised_graph_computes_there():
    torch.manual_seed(4)
    graph = quantised(Net(), torch.randn(3, *SHAPE), config())
    design = lower_graph(graph)
    alone = cut_part(design, inside(design, "blocks_1_conv1", "blocks_1_conv2", "add_1", "relu_4"))
    values = run(graph, torch.randn(3, *SHAPE))
    for name, found in results(
        alone, values | {alone.inputs[0].nodes[0]: rounded(design, alone.inputs[0].name, values)}
    ).items():
        assert torch.equal(found, rounded(alone, name, values)), name


def told(scope, folder="", model=None):
    torch.manual_seed(5)
    graph = MaseGraph((model or Net()).eval(), {"x": torch.randn(2, *SHAPE)})
    return build(graph, Build(scope=scope, precision="fixed(8,4)"), "Net", folder=str(folder), vectors=10)


@pytest.mark.parametrize(
    ("scope", "kinds"),
    [
        ("head", ["linear"]),
        ("blocks.1.conv2", ["conv2d"]),
        ("blocks_1_conv2", ["conv2d"]),
        ("blocks.0", ["conv2d", "conv2d", "elementwise"]),
        ("blocks", ["conv2d", "conv2d", "elementwise"] * 2),
    ],
)
def test_a_scope_is_a_modules_path_or_a_nodes_name(scope, kinds):
    found = told(scope)
    assert [each["kind"] for each in found["operations"] if each["kind"] != "input"] == kinds
    assert (found["refusal"], found["unsupported"]) == (None, [])
    assert found["text"]


def test_the_whole_is_not_whole_but_a_part_of_it_may_be():
    assert [each["operator"] for each in told("")["unsupported"]] == ["cumsum"]
    assert {"blocks", "blocks.0", "blocks.1", "head"} <= set(told("")["scopes"])


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ("blocks.2", r"there is no module or node 'blocks.2' in the model; did you mean 'blocks.\d'\?"),
        ("quite_other", r"there is no module or node 'quite_other' in the model; there are .*blocks.0"),
        ("cumsum", "cumsum has no hardware: cumsum: there is no component for cumsum"),
    ],
)
def test_a_scope_that_cannot_be_built_is_told(scope, message):
    with pytest.raises(ValueError, match=message):
        told(scope)


@VERILATOR
@pytest.mark.parametrize("scope", ["blocks.1", "head"])
def test_verilator_gives_the_integers_of_the_part(tmp_path, scope):
    found = told(scope, tmp_path)
    done = make(tmp_path, "sim")
    assert done.returncode == 0, done.stdout + done.stderr
    assert make(tmp_path, "lint").stderr == ""
    assert found["files"][0][0] == f"{found['module']}.sv"
