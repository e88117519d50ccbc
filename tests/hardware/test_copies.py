"""Copies of a design, which take samples in turn where one alone leaves the budget unused."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.building import Build, Part
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import FoldingError, count_multiplications, fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.passes.verilog import told
from mase_server.simulation import simulate
from mase_server.simulation.waves import Wave
from tests.hardware.simulating import TRIALS, check, latency, simulated
from tests.hardware.test_attention import Encoder
from tests.hardware.test_emission import VERILATOR
from tests.hardware.test_lowering import config, mlp
from tests.hardware.test_rates import built, interval
from tests.rtl.build import KEPT


class Digits(nn.Module):
    """Images so small that one pixel a cycle is the bound."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.second(F.relu(self.first(x)))), 2)
        return self.head(x.flatten(1))


class Both(nn.Module):
    """Two results of two inputs of different lengths."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.joined = nn.Linear(12, 7), nn.Linear(5, 7), nn.Linear(7, 3)

    def forward(self, x, y):
        both = F.relu(self.first(x)) + self.second(y)
        return self.joined(both), both


#: A model, its input, a budget, and the copies that use it.
CASES = {
    "images, two copies": (Digits, (1, 8, 8), 256, 2),
    "images, several pixels a beat": (Digits, (1, 8, 8), 900, 5),
    "attention": (Encoder, (6, 8), 400, 5),
}


@VERILATOR
@pytest.mark.parametrize("multipliers", [None, 0])
def test_an_interval_that_one_design_does_not_reach_takes_copies(tmp_path, multipliers):
    """Two inputs of other lengths, two results; with multipliers, and as additions."""
    graph = MaseGraph(Both().eval(), {"x": torch.randn(2, 6, 12), "y": torch.randn(2, 6, 5)})
    design = lower_graph(passes.quantize_transform_pass(graph, config())[0])
    with pytest.raises(FoldingError, match="too short"):
        fold_design(design, interval=2, multipliers=multipliers, copies=1)
    folding = fold_design(design, interval=2, multipliers=multipliers)
    made = emit_folder(design, folding, "Both", random_inputs(design, 6 * folding.copies + 1))
    status, streams = simulated(made, tmp_path)
    assert (status, len(streams)) == (0, 2)
    assert all(each.interval(6 * folding.copies + 1) <= 2 for each in streams)
    check(made, tmp_path)


@VERILATOR
@pytest.mark.parametrize("name", CASES)
def test_copies_use_a_budget_that_one_design_cannot(tmp_path, name):
    model, shape, budget, copies = CASES[name]
    samples = 6 * copies + 1
    design, folding, made = built(model(), shape, samples, budget, copies=None)
    assert (folding.copies, folding.multipliers <= budget) == (copies, True)
    one = fold_design(design, multipliers=budget, copies=1)
    totals, alone = estimate(design, folding).totals, estimate(design, one).totals
    cycles = count_multiplications(design) / budget
    assert cycles / 0.85 < alone["interval"]
    assert totals["interval"] <= cycles / 0.85
    assert totals["interval"] == pytest.approx(interval(made, tmp_path, samples), rel=0.02, abs=0.5)
    assert totals["latency"] == pytest.approx(latency(made, tmp_path), rel=0.02)
    check(made, tmp_path, TRIALS)


@VERILATOR
def test_copies_stand_on_a_bus_with_any_reset(tmp_path):
    torch.manual_seed(0)
    design, folding, _ = built(Digits(), (1, 8, 8), 2, 256, copies=None)
    build = Build(bus="axi64", reset_style="asynchronous")
    made = emit_folder(design, folding, "Digits", random_inputs(design, 9), build)
    assert (folding.copies, made.name) == (2, "digits_copies_axi")
    check(made, tmp_path)


@VERILATOR
async def test_a_waveform_is_of_the_first_copy(tmp_path):
    """Of every second sample, in the cycles in which its own multipliers take factors."""
    _, folding, made = built(Digits(), (1, 8, 8), 41, 256, copies=None)
    made.write(tmp_path)
    told = await simulate(tmp_path, cache=KEPT, wave=Wave(tmp_path / "it.vcd", 1000, 1920))
    assert (folding.copies, told["status"], round(told["cycles_per_vector"])) == (2, "equal", 96)
    works = {each["name"]: each["works"] for each in told["wave"]["operations"]}
    samples = told["wave"]["cycles"] / 96 / folding.copies
    assert works["second"] / samples == pytest.approx(folding.folds["second"].cycles, rel=0.02)


def asked(**build):
    torch.manual_seed(0)
    values = {"x": torch.randn(2, 1, 8, 8)}
    return told.build(MaseGraph(Digits().eval(), values), Build(**build), "Digits", folder="", vectors=4)


def test_the_number_of_copies_is_told_and_can_be_limited():
    found, one = asked(multipliers=256), asked(multipliers=256, copies=1)
    assert (found["totals"]["copies"], found["module"]) == (2, "digits_copies")
    assert ("copies" in one["totals"], one["module"]) == (False, "digits")
    assert found["totals"]["multipliers"] == sum(each["estimate"]["multipliers"] for each in found["operations"])
    assert found["text"].startswith("/// Digits: ")


@VERILATOR
def test_copies_are_fed_at_a_fraction_of_a_cycle(tmp_path):
    """Four copies of 18 cycles give a sample every 4.5: streams for 5 would be a ninth too slow."""
    torch.manual_seed(0)
    _, folding, made = built(mlp(16, 64, 32, 32, 5), (16,), 401, 1024, copies=None)
    assert (folding.copies, folding.interval) == (4, 4.5)
    assert interval(made, tmp_path, 401) == pytest.approx(4.5, rel=0.02)


def test_a_part_that_has_no_memory_for_copies_gets_one_design():
    """The copies have memories of their own."""
    copies, one = (asked(multipliers=256, copies=each)["totals"] for each in (None, 1))
    part = Part("board", "A board", 10**6, 256, copies["memory_bits"] - 1, 1e9, 1e8)
    found = asked(target="board", part=part)
    assert (found["refusal"], found["totals"]["interval"]) == (None, one["interval"])
    larger = replace(part, memory_bits=copies["memory_bits"])
    assert asked(target="board", part=larger)["totals"]["interval"] == copies["interval"]
