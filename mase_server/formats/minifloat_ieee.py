"""Small floating point as IEEE 754 lays it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import to_float


@dataclass(frozen=True, slots=True)
class MinifloatIeee(NumberFormat):
    """Sign, exponent, mantissa with a hidden one, subnormals; the highest exponent is kept for infinity and NaN.

    width: all bits.  exponent_width: 2..8; the rest, at least one bit, is mantissa.  exponent_bias: None for
    2**(exponent_width - 1) - 1.  Rounds half to even, saturates at the highest finite value.
    `minifloat_ieee(8,5)` holds what torch.float8_e5m2 holds.  Source: MASE's `minifloat_ieee` quantiser.
    """

    width: int
    exponent_width: int
    exponent_bias: int | None = None

    name: ClassVar[str] = "minifloat_ieee"

    def __post_init__(self) -> None:
        check(self, "exponent_width", 2, 8)
        check(self, "width", self.exponent_width + 2, self.exponent_width + 24)
        if self.exponent_bias is not None:
            check(self, "exponent_bias", -127 + (1 << self.exponent_width), 127)

    @property
    def mantissa_width(self) -> int:
        """Bits of the mantissa, without the hidden one."""
        return self.width - 1 - self.exponent_width

    @property
    def exponents(self) -> tuple[int, int]:
        """The exponents of the lowest and of the highest normal values."""
        bias = (1 << (self.exponent_width - 1)) - 1 if self.exponent_bias is None else self.exponent_bias
        return 1 - bias, (1 << self.exponent_width) - 2 - bias

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)

    @property
    def range(self) -> Range:
        """The smallest is subnormal."""
        low, high = self.exponents
        highest = (2.0 - 2.0**-self.mantissa_width) * 2.0**high
        return Range(-highest, highest, 2.0 ** (low - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest value."""
        return to_float(values, self.mantissa_width, self.exponents[0], self.range.highest)
