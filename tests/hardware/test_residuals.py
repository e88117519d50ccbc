"""Streams that part and meet again: nothing stands still, and with less room to wait in it would."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.hardware import netlist
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.netlist import compute_buffer_depths
from tests.hardware.simulating import check, simulated
from tests.hardware.test_emission import VERILATOR, emitted, make
from tests.hardware.test_lowering import config, integers, quantised


class Block(nn.Module):
    """A residual block whose longer way needs rows of the image before it gives anything."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x):
        x = F.relu(x)
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class Down(nn.Module):
    """A residual block that makes the image smaller both ways."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.short, self.head = nn.Conv2d(2, 4, 1, stride=2), nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))) + self.short(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Gate(nn.Module):
    """Products, differences and functions of one number, and an operand that is used twice."""

    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        hidden = F.silu(self.gate(x)) * self.up(x)
        x = x - self.down(hidden)
        return torch.tanh(x + x)


CASES = [(Block(), (2, 6, 5)), (Down(), (2, 8, 8)), (Gate(), (6,))]
IDS = ["block", "down", "gate"]


@pytest.mark.parametrize(("model", "shape"), CASES, ids=IDS)
def test_the_integers_are_those_of_the_quantised_graph(model, shape):
    torch.manual_seed(2)
    values = torch.randn(7, *shape)
    graph = quantised(model, values, config())
    assert torch.equal(integers(graph, values), graph.model(values))


@VERILATOR
@pytest.mark.parametrize(("model", "shape"), CASES, ids=IDS)
def test_verilator_gives_the_same_integers(tmp_path, model, shape):
    check(emitted(model, torch.randn(2, *shape), 12, multipliers=30), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


def test_what_waits_is_worked_out_by_hand():
    """Two 3x3 convolutions with a border need two rows and two pixels of 5 pixels of 2 channels, beyond their own."""
    design = lower_graph(quantised(Block(), torch.randn(2, 2, 6, 5), config()))
    (add,) = (each for each in design.operations.values() if each.kind == "elementwise")
    short = next(index for index, name in enumerate(add.inputs) if not name.startswith("conv"))
    # With the pixel itself that is 13 pixels; the last element of them need not wait.
    assert compute_buffer_depths(design)[add.name, short] == 13 * 2 - 1
    assert compute_buffer_depths(design)[add.name, 1 - short] <= 1


@VERILATOR
def test_with_one_place_less_it_stands_still(tmp_path, monkeypatch):
    monkeypatch.setattr(netlist, "_SLACK", -1)
    monkeypatch.setattr(netlist, "compute_waiting", lambda *_: {})
    status, _ = simulated(emitted(Block(), torch.randn(2, 2, 6, 5), 3), tmp_path, "--patience", "5000")
    assert status == 2


@VERILATOR
def test_with_just_enough_room_it_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(netlist, "_SLACK", 0)
    monkeypatch.setattr(netlist, "compute_waiting", lambda *_: {})
    check(emitted(Block(), torch.randn(2, 2, 6, 5), 3), tmp_path, [("--patience", "5000")])
