"""GRU and LSTM: a linear layer of the input and a component that keeps its state."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.hardware.design import Engine
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import count_multiplications, fold_design
from mase_server.hardware.kinds import KINDS as KIND_OF_OPERATION
from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, emitted
from tests.hardware.test_lowering import config, integers, quantised
from tests.hardware.test_rates import built, interval


class Sequences(nn.Module):
    """A recurrent layer. reads: the part of its result that a layer behind it reads."""

    def __init__(self, kind, reads="all", units=6, **options):
        super().__init__()
        self.layer, self.reads = kind(4, units, **{"batch_first": True, **options}), reads
        self.last = nn.Linear(units * (2 if options.get("bidirectional") else 1), 3)

    def forward(self, x):
        results, state = self.layer(x)
        hidden = state[0] if isinstance(state, tuple) else state
        both = results + hidden[-1][:, None] if self.reads == "both" else None
        return self.last({"all": results, "last": results[:, -1], "state": hidden[-1], "both": both}[self.reads])


class StepsFirst(nn.Module):
    """The same with the steps in the first dimension of the layer."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.last = kind(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        results, _ = self.layer(x.transpose(0, 1))
        return self.last(results.transpose(0, 1))


class FromZeros(nn.Module):
    """A first state of zeros, as many people write it, or of ones."""

    def __init__(self, first=torch.zeros):
        super().__init__()
        self.layer, self.first = nn.LSTM(4, 6, batch_first=True), first

    def forward(self, x):
        state = self.first(1, x.size(0), 6)
        return self.layer(x, (state, state))[0]


KINDS = (nn.GRU, nn.LSTM)
MODELS = {
    f"{kind.__name__} {name}": (kind, make)
    for kind in KINDS
    for name, make in {
        "all": lambda kind: Sequences(kind),
        "last": lambda kind: Sequences(kind, "last", bias=False),
        "state": lambda kind: Sequences(kind, "state"),
        "both": lambda kind: Sequences(kind, "both"),
        "two layers": lambda kind: Sequences(kind, "all", num_layers=2, dropout=0.5),
        "states of three layers": lambda kind: Sequences(kind, "state", num_layers=3),
        "steps first": StepsFirst,
    }.items()
}
MODELS["LSTM from zeros"] = nn.LSTM, lambda kind: FromZeros()


def made(name):
    torch.manual_seed(3)
    kind, make = MODELS[name]
    return make(kind)


def ratio(exact, found):
    """The ratio of signal and noise in decibels."""
    return float(10 * torch.log10(exact.square().sum() / (exact - found).square().sum()))


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_integers_are_as_near_to_floats_as_the_quantised_graph_is(name):
    model, values = made(name).eval(), torch.randn(64, 7, 4)
    graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"x": values}), {"default": "fixed(8,auto)"})
    exact = model(values)
    found = ratio(exact, integers(graph, values))
    assert found > 30
    assert found > ratio(exact, graph.model(values)) - 2


@torch.no_grad()
def test_a_long_sequence_drifts_no_further():
    for kind in KINDS:
        torch.manual_seed(1)
        model, values = Sequences(kind, "last", units=16).eval(), torch.randn(32, 200, 4)
        graph, _ = passes.quantize_transform_pass(MaseGraph(model, {"x": values}), {"default": "fixed(8,auto)"})
        assert ratio(model(values), integers(graph, values)) > 30


@VERILATOR
@pytest.mark.parametrize("name", ["LSTM two layers", "GRU states of three layers", "LSTM both", "GRU steps first"])
def test_verilator_gives_the_same_integers(tmp_path, name):
    check(emitted(made(name), torch.randn(2, 5, 4), 8, multipliers=40), tmp_path)


@VERILATOR
@pytest.mark.parametrize(("kind", "budget"), [(nn.GRU, 8), (nn.LSTM, 40), (nn.GRU, 300)])
def test_every_folding_gives_them(tmp_path, kind, budget):
    check(emitted(Sequences(kind), torch.randn(2, 5, 4), 8, multipliers=budget), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_multiplications_of_a_sample_are_those_of_its_matrices(kind):
    steps, ins, units = 10, 4, 6
    design = lower_graph(quantised(Sequences(kind), torch.randn(2, steps, ins), config()))
    gates = 4 if kind is nn.LSTM else 3
    assert count_multiplications(design) == steps * (gates * units * (ins + units) + units * 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cycles_of_a_folding_are_those_of_the_estimate(kind):
    design = lower_graph(quantised(Sequences(kind), torch.randn(2, 10, 4), config()))
    plain = fold_design(design, multipliers=10_000, copies=1)
    for fold in KIND_OF_OPERATION["recurrent"].folds(design, design.operations["layer"]):
        folding = replace(plain, folds={**plain.folds, "layer": fold}, interval=fold.cycles)
        assert abs(estimate(design, folding).totals["interval"] - fold.cycles) <= fold.cycles / 50, fold


REFUSED = {
    "goes both ways": lambda: Sequences(nn.GRU, bidirectional=True),
    "proj_size": lambda: FromProjection(),
    "first state is given": lambda: FromZeros(torch.ones),
    "set batch_first=True": lambda: Sequences(nn.LSTM, batch_first=False),
}


class FromProjection(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 6, proj_size=2, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_served_is_refused_at_the_layer(why):
    told = lower_graph(quantised(REFUSED[why](), torch.randn(2, 5, 4), config())).unsupported
    assert [each.node for each in told if why in each.why] == ["layer"]


def test_dropout_in_training_is_refused():
    graph = MaseGraph(Sequences(nn.GRU, num_layers=2, dropout=0.5).train(), {"x": torch.randn(2, 5, 4)})
    graph, _ = passes.quantize_transform_pass(graph, config())
    graph.module.train()
    assert "call eval()" in lower_graph(graph).unsupported[0].why


def test_floats_are_refused():
    graph = MaseGraph(Sequences(nn.GRU).eval(), {"x": torch.randn(2, 5, 4)})
    assert "quantise" in lower_graph(graph).unsupported[0].why


class LastCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        return self.layer(x)[1][1]


def test_the_last_cell_is_refused():
    (told,) = lower_graph(quantised(LastCell(), torch.randn(2, 5, 4), config())).unsupported
    assert "the last result has hardware" in told.why


#: Copies, whose samples do not wait for each other, use what one leaves over.
FEW = [(nn.GRU, 1, 1, 0.99), (nn.GRU, 2, 1, 0.85), (nn.GRU, 6, 1, 0.5), (nn.GRU, 8, 4, 0.85)]
FEW += [(nn.LSTM, 1, 1, 0.99), (nn.LSTM, 3, 1, 0.75), (nn.LSTM, 8, 1, 0.5), (nn.LSTM, 8, 4, 0.95)]


@VERILATOR
@pytest.mark.parametrize(("kind", "budget", "copies", "share"), FEW)
def test_a_layer_takes_turns_with_the_others_where_multipliers_are_few(tmp_path, kind, budget, copies, share):
    samples = 12 * copies + 1
    design, folding, made = built(Sequences(kind, "last", units=8), (5, 4), samples, budget, copies)
    assert folding.folds["layer"].engine
    assert folding.multipliers <= budget
    assert folding.copies == copies
    found = interval(made, tmp_path, samples)
    assert found <= count_multiplications(design) / budget / share
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.01)
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "700")])


@pytest.mark.parametrize("kind", KINDS)
def test_the_cycles_of_steps_with_an_engine_are_those_of_the_estimate(kind):
    """While it has no other layers."""
    design = lower_graph(quantised(Sequences(kind, units=8), torch.randn(2, 10, 4), config()))
    plain = fold_design(design, multipliers=10_000, copies=1)
    dots = KIND_OF_OPERATION["recurrent"].dots(design, design.operations["layer"])
    for lanes in [(1, 1), (2, 1), (1, 3), (3, 5), (4, 6), (8, 12), (5, 32)]:
        for cycles in (dots.fastest(*lanes), dots.helped(*lanes)[0]):
            fold = dots.fold(*lanes, cycles, waits=False)
            assert fold.cycles == cycles
            folds, engines = {**plain.folds, "layer": fold}, (Engine(*lanes, ("layer",)),)
            folding = replace(plain, folds=folds, engines=engines, interval=cycles)
            assert abs(estimate(design, folding).totals["interval"] - cycles) <= cycles / 40, fold


@VERILATOR
def test_a_layer_that_waits_for_itself_comes_before_those_that_read_it(tmp_path):
    """While its steps wait for each other, other layers work for earlier ones."""
    samples = 12
    design, folding, made = built(Sequences(nn.LSTM, "last", units=16, num_layers=2), (12, 4), samples, 12)
    found = interval(made, tmp_path, samples)
    assert found <= count_multiplications(design) / 12 / 0.95
    assert estimate(design, folding).totals["interval"] == pytest.approx(found, rel=0.01)
    check(made, tmp_path, [("--stall", "40"), ("--stall", "40", "--seed", "5", "--reset", "700")])
