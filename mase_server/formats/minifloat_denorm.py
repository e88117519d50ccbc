"""Small floating point without a hidden one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mase_server.formats.format import Range
from mase_server.formats.minifloat import Minifloat
from mase_server.formats.rounding import to_float


@dataclass(frozen=True, slots=True)
class MinifloatDenorm(Minifloat):
    """Sign, exponent, mantissa read as 0.m: +-2**(code - exponent_bias) * m / 2**mantissa_width. No infinity, no NaN.

    Saturates.  Source: MASE's `minifloat_denorm` quantiser.
    """

    name: ClassVar[str] = "minifloat_denorm"
    highest_bias: ClassVar[int] = 125

    @property
    def exponents(self) -> tuple[int, int]:
        """The lowest and the highest exponent that the mantissa is multiplied with."""
        return -self.bias, (1 << self.exponent_width) - 1 - self.bias

    @property
    def range(self) -> Range:
        """The smallest has a mantissa of one step."""
        low, high = self.exponents
        highest = (1.0 - 2.0**-self.mantissa_width) * 2.0**high
        return Range(-highest, highest, 2.0 ** (low - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest value: a mantissa of 0.1xx is a float with a hidden one and a bit less."""
        return to_float(values, self.mantissa_width - 1, self.exponents[0] - 1, self.range.highest, self.rounding)
