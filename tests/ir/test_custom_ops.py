"""Custom operations: one node each, with their own argument names and hardware, for one graph alone."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes, trace_torch_module
from tests.ir.models import node_named


class Gate(nn.Module):
    """A layer of the user's own, which is several operations."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, hidden, mask=None, power=2):
        out = torch.sigmoid(self.inner(hidden)) ** power
        return out if mask is None else out * mask


def blend(a, b, share=0.5):
    """A function of the user's own, which is several operations."""
    return a * share + b * (1 - share)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()

    def forward(self, x):
        return blend(x, self.gate(x, mask=x > 0), share=0.25)


X = {"x": torch.randn(2, 4)}
OPS = {
    "modules": {
        Gate: {
            "args": {"hidden": "data_in", "mask": None, "power": "config"},
            "module": "my_gate",
            "dependence_files": ["mine/gate.sv"],
            "toolchain": "EXTERNAL",
        }
    },
    "functions": {blend: {"args": {"a": "data_in", "b": "data_in"}, "module": "my_blend"}},
}


def test_a_custom_module_is_one_node():
    graph = MaseGraph(Gated(), X, custom_ops={"modules": OPS["modules"]})
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["gate"]
    assert graph.check_against(graph.root).equal


def test_a_custom_function_is_one_node():
    graph = MaseGraph(Gated(), X, custom_ops=OPS)
    names = [node.name for node in graph.nodes]
    assert "blend" in names
    assert not {"mul", "sub", "add"} & set(names)
    assert graph.check_against(graph.root).equal


def test_arguments_are_named_as_the_entry_says():
    graph = MaseGraph(Gated(), X, custom_ops=OPS, add_metadata_args={})
    gate = node_named(graph, "gate").meta["mase"]["common"]
    assert list(gate["args"]) == ["data_in_0", "inner_weight", "inner_bias"]
    assert gate["mase_op"] == "gate"
    function = node_named(graph, "blend").meta["mase"]["common"]
    assert list(function["args"]) == ["data_in_0", "data_in_1", "share"]
    assert function["args"]["share"] == 0.25
    assert function["mase_op"] == "blend"


def test_custom_hardware_reaches_the_hardware_metadata():
    graph = MaseGraph(Gated(), X, custom_ops=OPS, add_metadata_args={})
    graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    hardware = node_named(graph, "gate").meta["mase"]["hardware"]
    assert (hardware["module"], hardware["toolchain"]) == ("my_gate", "EXTERNAL")
    assert hardware["dependence_files"] == ["mine/gate.sv"]
    assert node_named(graph, "blend").meta["mase"]["hardware"]["module"] == "my_blend"


def test_custom_ops_of_one_graph_do_not_reach_the_next():
    MaseGraph(Gated(), X, custom_ops=OPS)
    plain = MaseGraph(Gated(), X)
    assert "gate" not in [node.target for node in plain.nodes]
    assert "blend" not in [node.name for node in plain.nodes]


def test_from_module_and_trace_torch_module_take_them_too():
    by_class = MaseGraph.from_module(Gated(), X, custom_ops=OPS)
    by_function = trace_torch_module(Gated(), X, custom_ops=OPS)
    assert str(by_class.fx_graph) == str(by_function.graph)


def test_a_subclass_is_the_custom_operation_of_its_base():
    class Special(Gate):
        pass

    model = Gated()
    model.gate = Special()
    graph = MaseGraph(model, X, custom_ops=OPS, add_metadata_args={})
    assert next(iter(node_named(graph, "gate").meta["mase"]["common"]["args"])) == "data_in_0"


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"layers": {}}, ValueError, "custom_ops has the unknown key 'layers'; known are functions, modules"),
        ({"modules": {Gate: {"arg": {}}}}, ValueError, "custom_ops of Gate has the unknown key 'arg'; known are args"),
        ({"modules": {blend: {}}}, TypeError, r'custom_ops\["modules"\] takes subclasses of torch.nn.Module, got'),
        ({"functions": {"blend": {}}}, TypeError, r"""custom_ops\["functions"\] takes callables, got 'blend'"""),
    ],
)
def test_what_is_no_custom_operation_is_named(wrong, error, text):
    with pytest.raises(error, match=text):
        MaseGraph(Gated(), X, custom_ops=wrong)
