"""Small floating point as IEEE 754 lays it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mase_server.formats.format import Range
from mase_server.formats.minifloat import Minifloat
from mase_server.formats.rounding import to_float


@dataclass(frozen=True, slots=True)
class MinifloatIeee(Minifloat):
    """Sign, exponent, mantissa with a hidden one, subnormals; the highest exponent is kept for infinity and NaN.

    Saturates at the highest finite value.
    `minifloat_ieee(8,5)` holds what torch.float8_e5m2 holds.  Source: MASE's `minifloat_ieee` quantiser.
    """

    name: ClassVar[str] = "minifloat_ieee"
    highest_bias: ClassVar[int] = 127

    @property
    def exponents(self) -> tuple[int, int]:
        """The exponents of the lowest and of the highest normal values."""
        return 1 - self.bias, (1 << self.exponent_width) - 2 - self.bias

    @property
    def range(self) -> Range:
        """The smallest is subnormal."""
        low, high = self.exponents
        highest = (2.0 - 2.0**-self.mantissa_width) * 2.0**high
        return Range(-highest, highest, 2.0 ** (low - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest value."""
        return to_float(values, self.mantissa_width, self.exponents[0], self.range.highest, self.rounding)
