"""Choosing a parameter that scales a format by powers of two, so that it holds given values."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left

from mase_server.formats.format import NumberFormat

#: How many finer values are worth a try: each one saturates at half of what the one before holds.
FINER = 6


def powers(format: NumberFormat, low: float, high: float, bounds: tuple[int, int]) -> list[int]:
    """`NumberFormat.choices` for a whole number by which all values are divided as a power of two.

    bounds: of the parameter, both included; ValueError where they leave none.
    """
    values = range(bounds[0], bounds[1] + 1)
    if not values:
        raise ValueError(f"{format} leaves no {format.calibrated} to choose")
    low, high = (low, high) if low < 0 or high > 0 else (-1.0, 1.0)
    missed = bisect_left(values, True, key=lambda value: not _holds(_with(format, value), low, high))
    return list(values[max(missed - 1, 0) :][: FINER + 1])


def _with(format: NumberFormat, value: int) -> NumberFormat:
    return dataclasses.replace(format, **{format.calibrated: value})


def _holds(format: NumberFormat, low: float, high: float) -> bool:
    """Is nothing from low to high off by more than half a step? What has no negative values cannot hold them."""
    limits = format.range
    assert limits is not None
    half = limits.smallest / 2
    return high <= limits.highest + half and (limits.lowest == 0 or low >= limits.lowest - half)
