"""Integers times a scale from the data, and the search for parameters with which a format holds given data."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check_whole_number
from mase_server.formats.rounding import make_finite

# Choosing a parameter that scales a format by powers of two.

#: The number of finer values to try: each one saturates at half the magnitude that the one before holds.
FINER = 6


def powers_that_hold(format: NumberFormat, low: float, high: float, bounds: tuple[int, int]) -> list[int]:
    """`NumberFormat.choices` for an integer parameter that divides all values by a power of two.

    bounds: of the parameter, both included; ValueError if they contain no value.
    """
    values = range(bounds[0], bounds[1] + 1)
    if not values:
        raise ValueError(f"{format} leaves no {format.calibrated} to choose")
    low, high = (low, high) if low < 0 or high > 0 else (-1.0, 1.0)
    missed = bisect_left(values, True, key=lambda value: not _can_hold(_with_parameter(format, value), low, high))
    return list(values[max(missed - 1, 0) :][: FINER + 1])


def _with_parameter(format: NumberFormat, value: int) -> NumberFormat:
    return dataclasses.replace(format, **{format.calibrated: value})


def _can_hold(format: NumberFormat, low: float, high: float) -> bool:
    """Does the format hold low and high with an error of at most half a step? A format without negative values cannot
    hold them."""
    limits = format.range
    assert limits is not None
    half = limits.smallest / 2
    return high <= limits.highest + half and (limits.lowest == 0 or low >= limits.lowest - half)


#: Scales to try: the largest, then each smaller by this factor, to about a tenth.
_SHRINK, _STEPS = 0.93, 32
#: The smallest scale: the smallest normal number of float32.
_LEAST = 2.0**-126


@dataclass(frozen=True, slots=True)
class ScaleInteger(NumberFormat):
    """Symmetric integers: value = integer * scale, where scale = largest magnitude / (2**(width-1) - 1).

    width: bits, sign included, 2..24.  axis: the dimension along which each index has its own scale (per channel);
    None for one scale for the tensor.  scale: a fixed scale that does not depend on the data; larger values
    saturate. Rounds half to even.  Source: MASE's `scale_integer` quantiser, which has no fixed scale.
    """

    width: int
    axis: int | None = None
    scale: float | None = None

    name: ClassVar[str] = "scale_integer"
    calibrated: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        check_whole_number(self, "width", 2, 24)
        if self.scale is not None and not (type(self.scale) is float and 0 < self.scale < math.inf):
            raise ValueError(f"{self.name}: scale is {self.scale!r}, expected a number above 0, e.g. 0.125")
        if self.scale is not None and self.axis is not None:
            raise ValueError(f"{self.name}: one scale is for a whole tensor; leave out the scale, or the axis")

    @property
    def bits(self) -> float:
        """The width; scales are not counted."""
        return float(self.width)

    @property
    def highest(self) -> int:
        """The highest integer; the lowest is its negative."""
        return (1 << (self.width - 1)) - 1

    @property
    def range(self) -> Range | None:
        """The range of all integers times the fixed scale; None where the data decide."""
        if self.scale is None:
            return None
        return Range(-self.highest * self.scale, self.highest * self.scale, self.scale)

    @property
    def precision(self) -> list[int]:
        """The width."""
        return [self.width]

    def nearest(self, values: Tensor) -> Tensor:
        """Divide by the scale, round, multiply."""
        scale = self.scale_of(values) if self.scale is None else self.scale
        # The largest value's quotient may slightly exceed the highest integer, and its product the finite range.
        return make_finite((values / scale).round_().clamp_(-self.highest, self.highest).mul_(scale), nan=math.nan)

    def choices(self, low: float, high: float) -> list[Any]:
        """Scales, the largest first: it maps the largest magnitude to the highest integer. Five digits keep texts
        short."""
        largest = (max(abs(low), abs(high)) or 1.0) / self.highest
        return [float(f"{max(largest * _SHRINK**step, _LEAST):.5g}") for step in range(_STEPS)]

    def scale_of(self, values: Tensor) -> Tensor:
        """The scale of each channel, or of the tensor, broadcasting over it; 1 where all values are zero."""
        largest = reduce_other_axes(make_finite(values.abs(), nan=0.0), self.axis, "amax")
        scale = largest / self.highest
        return torch.where(scale > 0, scale, torch.ones_like(scale))


def reduce_other_axes(values: Tensor, axis: int | None, how: str) -> Tensor:
    """amax, mean or sum over all dimensions but `axis`, broadcasting over the tensor. IndexError for a missing axis."""
    if values.numel() == 0:
        return values.new_zeros(())
    # Sums of values near the end of the range must not overflow.
    options: dict[str, torch.dtype] = {} if how == "amax" else {"dtype": torch.float64}
    if axis is None or values.dim() == 0:
        return getattr(values, how)(**options).to(values.dtype)  # type: ignore[no-any-return]
    if not -values.dim() <= axis < values.dim():
        raise IndexError(f"axis {axis} is out of range for a tensor of shape {list(values.shape)}")
    others = tuple(each for each in range(values.dim()) if each != axis % values.dim())
    if not others:
        return values
    return getattr(values, how)(dim=others, keepdim=True, **options).to(values.dtype)  # type: ignore[no-any-return]
