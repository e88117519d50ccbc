"""Several binary levels, each of what the ones before it left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import finite
from mase_server.formats.scale_integer import reduced


@dataclass(frozen=True, slots=True)
class BinaryResidual(NumberFormat):
    """A sum of `levels` terms +-g_i, where g_i is the mean magnitude of what the terms before it left over.

    levels: bits of an element, 1..16.  axis: as in `ScaleInteger`.  Not idempotent: the result has other means.
    Source: MASE's `binary_residual` quantiser, after ReBNet (Ghasemzadeh et al., 2018).
    """

    levels: int
    axis: int | None = None

    name: ClassVar[str] = "binary_residual"

    def __post_init__(self) -> None:
        check(self, "levels", 1, 16)

    @property
    def bits(self) -> float:
        """One for each level; the means are not counted."""
        return float(self.levels)

    @property
    def range(self) -> Range | None:
        """The data decide."""
        return None

    @property
    def precision(self) -> list[int]:
        """One bit for each level."""
        return [self.levels]

    def nearest(self, values: Tensor) -> Tensor:
        """Level by level."""
        known = finite(values, nan=0.0)
        rest, total = known.clone(), torch.zeros_like(known)
        for _ in range(self.levels):
            term = torch.copysign(reduced(rest.abs(), self.axis, "mean").expand_as(rest), rest)
            total += term
            rest -= term
        return torch.where(values.isnan(), values, total)
