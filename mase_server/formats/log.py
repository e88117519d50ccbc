"""Signed powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import to_powers
from mase_server.formats.scaling import powers


@dataclass(frozen=True, slots=True)
class Log(NumberFormat):
    """A sign and an exponent: +-2**(code - exponent_bias), with code 0 for zero.

    width: bits, sign included, 3..9.  exponent_bias: None for 2**(width - 2) - 1.  Rounds to the nearest exponent (that
    of |x| on a logarithmic scale), saturates; below the lowest power less half an exponent it is zero.
    Source: MASE's `log` quantiser, which has no zero.
    """

    width: int
    exponent_bias: int | None = None

    name: ClassVar[str] = "log"
    calibrated: ClassVar[str] = "exponent_bias"

    def __post_init__(self) -> None:
        check(self, "width", 3, 9)
        if self.exponent_bias is not None:
            check(self, "exponent_bias", -127, 127)

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
        """Exponent biases."""
        return powers(self, low, high, (-127, 127))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest power."""
        return to_powers(values, *self.exponents)
