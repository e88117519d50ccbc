"""Estimates in time against simulation: the interval and the latency, to the cycle."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.hardware import netlist
from mase_server.hardware.emission import count_rounds, emit_folder, random_inputs
from mase_server.hardware.estimates import estimate, estimating
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import latency, simulated
from tests.hardware.test_attention import Attention, Encoder, Mixer
from tests.hardware.test_emission import VERILATOR
from tests.hardware.test_images import LeNet, Separable
from tests.hardware.test_lowering import config, mlp, quantised
from tests.hardware.test_recurrent import Sequences
from tests.hardware.test_reduce import Best
from tests.hardware.test_residuals import Block, Down, Gate
from tests.hardware.test_vision_transformer import Patches, Words

#: Enough that the first ones, while there is still room everywhere, do not count.
VECTORS = 30
CASES = {
    "jet": (lambda: mlp(16, 64, 32, 32, 5), (16,), (4, 34, 52, 488)),
    "lenet": (LeNet, (1, 12, 16), (5, 60)),
    "separable": (Separable, (4, 9, 7), (5, 40)),
    "residual": (Block, (2, 6, 5), (2, 30)),
    "down": (Down, (2, 8, 8), (4, 30)),
    "gate": (Gate, (6,), (4, 30)),
    "attention": (Attention, (6, 8), (1, 8)),
    "mixer": (Mixer, (5, 4), (8,)),
    "encoder": (Encoder, (6, 8), (1, 4, 14, 70)),
    "norms": (lambda: nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 6), nn.RMSNorm(6)), (5, 12), (1,)),
    "vit": (lambda: Patches(Encoder()), (3, 8, 8), (24,)),
    "words": (Words, None, (2, 8)),
    "best": (lambda: Best(classes=12, count=4), (5, 8), (2, 20, 240)),
    "gru": (lambda: Sequences(nn.GRU), (5, 4), (1, 5, 12, 40, 300)),
    "lstm": (lambda: Sequences(nn.LSTM, "last", num_layers=2), (5, 4), (1, 3, 10, 16, 60, 400)),
}


def designed(name):
    make, shape, _ = CASES[name]
    torch.manual_seed(0)
    values = torch.randint(0, 11, (2, 6)) if shape is None else torch.randn(2, *shape)
    return lower_graph(quantised(make(), values, config()))


def emitted(design, folding, vectors=VECTORS):
    return emit_folder(design, folding, "Model", random_inputs(design, vectors))


@VERILATOR
@pytest.mark.parametrize(
    ("name", "multipliers"), [(name, budget) for name, (_, _, budgets) in CASES.items() for budget in budgets]
)
def test_interval_and_latency_are_those_of_the_simulation(tmp_path, name, multipliers):
    design = designed(name)
    folding = fold_design(design, multipliers=multipliers)
    vectors = count_rounds(folding, 300 if multipliers == 70 else VECTORS)
    totals, made = estimate(design, folding).totals, emitted(design, folding, vectors)
    status, streams = simulated(made, tmp_path)
    assert status == 0
    assert totals["interval"] == pytest.approx(max(each.interval(vectors) for each in streams), rel=0.02, abs=0.5)
    assert totals["latency"] == latency(made, tmp_path)


@VERILATOR
def test_samples_in_flight_do_not_make_an_engine_faster(tmp_path):
    """When the first result comes, most of the work for the next nine is done: only a long run shows the interval."""
    design = designed("jet")
    folding = fold_design(design, multipliers=512, copies=1)
    status, (results,) = simulated(emitted(design, folding, 300), tmp_path)
    assert status == 0
    assert estimate(design, folding).totals["interval"] == pytest.approx(results.interval(300), rel=0.02)


@VERILATOR
def test_shared_multipliers_are_followed_for_a_large_picture_too(tmp_path):
    torch.manual_seed(0)
    design = lower_graph(quantised(Down(), torch.randn(2, 2, 100, 100), config()))
    folding = fold_design(design, multipliers=8)
    assert folding.engines
    made = emitted(design, folding, vectors=2)
    status, _ = simulated(made, tmp_path)
    assert status == 0
    assert estimate(design, folding).totals["latency"] == latency(made, tmp_path)


def test_a_design_stands_still_in_time_as_it_does_in_hardware(monkeypatch):
    """The same room that is too little in simulation: see test_residuals."""
    design = designed("residual")
    folding = fold_design(design)
    assert estimate(design, folding).totals["latency"] > 0
    monkeypatch.setattr(netlist, "_SLACK", -1)
    monkeypatch.setattr(netlist, "compute_waiting", lambda *_: {})
    assert estimate(design, folding).totals["latency"] == 0


class Tokens(nn.Module):
    """One token is there at once, the others come slowly: what is between the two must not be evened out."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 190, 8, 8), nn.Parameter(torch.randn(1, 1, 190))
        self.norm, self.out = nn.LayerNorm(190), nn.Linear(190, 180)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.out(self.norm(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)))


@pytest.mark.parametrize("name", ["jet", "lenet", "residual", "tokens"])
@pytest.mark.parametrize(("shares", "within"), [(False, 0.02), (True, 0.15)])
def test_the_latency_of_a_design_too_large_to_be_followed_is_close(monkeypatch, name, shares, within):
    """Whose turn it is at an engine is known only where beats are followed."""
    monkeypatch.setitem(CASES, "tokens", (Tokens, (3, 32, 32), (5,)))
    design = designed(name)
    folding = fold_design(design, multipliers=CASES[name][2][0] if shares else None)
    exact = estimate(design, folding).totals["latency"]
    monkeypatch.setattr(estimating, "_MOST_BEATS_OF_ENGINES" if shares else "_MOST_BEATS", 0)
    assert estimate(design, folding).totals["latency"] == pytest.approx(exact, rel=within)


class Join(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(5, 4), nn.Linear(9, 2)

    def forward(self, x):
        return self.head(torch.cat((x, self.layer(x)), dim=1))


def test_what_nobody_folds_takes_a_beat_a_cycle_also_where_beats_are_not_followed(monkeypatch):
    design = lower_graph(quantised(Join(), torch.randn(2, 5), config()))
    (name,) = (each.name for each in design.operations.values() if each.kind == "concat")
    followed = estimate(design, fold_design(design)).operations[name]["cycles"]
    monkeypatch.setattr(estimating, "_MOST_BEATS", 0)
    assert estimate(design, fold_design(design)).operations[name]["cycles"] == followed == 9


class Drawn(nn.Module):
    """Layers between values drawn by a seed, which are read once or more, added and joined in any order."""

    def __init__(self, seed):
        super().__init__()
        draw = random.Random(seed)
        self.layers, self.steps, sizes = nn.ModuleList(), [], [6]
        for _ in range(draw.randint(2, 6)):
            kind, first = draw.choice(("linear", "gelu", "add", "cat", "cat")), draw.randrange(len(sizes))
            alike = [place for place, size in enumerate(sizes) if size == sizes[first]]
            second = draw.choice(alike if kind == "add" else range(len(sizes)))
            size = draw.choice((2, 3, 6, 8)) if kind == "linear" else sizes[first]
            self.layers.append(nn.Linear(sizes[first], size) if kind == "linear" else nn.GELU())
            self.steps.append((kind, first, second))
            sizes.append(size + sizes[second] if kind == "cat" else size)
        self.last = nn.Linear(sizes[-1] + sizes[-2], 3)

    def forward(self, x):
        values = [x]
        for layer, (kind, first, second) in zip(self.layers, self.steps, strict=True):
            one, other = values[first], values[second]
            joined = {"add": lambda one=one, other=other: one + other}
            joined["cat"] = lambda one=one, other=other: torch.cat([one, other], -1)
            values.append(joined[kind]() if kind in joined else layer(one))
        return self.last(torch.cat(values[-2:], -1))


def drawn(seed):
    torch.manual_seed(seed)
    graph = MaseGraph(Drawn(seed).eval(), {"x": torch.randn(2, 6)})
    return lower_graph(passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 60))
def test_no_time_is_negative_and_none_is_longer_than_the_whole(seed, spare):
    design = drawn(seed)
    folding = fold_design(design, multipliers=fold_design(design).multipliers + spare)
    found = estimate(design, folding)
    times = {name: each["latency"] for name, each in found.operations.items()}
    assert min(times.values()) >= 0
    assert max(times.values()) <= found.totals["latency"], times


@VERILATOR
@pytest.mark.parametrize("seed", [3, 8])
def test_the_latency_of_a_drawn_model_is_that_of_the_simulation(tmp_path, seed):
    design = drawn(seed)
    assert any(each.kind == "concat" for each in design.operations.values())
    folding = fold_design(design)
    made = emitted(design, folding)
    assert estimate(design, folding).totals["latency"] == latency(made, tmp_path)
