"""Fixed point: integer multiples of a power of two."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nextafter
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check_rounding, check_whole_number
from mase_server.formats.rounding import clamp_to_range, to_grid_, to_whole_
from mase_server.formats.scale_integer import powers_that_hold

#: Float32 and float64 hold all integers below these exactly; scaling by a power of two then loses nothing.
_SINGLES, _DOUBLES = 1 << 24, 1 << 53


@dataclass(frozen=True, slots=True, eq=False)
class FixedPoint(NumberFormat):
    """Two's-complement fixed point: value = integer / 2**fraction_width.

    width: total bits, sign included, 2..64 (1..64 unsigned).  fraction_width: bits after the point, may lie outside of
    the width.  rounding: nearest (half to even) | floor | stochastic.  Saturates.
    Source: MASE's `integer` quantiser, precision (width, fraction_width).
    """

    width: int
    fraction_width: int = field(metadata={"key": "frac_width"})
    is_signed: bool = True
    rounding: str = "nearest"

    name: ClassVar[str] = "fixed"
    calibrated: ClassVar[str] = "fraction_width"

    def __post_init__(self) -> None:
        check_whole_number(self, "width", 2 if self.is_signed else 1, 64)
        check_whole_number(self, "fraction_width", -64, 64)
        check_rounding(self, self.rounding)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedPoint) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.width, self.fraction_width, self.is_signed, self.rounding))

    @property
    def integers(self) -> tuple[int, int]:
        """The lowest and the highest integer."""
        if self.is_signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return 0, (1 << self.width) - 1

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)

    @property
    def range(self) -> Range:
        """The range of all integers over 2**fraction_width."""
        low, high = self.integers
        step = 2.0**-self.fraction_width
        return Range(low * step, high * step, step)

    def choices(self, low: float, high: float) -> list[Any]:
        """Fraction widths that hold the data, see `NumberFormat.choices`."""
        return powers_that_hold(self, low, high, (-64, 64))

    def nearest(self, values: Tensor) -> Tensor:
        """Saturate, then round."""
        limits = self.range
        return to_grid_(clamp_to_range(values, limits.lowest, limits.highest), self.fraction_width, self.rounding)

    def encode(self, values: Tensor) -> Tensor:
        """The integers of the nearest values, int64. ValueError for NaN, which has none."""
        if not values.is_meta and values.numel() and bool(torch.aminmax(values.detach())[0].isnan()):
            raise ValueError(f"{self} has no integer for NaN; the tensor {list(values.shape)} holds one")
        exact = values.detach() if values.dtype is torch.float32 and self.integers[1] < _SINGLES else values.double()
        (low, high), steps = self.integers, to_whole_(exact.detach() * 2.0**self.fraction_width, self.rounding)
        if high < _DOUBLES:
            return steps.clamp_(low, high).to(torch.int64)
        # As a double the highest integer would round up to the next power of two, which may not fit into 64 bits.
        inside = steps.clamp(low, nextafter(float(high), 0.0)).to(torch.int64)
        return torch.where(steps >= float(high), high, inside)

    def decode(self, integers: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """The values of integers, in an element type; the nearest value where that type cannot hold one exactly."""
        if dtype is torch.float32 and self.integers[1] < _SINGLES:
            return integers.to(dtype).mul_(2.0**-self.fraction_width)
        return integers.to(torch.float64).mul_(2.0**-self.fraction_width).to(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Integer(FixedPoint):
    """Fixed point under the name that MASE's configurations and metadata use; equal to `FixedPoint`."""

    name: ClassVar[str] = "integer"
