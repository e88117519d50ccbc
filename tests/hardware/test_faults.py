"""A kind that raises, at whatever moment: its node is told, and the rest is made."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.hardware import kinds
from mase_server.hardware.design import OperationError
from mase_server.passes.verilog.told import build
from mase_server.visible import escape_markdown
from tests.hardware.test_emission import VERILATOR, make


class Gated(nn.Module):
    """A softmax beside a layer, between layers, so that there is something on every side of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(self.second(x) + x.softmax(-1))


def told(folder=""):
    torch.manual_seed(0)
    graph = MaseGraph(Gated().eval(), {"x": torch.randn(2, 4)})
    return build(graph, Build(), "Gated", folder=str(folder), vectors=5)


def raising(monkeypatch, kind, function):
    def fail(*_):
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0])\nand more")

    monkeypatch.setitem(kinds.KINDS, kind, replace(kinds.KINDS[kind], **{function: fail}))


@pytest.mark.parametrize("function", ["order", "folds", "reach", "build", "node"])
def test_a_kind_that_raises_is_told_at_its_node_and_the_rest_is_made(monkeypatch, tmp_path, function):
    raising(monkeypatch, "softmax", function)
    found = told(tmp_path)
    why = "its lowering failed with IndexError: Dimension out of range (expected to be in range of [-1, 0])"
    assert [(each["node"], each["operator"], each["why"]) for each in found["unsupported"]] == [
        ("softmax", "softmax", why)
    ]
    assert {"first", "second", "add", "last"} <= {each["name"] for each in found["operations"]}
    assert found["files"]
    assert escape_markdown(why) in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_several_kinds_may_raise(monkeypatch):
    raising(monkeypatch, "softmax", "build")
    raising(monkeypatch, "elementwise", "folds")
    found = told()
    assert {each["node"] for each in found["unsupported"]} == {"softmax", "add"}
    assert {"first", "second", "last"} <= {each["name"] for each in found["operations"]}


def test_where_nothing_can_be_left_out_the_error_is_the_kinds_own(monkeypatch):
    raising(monkeypatch, "input", "build")
    with pytest.raises(OperationError, match="IndexError: Dimension out of range") as caught:
        told()
    assert isinstance(caught.value.__cause__, IndexError)


@VERILATOR
def test_what_is_left_is_simulated(monkeypatch, tmp_path):
    raising(monkeypatch, "softmax", "node")
    told(tmp_path)
    done = make(tmp_path, "sim")
    assert done.returncode == 0, done.stdout


class Exploding(nn.Module):
    """Values of 2 ** 50 before a layer whose bias is as small as usual, or zero."""

    def __init__(self, bias):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        with torch.no_grad():
            self.first.weight *= 2.0**50
            self.second.bias.fill_(bias)
            self.last.bias.zero_()

    def forward(self, x):
        x = self.second(self.first(x))
        return x, self.last(x)


def told_of_exploding(bias, folder):
    torch.manual_seed(0)
    graph = MaseGraph(Exploding(bias).eval(), {"x": torch.randn(2, 4)})
    return build(graph, Build(), "Exploding", folder=str(folder), vectors=5)


def test_a_bias_of_zeros_takes_no_room_beside_huge_products(tmp_path):
    found = told_of_exploding(0.0, tmp_path)
    assert found["unsupported"] == []
    assert found["files"]
    assert not list(tmp_path.rglob("second_bias*"))


def test_a_sum_that_is_too_wide_is_told_at_its_layer_and_the_rest_is_made(tmp_path):
    found = told_of_exploding(0.01, tmp_path)
    ((node, why),) = [(each["node"], each["why"]) for each in found["unsupported"]]
    assert node == "second"
    assert why.startswith("a sum of 6 products needs ")
    assert "its bias has " in why
    assert {"first", "last"} <= {each["name"] for each in found["operations"]}
    assert found["files"]
