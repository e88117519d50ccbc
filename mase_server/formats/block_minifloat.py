"""Small floating point with an exponent bias for a whole block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mase_server.formats.blocks import blockwise, check_block, shared, shared_biases, shared_bits
from mase_server.formats.format import NumberFormat, Range, check, check_rounding
from mase_server.formats.rounding import exponent, power_of_two, to_float


@dataclass(frozen=True, slots=True)
class BlockMinifloat(NumberFormat):
    """Minifloats with subnormals and without infinity, whose bias is shared so that the block's largest magnitude has
    the highest exponent.

    width, exponent_width: of an element, as in `MinifloatIeee`.  exponent_bias_width: bits of the shared bias, signed,
    2..8; biases that do not fit saturate.  block_size: elements that share it, over the last dimensions.
    rounding: as of `FixedPoint`.  Source: MASE's `block_minifloat` quantiser, after Fox et al., 2021.
    """

    width: int
    exponent_width: int
    exponent_bias_width: int = 8
    block_size: tuple[int, ...] = (1, 16)
    rounding: str = "nearest"

    name: ClassVar[str] = "block_minifloat"

    def __post_init__(self) -> None:
        check(self, "exponent_width", 1, 5)
        check(self, "width", self.exponent_width + 2, self.exponent_width + 24)
        check(self, "exponent_bias_width", 2, 8)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)

    @property
    def mantissa_width(self) -> int:
        """Bits of the mantissa, without the hidden one."""
        return self.width - 1 - self.exponent_width

    @property
    def biases(self) -> tuple[int, int]:
        """The lowest and the highest shared bias."""
        return shared_biases(self.exponent_bias_width, (1 << self.exponent_width) - 1)

    @property
    def bits(self) -> float:
        """The width, and a share of the bias."""
        return self.width + shared_bits(self.exponent_bias_width, self.block_size)

    @property
    def range(self) -> Range:
        """Of blocks with the lowest and with the highest bias."""
        low, high = self.biases
        top = (1 << self.exponent_width) - 1 - low
        highest = (2.0 - 2.0**-self.mantissa_width) * 2.0**top
        return Range(-highest, highest, 2.0 ** (1 - high - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """Block by block."""
        return blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        codes = (1 << self.exponent_width) - 1
        bias = shared(codes - exponent(largest), largest, self.biases, self.biases[1])
        highest = power_of_two(codes - bias, block) * (2.0 - 2.0**-self.mantissa_width)
        return to_float(block, self.mantissa_width, 1 - bias, highest, self.rounding)
