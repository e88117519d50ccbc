"""Which points no other one beats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.sweep.points import mark_front, objectives_of

TWO = objectives_of(["sqnr", "luts"])


def rows(*pairs):
    return [{"sqnr": sqnr, "luts": luts} for sqnr, luts in pairs]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], []),
        ([(10, 100)], [True]),
        # More SQNR is better, fewer LUTs are.
        ([(10, 100), (20, 200)], [True, True]),
        ([(10, 100), (20, 100)], [False, True]),
        ([(10, 100), (10, 90)], [False, True]),
        ([(10, 200), (20, 100)], [False, True]),
        # Equal points do not beat each other.
        ([(10, 100), (10, 100)], [True, True]),
        # What was not measured cannot be compared, and beats nobody.
        ([(10, None), (5, 100)], [False, True]),
        ([(float("inf"), 300), (40, 200), (39, 250)], [True, True, False]),
    ],
)
def test_a_point_is_best_where_nothing_is_better_in_all(points, expected):
    assert mark_front(rows(*points), TWO) == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_as_a_staircase_in_two_objectives(points):
    """From the fewest LUTs upwards, a point is best if it has the most SQNR at its LUTs, and more than any before."""
    expected, most = set(), -1
    for luts in sorted({luts for _, luts in points}):
        highest = max(sqnr for sqnr, other in points if other == luts)
        if highest > most:
            expected.add((highest, luts))
            most = highest
    assert mark_front(rows(*points), TWO) == [point in expected for point in points]


def test_an_unknown_objective_names_those_that_there_are():
    with pytest.raises(
        ValueError,
        match=r"^there is no figure 'lut' .*; did you mean 'luts'\? There are sqnr, max_error, .*latency$",
    ):
        objectives_of(["lut"])
