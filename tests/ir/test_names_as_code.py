"""Parts of a model may have any keys: a graph computes what the model does, and a checkpoint of it comes back."""

import re
import tempfile

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import fx, nn

from mase_server import MaseGraph
from mase_server.ir.allowed import CheckpointError, UnwritableName
from mase_server.passes import quantize_transform_pass
from mase_server.tracing.recording.state import KeyIsNoTextError

#: What nobody calls a part of a GraphModule by, because these are its own.
RESERVED = sorted(name for name in dir(fx.GraphModule(nn.Module(), fx.Graph())) if not hasattr(nn.Module(), name))


class Named(nn.Module):
    """Two layers, a parameter and a buffer that are kept under any keys, as torch's own tables take them."""

    def __init__(self, first, second, weight, buffer):
        super().__init__()
        self.a = nn.Module()
        self.a.b = nn.Linear(3, 3)
        self.keys = first, second, weight, buffer
        inner = nn.Sequential()
        inner._modules[second] = nn.Linear(3, 3)
        self._modules[first] = inner
        self._parameters[weight] = nn.Parameter(torch.rand(3))
        self._buffers[buffer] = torch.rand(3)

    def forward(self, x):
        first, second, weight, buffer = vars(self)["keys"]
        x = self._modules[first]._modules[second](self.a.b(x))
        return x * self._parameters[weight] + self._buffers[buffer]


@given(*[st.text(max_size=8)] * 4)
@example("a b", "0", "w", "v")
@example("a.b", "x", "a.b.weight", "a.b.bias")  # the keys of another layer's parts
@example("a_b", "a.b", "a_b_", "a.b")
@example("", "", "", "")
@example(".", "..", "a.", ".a")
@example("a\nb", "\n", "a\r", "\x00")
@example("class", "def", "None", "l")
@example("l", "\ufb01", "w", "v")  # a ligature: Python reads it as two letters
@example("l", 'f") or ("', "w", "v")
@example("l", "\\x41", "w", "v")
@example("l", "\udc80", "w", "v")
@example("forward", "training", "_modules", "keys")
@example("__class__", "__dict__", "__call__", "__x")
@example("same", "same", "same", "same")  # torch keeps tables apart; a path does not say which
@example("code", "graph", "meta", "recompile")
def test_a_graph_and_its_checkpoint_compute_what_the_model_does(first, second, weight, buffer):
    model, x = Named(first, second, weight, buffer), torch.rand(2, 3)
    expected = model(x)
    graph = MaseGraph(model, {"x": x})
    assert torch.equal(graph.model(x), expected)
    with tempfile.TemporaryDirectory() as folder:
        graph.export(f"{folder}/graph")
        assert torch.equal(MaseGraph.from_checkpoint(f"{folder}/graph").model(x), expected)


@pytest.mark.parametrize("kind", ["layer", "parameter"])
@pytest.mark.parametrize("name", RESERVED)
def test_a_part_may_be_called_as_a_graph_modules_own_attributes_are(name, kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            setattr(self, name, nn.Linear(3, 3) if kind == "layer" else nn.Parameter(torch.rand(3)))

        def forward(self, x):
            part = getattr(self, name)
            return part(x) if kind == "layer" else x * part

    model, x = Net(), torch.rand(2, 3)
    assert torch.equal(MaseGraph(model, {"x": x}).model(x), model(x))


class Alike(nn.Module):
    """Two layers of one path: `a.b` is the b of a, and the layer whose key has a dot."""

    def __init__(self):
        super().__init__()
        self.a = nn.Module()
        self.a.b = self._halve(0.25)
        self._modules["a.b"] = self._halve(0.75)

    @staticmethod
    def _halve(weight):
        layer = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            layer.weight.fill_(weight)
        return layer

    def forward(self, x):
        return torch.cat([self.a.b(x), self._modules["a.b"](x)], -1)


def test_a_pass_changes_the_layer_that_is_meant_and_no_other():
    graph = MaseGraph(Alike(), {"x": torch.ones(1, 1)})
    assert graph.model(torch.ones(1, 1)).tolist() == [[0.25, 0.75]]
    calls = {node.target: node.name for node in graph.nodes if node.op == "call_module"}
    assert list(calls) == ["a.b", "a_b"]
    # One product of two elements is two operations: of a's below a alone, and both in the whole.
    assert {path: cost.flops for path, cost in graph.scope_costs().items()} == {"": 4, "a": 2, "a.b": 2, "a_b": 2}
    # One bit behind the point: 0.75 becomes 1.0, as ties go to even.
    graph, _ = quantize_transform_pass(graph, {"by": "name", calls["a_b"]: "fixed(8,1)"})
    assert graph.model(torch.ones(1, 1)).tolist() == [[0.25, 1.0]]


@pytest.mark.parametrize(("key", "table"), [(7, "_modules"), (("a",), "_parameters"), (None, "_buffers")])
def test_a_key_that_is_no_text_is_told(key, table):
    model = nn.Sequential(nn.Linear(3, 3))
    part = {"_modules": nn.ReLU(), "_parameters": nn.Parameter(torch.ones(3)), "_buffers": torch.ones(3)}[table]
    getattr(model[0], table)[key] = part
    with pytest.raises(
        KeyIsNoTextError, match=re.escape(f"'0' of the model, a Linear, keeps a part under the key {key!r}")
    ):
        MaseGraph(model).model  # noqa: B018 - it is recorded when it is read


def test_what_a_transform_names_so_that_it_cannot_be_written_is_told_and_not_exported(tmp_path):
    graph = MaseGraph(nn.Sequential(nn.ReLU()), {"input": torch.zeros(1, 3)})
    graph.module.add_module("class", nn.ReLU())
    next(node for node in graph.nodes if node.op == "call_module").target = "class"
    with pytest.raises(UnwritableName, match="the name 'class' cannot be written"):
        graph.model(torch.zeros(1, 3))
    with pytest.raises(CheckpointError, match="'class'"):
        graph.export(tmp_path / "graph")
    assert not list(tmp_path.glob("graph*"))
