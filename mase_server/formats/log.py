"""Logarithmic numbers: signed powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check_whole_number
from mase_server.formats.rounding import to_powers
from mase_server.formats.scale_integer import powers_that_hold


@dataclass(frozen=True, slots=True)
class Log(NumberFormat):
    """A sign and an exponent: +-2**(code - exponent_bias), with code 0 for zero.

    width: bits, sign included, 3..9.  exponent_bias: None for 2**(width - 2) - 1.  Rounds |x| to the nearest
    exponent on a logarithmic scale and saturates; values more than half an exponent below the lowest power become
    zero.
    Source: MASE's `log` quantiser, which has no zero.
    """

    width: int
    exponent_bias: int | None = None

    name: ClassVar[str] = "log"
    calibrated: ClassVar[str] = "exponent_bias"

    def __post_init__(self) -> None:
        check_whole_number(self, "width", 3, 9)
        if self.exponent_bias is not None:
            check_whole_number(self, "exponent_bias", -127, 127)

    @property
    def exponents(self) -> tuple[int, int]:
        """The lowest and the highest exponent."""
        codes = 1 << (self.width - 1)
        bias = codes // 2 - 1 if self.exponent_bias is None else self.exponent_bias
        return max(1 - bias, -149), min(codes - 1 - bias, 127)

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)

    @property
    def range(self) -> Range:
        """Powers of two on both sides of zero."""
        low, high = self.exponents
        return Range(-(2.0**high), 2.0**high, 2.0**low)

    def choices(self, low: float, high: float) -> list[Any]:
        """Exponent biases that hold the data, see `NumberFormat.choices`."""
        return powers_that_hold(self, low, high, (-127, 127))

    def nearest(self, values: Tensor) -> Tensor:
        """Round to the nearest power."""
        return to_powers(values, *self.exponents)
