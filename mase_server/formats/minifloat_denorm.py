"""Small floating point without a hidden one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import to_float


@dataclass(frozen=True, slots=True)
class MinifloatDenorm(NumberFormat):
    """Sign, exponent, mantissa read as 0.m: +-2**(code - exponent_bias) * m / 2**mantissa_width. No infinity, no NaN.

    width: all bits.  exponent_width: 2..8; the rest, at least one bit, is mantissa.  exponent_bias: None for
    2**(exponent_width - 1) - 1.  Rounds half to even, saturates.  Source: MASE's `minifloat_denorm` quantiser.
    """

    width: int
    exponent_width: int
    exponent_bias: int | None = None

    name: ClassVar[str] = "minifloat_denorm"

    def __post_init__(self) -> None:
        check(self, "exponent_width", 2, 8)
        check(self, "width", self.exponent_width + 2, self.exponent_width + 24)
        if self.exponent_bias is not None:
            check(self, "exponent_bias", -127 + (1 << self.exponent_width), 125)

    @property
    def mantissa_width(self) -> int:
        """Bits of the mantissa."""
        return self.width - 1 - self.exponent_width

    @property
    def exponents(self) -> tuple[int, int]:
        """The lowest and the highest exponent that the mantissa is multiplied with."""
        bias = (1 << (self.exponent_width - 1)) - 1 if self.exponent_bias is None else self.exponent_bias
        return -bias, (1 << self.exponent_width) - 1 - bias

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)

    @property
    def range(self) -> Range:
        """The smallest has a mantissa of one step."""
        low, high = self.exponents
        highest = (1.0 - 2.0**-self.mantissa_width) * 2.0**high
        return Range(-highest, highest, 2.0 ** (low - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest value: a mantissa of 0.1xx is a float with a hidden one and a bit less."""
        return to_float(values, self.mantissa_width - 1, self.exponents[0] - 1, self.range.highest)
