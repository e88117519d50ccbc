"""Formats of two and three values: one sign bit, sums of sign bits, and ternary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check_whole_number
from mase_server.formats.rounding import make_finite
from mase_server.formats.scale_integer import reduce_other_axes


@dataclass(frozen=True, slots=True)
class Binary(NumberFormat):
    """One bit: -1 or 1, or 0 or 1 where `bipolar` is false. Zero and above round to 1.

    stochastic: 1 with the probability clamp((x + 1) / 2, 0, 1) instead, drawn from torch's generator.
    The gradient goes through where |x| <= 1.  Source: MASE's `binary` quantiser.
    """

    bipolar: bool = True
    stochastic: bool = False

    name: ClassVar[str] = "binary"

    @property
    def bits(self) -> float:
        """Return 1."""
        return 1.0

    @property
    def range(self) -> Range:
        """The two values."""
        return Range(-1.0 if self.bipolar else 0.0, 1.0, 1.0)

    @property
    def precision(self) -> list[int]:
        """One bit."""
        return [1]

    def passes_gradient(self, values: Tensor) -> Tensor:
        """Where |x| <= 1."""
        return values.abs() <= 1

    def nearest(self, values: Tensor) -> Tensor:
        """Return the sign of each value."""
        high = torch.rand_like(values) < (values + 1).div_(2).clamp_(0, 1) if self.stochastic else values >= 0
        low = -1.0 if self.bipolar else 0.0
        signs = torch.where(high, torch.ones_like(values), torch.full_like(values, low))
        return torch.where(values.isnan(), values, signs)


# Residual binary: a sum of binary terms, each of which approximates the error that the terms before it left.


@dataclass(frozen=True, slots=True)
class BinaryResidual(NumberFormat):
    """A sum of `levels` terms +-g_i, where g_i is the mean magnitude of the error that the earlier terms left.

    levels: bits of an element, 1..16.  axis: as in `ScaleInteger`.  Not idempotent: the result has other means.
    Source: MASE's `binary_residual` quantiser, after ReBNet (Ghasemzadeh et al., 2018).
    """

    levels: int
    axis: int | None = None

    name: ClassVar[str] = "binary_residual"

    def __post_init__(self) -> None:
        check_whole_number(self, "levels", 1, 16)

    @property
    def bits(self) -> float:
        """One bit for each level; the means are not counted."""
        return float(self.levels)

    @property
    def range(self) -> Range | None:
        """Return None: the data decide."""
        return None

    @property
    def precision(self) -> list[int]:
        """One bit for each level."""
        return [self.levels]

    def nearest(self, values: Tensor) -> Tensor:
        """Add up the terms level by level."""
        known = make_finite(values, nan=0.0)
        rest, total = known.clone(), torch.zeros_like(known)
        for _ in range(self.levels):
            term = torch.copysign(reduce_other_axes(rest.abs(), self.axis, "mean").expand_as(rest), rest)
            total += term
            rest -= term
        return torch.where(values.isnan(), values, total)


# Ternary: a negative value, zero, a positive value.


@dataclass(frozen=True, slots=True)
class Ternary(NumberFormat):
    """-a, 0 or a. Values up to the threshold 0.7 * mean(|x|), inclusive, become 0; a is the mean magnitude of the rest.

    scaling_factor: False for a = 1.  axis: as in `ScaleInteger`.
    Source: MASE's `ternary` quantiser, after ternary weight networks (Li et al., 2016).
    """

    scaling_factor: bool = True
    axis: int | None = None

    name: ClassVar[str] = "ternary"

    @property
    def bits(self) -> float:
        """Two; the factors are not counted."""
        return 2.0

    @property
    def range(self) -> Range | None:
        """-1 to 1 without a scaling factor; else None: the data decide."""
        return None if self.scaling_factor else Range(-1.0, 1.0, 1.0)

    @property
    def precision(self) -> list[int]:
        """Two bits."""
        return [2]

    def passes_gradient(self, values: Tensor) -> None:
        """Return None: the gradient passes everywhere."""
        return

    def nearest(self, values: Tensor) -> Tensor:
        """Return zero, or the sign times the factor."""
        sizes = make_finite(values.abs(), nan=0.0)
        kept = sizes > 0.7 * reduce_other_axes(sizes, self.axis, "mean")
        factor = torch.ones_like(values)
        if self.scaling_factor:
            count = reduce_other_axes(kept.to(values.dtype), self.axis, "sum").clamp(min=1)
            factor = (reduce_other_axes(sizes * kept, self.axis, "sum") / count).expand_as(values)
        rounded = torch.where(kept, torch.copysign(factor, values), torch.zeros_like(values))
        return torch.where(values.isnan(), values, rounded)
