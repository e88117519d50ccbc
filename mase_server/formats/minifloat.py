"""Small floating-point formats: with and without a hidden leading one, and the fields and width that both share."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from mase_server.formats.format import NumberFormat, Range, check_rounding, check_whole_number
from mase_server.formats.rounding import to_float
from mase_server.formats.scale_integer import powers_that_hold


@dataclass(frozen=True, slots=True)
class Minifloat(NumberFormat, ABC):
    """Sign, exponent and mantissa.

    width: all bits.  exponent_width: 2..8; the rest, at least one bit, is mantissa.  exponent_bias: None for
    2**(exponent_width - 1) - 1.  rounding: as of `FixedPoint`.
    """

    width: int
    exponent_width: int
    exponent_bias: int | None = None
    rounding: str = "nearest"

    calibrated: ClassVar[str] = "exponent_bias"
    #: The highest exponent bias that is accepted.
    highest_bias: ClassVar[int]

    def __post_init__(self) -> None:
        check_whole_number(self, "exponent_width", 2, 8)
        check_rounding(self, self.rounding)
        check_whole_number(self, "width", self.exponent_width + 2, self.exponent_width + 24)
        if self.exponent_bias is not None:
            check_whole_number(self, "exponent_bias", *self._biases)

    @property
    def _biases(self) -> tuple[int, int]:
        return -127 + (1 << self.exponent_width), self.highest_bias

    def choices(self, low: float, high: float) -> list[Any]:
        """Exponent biases that hold the data, see `NumberFormat.choices`."""
        return powers_that_hold(self, low, high, self._biases)

    @property
    def mantissa_width(self) -> int:
        """Bits of the mantissa, without a hidden one."""
        return self.width - 1 - self.exponent_width

    @property
    def bias(self) -> int:
        """The bias: subtracted from an exponent's code."""
        return (1 << (self.exponent_width - 1)) - 1 if self.exponent_bias is None else self.exponent_bias

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)


# Without a hidden leading one.


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
        """The range; the smallest value has a mantissa of one step."""
        low, high = self.exponents
        highest = (1.0 - 2.0**-self.mantissa_width) * 2.0**high
        return Range(-highest, highest, 2.0 ** (low - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest value: a mantissa 0.1xx is a float with a hidden one and one bit less."""
        return to_float(values, self.mantissa_width - 1, self.exponents[0] - 1, self.range.highest, self.rounding)


# As IEEE 754 lays it out, with a hidden leading one.


@dataclass(frozen=True, slots=True)
class MinifloatIeee(Minifloat):
    """Sign, exponent, mantissa with a hidden one, subnormals; the highest exponent is reserved for infinity and NaN.

    Saturates at the highest finite value.
    `minifloat_ieee(8,5)` holds the values of torch.float8_e5m2.  Source: MASE's `minifloat_ieee` quantiser.
    """

    name: ClassVar[str] = "minifloat_ieee"
    highest_bias: ClassVar[int] = 127

    @property
    def exponents(self) -> tuple[int, int]:
        """The exponents of the lowest and of the highest normal values."""
        return 1 - self.bias, (1 << self.exponent_width) - 2 - self.bias

    @property
    def range(self) -> Range:
        """The range; the smallest value is subnormal."""
        low, high = self.exponents
        highest = (2.0 - 2.0**-self.mantissa_width) * 2.0**high
        return Range(-highest, highest, 2.0 ** (low - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """The nearest value."""
        return to_float(values, self.mantissa_width, self.exponents[0], self.range.highest, self.rounding)
