"""What small floating-point formats share: their fields and their width."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

from mase_server.formats.format import NumberFormat, check, check_rounding
from mase_server.formats.scaling import powers


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
    #: The highest bias that may be asked for.
    highest_bias: ClassVar[int]

    def __post_init__(self) -> None:
        check(self, "exponent_width", 2, 8)
        check_rounding(self, self.rounding)
        check(self, "width", self.exponent_width + 2, self.exponent_width + 24)
        if self.exponent_bias is not None:
            check(self, "exponent_bias", *self._biases)

    @property
    def _biases(self) -> tuple[int, int]:
        return -127 + (1 << self.exponent_width), self.highest_bias

    def choices(self, low: float, high: float) -> list[Any]:
        """Exponent biases."""
        return powers(self, low, high, self._biases)

    @property
    def mantissa_width(self) -> int:
        """Bits of the mantissa, without a hidden one."""
        return self.width - 1 - self.exponent_width

    @property
    def bias(self) -> int:
        """What is subtracted from an exponent's code."""
        return (1 << (self.exponent_width - 1)) - 1 if self.exponent_bias is None else self.exponent_bias

    @property
    def bits(self) -> float:
        """The width."""
        return float(self.width)
