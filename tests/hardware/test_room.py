"""Room to wait where streams meet again: what is worked out is enough, and with one place less all stands still."""

import pytest
import torch
from torch import nn

from mase_server.hardware import netlist
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.netlist import compute_buffer_depths
from tests.hardware.simulating import check, simulated
from tests.hardware.test_attention import Products
from tests.hardware.test_emission import VERILATOR, emitted
from tests.hardware.test_lowering import config, quantised
from tests.hardware.test_residuals import Block, Gate


class Concat(nn.Module):
    """Two ways and none, one after the other: what comes without a layer waits for those before it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(6, 8), nn.Linear(6, 4), nn.Linear(18, 3)

    def forward(self, x):
        return self.out(torch.cat([torch.tanh(self.first(x)), self.second(x), x], -1))


#: Where streams meet -> the model, a sample's shape, the operation and its operand, and the beats that must be able to
#: wait there: 12 pixels of 2 channels and a half; a sample but for its last element, which comes when it is wanted.
PLACES = {
    "residual": (Block, (2, 6, 5), ("add", 0), 25),
    "gate": (Gate, (6,), ("sub", 0), 5),
    "attention": (lambda: Products(heads=1), (6, 8), ("add", 0), 47),
    "concat": (Concat, (6,), ("cat", 2), 5),
}


def values_of(shape):
    torch.manual_seed(0)
    return torch.randn(2, *shape)


def have_room(monkeypatch, place, beats):
    """So many beats at one place, what is worked out at all others, and none to spare."""
    monkeypatch.setattr(netlist, "_SLACK", 0)
    monkeypatch.setattr(netlist, "compute_waiting", lambda *_: {})
    monkeypatch.setattr(
        netlist, "compute_buffer_depths", lambda design, ways: {**compute_buffer_depths(design, ways), place: beats}
    )


def moves(design):
    """Do results come, in the simulation of times? It is that of the hardware: see test_estimates_timing."""
    return estimate(design, fold_design(design)).totals["latency"] > 0


@pytest.mark.parametrize("name", PLACES)
def test_what_is_worked_out_is_the_least_that_is_enough(monkeypatch, name):
    make, shape, place, beats = PLACES[name]
    design = lower_graph(quantised(make(), values_of(shape), config()))
    assert compute_buffer_depths(design)[place] == beats
    have_room(monkeypatch, place, beats)
    assert moves(design)
    have_room(monkeypatch, place, beats - 1)
    assert not moves(design)


@VERILATOR
@pytest.mark.parametrize("name", ["gate", "attention", "concat"])
def test_hardware_moves_with_just_enough_and_stands_still_with_one_place_less(tmp_path, monkeypatch, name):
    make, shape, place, beats = PLACES[name]
    have_room(monkeypatch, place, beats)
    check(emitted(make(), values_of(shape), 3), tmp_path / "enough", [("--patience", "5000")])
    have_room(monkeypatch, place, beats - 1)
    status, _ = simulated(emitted(make(), values_of(shape), 3), tmp_path / "less", "--patience", "5000")
    assert status == 2


def test_queries_wait_for_all_keys(monkeypatch):
    """A product of two streams wants one of them whole. It holds two rows of the other itself, and the layers before it
    hold some, so that less than what is worked out is enough; none is not."""
    design = lower_graph(quantised(Products(heads=1), values_of((6, 8)), config()))
    # All six rows are there when the last key is; the first is taken with it.
    assert compute_buffer_depths(design)["matmul", 0] == 5 * 8
    have_room(monkeypatch, ("matmul", 0), 5 * 8)
    assert moves(design)
    have_room(monkeypatch, ("matmul", 0), 1)
    assert not moves(design)
