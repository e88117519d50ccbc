"""Two values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range


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
        """One."""
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
        """The sign."""
        high = torch.rand_like(values) < (values + 1).div_(2).clamp_(0, 1) if self.stochastic else values >= 0
        low = -1.0 if self.bipolar else 0.0
        signs = torch.where(high, torch.ones_like(values), torch.full_like(values, low))
        return torch.where(values.isnan(), values, signs)
