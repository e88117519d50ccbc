"""Integers times a scale that the data decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import finite

#: Scales that are tried: the largest, then by this factor less each time, to about a tenth.
_SHRINK, _STEPS = 0.93, 32
#: The smallest scale: the smallest normal number of float32.
_LEAST = 2.0**-126


@dataclass(frozen=True, slots=True)
class ScaleInteger(NumberFormat):
    """Symmetric integers: value = integer * scale, where scale = largest magnitude / (2**(width-1) - 1).

    width: bits, sign included, 2..24.  axis: the dimension whose every index has a scale of its own (per channel);
    None for one scale for the tensor.  scale: a scale that is the same whatever the data; what it does not reach
    saturates.  Rounds half to even.  Source: MASE's `scale_integer` quantiser, which has no scale of that kind.
    """

    width: int
    axis: int | None = None
    scale: float | None = None

    name: ClassVar[str] = "scale_integer"
    calibrated: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        check(self, "width", 2, 24)
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
        """All integers times the scale; where that is not given, the data decide."""
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
        # The quotient of the largest value may be a hair over the highest integer, its product over the finite ones.
        return finite((values / scale).round_().clamp_(-self.highest, self.highest).mul_(scale), nan=math.nan)

    def choices(self, low: float, high: float) -> list[Any]:
        """Scales with which the largest magnitude is the highest integer, and a little less each time; of five digits,
        so that texts stay short."""
        largest = (max(abs(low), abs(high)) or 1.0) / self.highest
        return [float(f"{max(largest * _SHRINK**step, _LEAST):.5g}") for step in range(_STEPS)]

    def scale_of(self, values: Tensor) -> Tensor:
        """The scale of each channel, or of the tensor, broadcasting over it; 1 where all is zero."""
        largest = reduced(finite(values.abs(), nan=0.0), self.axis, "amax")
        scale = largest / self.highest
        return torch.where(scale > 0, scale, torch.ones_like(scale))


def reduced(values: Tensor, axis: int | None, how: str) -> Tensor:
    """amax, mean or sum over all but `axis`, broadcasting over the tensor. IndexError where it has no such axis."""
    if values.numel() == 0:
        return values.new_zeros(())
    # Sums of values near the end of the range must not overflow.
    options: dict[str, Any] = {} if how == "amax" else {"dtype": torch.float64}
    if axis is None or values.dim() == 0:
        return getattr(values, how)(**options).to(values.dtype)  # type: ignore[no-any-return]
    if not -values.dim() <= axis < values.dim():
        raise IndexError(f"axis {axis} is out of range for a tensor of shape {list(values.shape)}")
    others = tuple(each for each in range(values.dim()) if each != axis % values.dim())
    if not others:
        return values
    return getattr(values, how)(dim=others, keepdim=True, **options).to(values.dtype)  # type: ignore[no-any-return]
