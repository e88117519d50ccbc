"""Three values: minus, nothing, plus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.format import NumberFormat, Range
from mase_server.formats.rounding import finite
from mase_server.formats.scale_integer import reduced


@dataclass(frozen=True, slots=True)
class Ternary(NumberFormat):
    """-a, 0 or a: zero up to the threshold 0.7 * mean(|x|), that included; a is the mean magnitude above it.

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
        """The data decide."""
        return None if self.scaling_factor else Range(-1.0, 1.0, 1.0)

    @property
    def precision(self) -> list[int]:
        """Two bits."""
        return [2]

    def passes_gradient(self, values: Tensor) -> None:
        """Everywhere."""
        return

    def nearest(self, values: Tensor) -> Tensor:
        """Nothing, or a sign times the factor."""
        sizes = finite(values.abs(), nan=0.0)
        kept = sizes > 0.7 * reduced(sizes, self.axis, "mean")
        factor = torch.ones_like(values)
        if self.scaling_factor:
            count = reduced(kept.to(values.dtype), self.axis, "sum").clamp(min=1)
            factor = (reduced(sizes * kept, self.axis, "sum") / count).expand_as(values)
        rounded = torch.where(kept, torch.copysign(factor, values), torch.zeros_like(values))
        return torch.where(values.isnan(), values, rounded)
