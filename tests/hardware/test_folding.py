"""Foldings against every combination of folds there is."""

from itertools import pairwise, product
from math import gcd

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Design, Operation, Stream, find_divisors
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import FoldingError, count_multiplications, fold_design
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.lowering import lower_graph
from tests.hardware.test_attention import Attention
from tests.hardware.test_lowering import config, quantised

FORMAT = FixedPoint(8, 4)


def chain(*sizes, rows=1):
    """A design of linear layers, without bias."""
    before = (rows,) if rows > 1 else ()
    operations = {"x": Operation("x", "input", (), Stream(FORMAT, (*before, sizes[0])), ())}
    source = "x"
    for index, (features_in, features_out) in enumerate(pairwise(sizes)):
        weight = Constant(torch.zeros(features_out, features_in, dtype=torch.int64), FORMAT)
        name = f"layer_{index}"
        out = Stream(FORMAT, (*before, features_out))
        operations[name] = Operation(name, "linear", (source,), out, (), {"weight": weight}, {"relu": False})
        source = name
    return Design(operations, (source,))


def every(design):
    """(interval, multipliers) of every combination of folds: beats of another width come through a converter, which
    takes a cycle for as many elements as divide both.
    """
    layers = [operation for operation in design.operations.values() if operation.kind == "linear"]
    found = set()
    for folds in product(*(KINDS["linear"].folds(design, layer) for layer in layers)):
        converters = [
            layer.out.size // gcd(ours.par_out, theirs.par_in)
            for layer, (ours, theirs) in zip(layers, pairwise(folds), strict=False)
        ]
        cycles = max(*(each.cycles for each in folds), *converters, 0)
        found.add((cycles, sum(each.multipliers for each in folds)))
    return found


sizes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4)


@given(sizes, st.integers(1, 40))
def test_a_budget_gives_the_shortest_interval_there_is(sizes, budget):
    design = chain(*sizes)
    """Layers share multipliers only where that is faster than every folding in which they do not."""
    possible = [interval for interval, multipliers in every(design) if multipliers <= budget]
    found = fold_design(design, multipliers=budget, copies=1)
    assert found.multipliers <= budget
    assert found.interval >= count_multiplications(design) / budget
    if found.engines:
        assert found.interval < min(possible, default=found.interval + 1)
    else:
        assert found.interval == min(possible)


@given(sizes, st.integers(1, 40), st.integers(1, 2))
def test_an_interval_takes_the_fewest_multipliers_there_are(sizes, interval, rows):
    design = chain(*sizes, rows=rows)
    possible = [multipliers for cycles, multipliers in every(design) if cycles <= interval]
    if not possible:
        with pytest.raises(FoldingError, match="too short"):
            fold_design(design, interval=interval, copies=1)
        return
    found = fold_design(design, interval=interval, copies=1)
    assert found.multipliers == min(possible)
    assert found.interval <= interval


def test_what_cannot_be_kept_says_what_can():
    with pytest.raises(FoldingError, match="takes 68 multipliers, 52 are allowed; with those 88 cycles are possible"):
        fold_design(chain(16, 64, 32, 32, 5), interval=64, multipliers=52)


def test_without_wishes_a_layer_has_one_multiplier():
    found = fold_design(chain(4, 6, 2))
    assert [each.multipliers for each in found.folds.values()] == [1, 1]
    assert (found.interval, found.bottlenecks) == (24, ("layer_0",))


def test_of_equally_small_folds_one_with_few_lanes_of_results_is_chosen():
    """A lane of results has a rounding of its own; gathering beats for the next layer costs next to nothing."""
    found = fold_design(chain(8, 8, 8), interval=16)
    assert [(each.par_in, each.par_out) for each in found.folds.values()] == [(4, 1), (4, 1)]


def test_no_layer_waits_for_a_converter():
    """Beats of 3 become beats of 2 element by element: 12 of them, for which an interval of 6 has no time."""
    found = fold_design(chain(4, 12, 6), interval=12)
    first, second = found.folds.values()
    assert 12 // gcd(first.par_out, second.par_in) <= 12
    for interval in (6, 8, 12, 16, 24):
        first, second = fold_design(chain(4, 12, 6), interval=interval).folds.values()
        assert 12 // gcd(first.par_out, second.par_in) <= interval


class Products(nn.Module):
    """A norm, a product of two streams and a mean of three multiply beside layers."""

    def __init__(self):
        super().__init__()
        self.up, self.gate, self.norm = nn.Linear(6, 12), nn.Linear(6, 12), nn.LayerNorm(12)

    def forward(self, x):
        return self.norm(self.up(x) * torch.tanh(self.gate(x))).reshape(-1, 3, 4).mean(1)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200))
def test_all_that_multiplies_is_within_the_budget(budget):
    design = lower_graph(quantised(Products(), torch.randn(2, 6), config()))
    found = fold_design(design, multipliers=budget)
    assert found.multipliers <= budget
    # Counted component by component, from the netlist.
    assert estimate(design, found).totals["multipliers"] == found.multipliers


def test_divisors():
    assert [find_divisors(each) for each in (1, 7, 12)] == [[1], [1, 7], [1, 2, 3, 4, 6, 12]]


def test_without_multipliers_a_layer_takes_a_vector_a_cycle():
    found = fold_design(chain(16, 64, 5), multipliers=0)
    assert (found.interval, found.multipliers) == (1, 0)
    assert [(each.par_in, each.par_out, each.digit) for each in found.folds.values()] == [(16, 64, 8), (64, 5, 8)]


@pytest.mark.parametrize(("rows", "interval", "digits"), [(1, 2, 2), (1, 3, 3), (1, 5, 4), (1, 100, 8), (4, 8, 2)])
def test_with_more_time_it_takes_fewer_bits_at_once(rows, interval, digits):
    found = fold_design(chain(16, 64, 5, rows=rows), multipliers=0, interval=interval)
    assert {each.cycles for each in found.folds.values()} == {rows * digits}
    assert {each.digit for each in found.folds.values()} == {-(-8 // digits)}
    assert found.multipliers == 0


def test_without_multipliers_norms_products_and_means_are_bit_by_bit():
    found = fold_design(lower_graph(quantised(Products(), torch.randn(2, 6), config())), multipliers=0)
    assert found.multipliers == 0
    assert sum(fold.serial for fold in found.folds.values()) == 3


def test_it_says_what_cannot_do_without_multipliers():
    attention = lower_graph(quantised(Attention(), torch.randn(2, 3, 8), config()))
    with pytest.raises(FoldingError, match="0 multipliers are too few: matmul, matmul_1 cannot do without; linear"):
        fold_design(attention, multipliers=0)
    with pytest.raises(FoldingError, match="layer_0 takes 4 cycles at least"):
        fold_design(chain(16, 64, 5, rows=4), multipliers=0, interval=3, copies=1)
