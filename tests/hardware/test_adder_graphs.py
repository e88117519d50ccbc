"""Networks of additions give what the product with their constants is, in numbers no larger than they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mase_server.hardware.adder_graphs import build_adder_graph, signed_digits


def value_of(graph, elements):
    """The results, and every term."""
    values = list(elements)
    for term in graph.terms[graph.elements :]:
        other = values[term.second] << term.shift
        values.append(values[term.first] + (-other if term.minus else other))
    results = []
    for each in graph.results:
        value = 0 if each.term < 0 else values[each.term] << each.shift
        results.append(-value if each.minus else value)
    return results, values


def assert_exact(constants, low, high, seed=0):
    constants = np.array(constants, np.int64)
    graph = build_adder_graph(constants, low, high)
    draws = np.random.default_rng(seed).integers(low, high + 1, (20, constants.shape[1]))
    extremes = [np.where(row < 0, end, other) for row in constants for end, other in ((low, high), (high, low))]
    for elements in (*draws, *extremes):
        results, values = value_of(graph, elements.tolist())
        assert results == (constants @ elements).tolist()
        assert all(term.low <= value <= term.high for term, value in zip(graph.terms, values, strict=True))
    return graph


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    bits=st.integers(1, 20),
    ends=st.sampled_from([(-128, 127), (0, 127), (0, 15), (0, 1), (-(2**23), 2**23 - 1)]),
    share=st.sampled_from([0.2, 0.7, 1.0]),
    seed=st.integers(0, 999),
)
def test_they_are_the_product(rows, columns, bits, ends, share, seed):
    random = np.random.default_rng(seed)
    constants = random.integers(-(1 << bits), 1 << bits, (rows, columns)) * (random.random((rows, columns)) < share)
    assert_exact(constants, *ends, seed)


@pytest.mark.parametrize(
    "constants",
    [
        [[0]],
        [[1]],
        [[-1]],
        [[0, 0], [3, -5]],
        [[-128] * 5],
        [[-3, -5, -6]],
        [[0b1010101010101, 0b101]],  # one element, over and over at one distance
        [[0b111011101110111] * 3] * 3,
        [[7, -9], [-7, 9]],
    ],
)
def test_single_elements_zero_rows_and_repeated_digits(constants):
    assert_exact(constants, -128, 127)


def test_what_rows_share_is_added_once():
    row = np.random.default_rng(1).integers(-128, 128, 16)
    alone = build_adder_graph(row[None], -128, 127)
    shared = build_adder_graph(np.stack([row, 4 * row, -row, row]), -128, 127)
    assert len(shared.terms) < len(alone.terms) + 4


def test_digits_are_few():
    digits = signed_digits(np.arange(-128, 128))
    assert (digits @ 2.0 ** np.arange(digits.shape[-1]) == np.arange(-128, 128)).all()
    assert not (digits[:, 1:] * digits[:, :-1]).any()


def test_trees_are_balanced():
    constants = np.random.default_rng(2).integers(-128, 128, (16, 16))
    assert build_adder_graph(constants, -128, 127).levels <= 8
