"""Fixed point: whole multiples of a power of two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import clamp, to_grid_
from mase_server.formats.scaling import powers


@dataclass(frozen=True, slots=True)
class FixedPoint(NumberFormat):
    """Two's-complement fixed point: value = integer / 2**fraction_width.

    width: total bits, sign included, 2..64 (1..64 unsigned).  fraction_width: bits after the point, may lie outside of
    the width.  Rounds half to even, saturates.  Source: MASE's `integer` quantiser, precision (width, fraction_width).
    """

    width: int
    fraction_width: int = field(metadata={"key": "frac_width"})
    is_signed: bool = True

    name: ClassVar[str] = "fixed"
    aliases: ClassVar[tuple[str, ...]] = ("integer",)
    calibrated: ClassVar[str] = "fraction_width"

    def __post_init__(self) -> None:
        check(self, "width", 2 if self.is_signed else 1, 64)
        check(self, "fraction_width", -64, 64)

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
        """All integers over 2**fraction_width."""
        low, high = self.integers
        step = 2.0**-self.fraction_width
        return Range(low * step, high * step, step)

    def choices(self, low: float, high: float) -> list[Any]:
        """Fraction widths."""
        return powers(self, low, high, (-64, 64))

    def nearest(self, values: Tensor) -> Tensor:
        """Saturate, then round half to even."""
        limits = self.range
        return to_grid_(clamp(values, limits.lowest, limits.highest), self.fraction_width)

    def encode(self, values: Tensor) -> Tensor:
        """The integers of the nearest values, int64. NaN has none: ValueError."""
        if not values.is_meta and bool(values.isnan().any()):
            raise ValueError(f"{self} has no integer for NaN; the tensor {list(values.shape)} holds one")
        exact = self.nearest(values.detach().double())
        return (exact * 2.0**self.fraction_width).to(torch.int64).clamp(*self.integers)

    def decode(self, integers: Tensor) -> Tensor:
        """The values of integers, float64."""
        return integers.to(torch.float64) * 2.0**-self.fraction_width
