"""Block floating point: an exponent for a whole block, a mantissa for each element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.blocks import blockwise, check_block, shared, shared_bits
from mase_server.formats.format import NumberFormat, Range, check, check_rounding
from mase_server.formats.rounding import exponent, power_of_two, to_steps


@dataclass(frozen=True, slots=True)
class BlockFloat(NumberFormat):
    """+-m / 2**(width - 1) * 2**e, with e shared so that the block's largest magnitude is below 2**e.

    width: bits of an element, sign included, 2..24.  exponent_width: bits of e, 2..8.  block_size: elements that share
    e, over the last dimensions.  exponent_bias: None for 2**(exponent_width - 1) - 1.  rounding: as of
    `FixedPoint`.  Saturates.
    Source: MASE's `block_fp` quantiser (Microsoft floating point).
    """

    width: int
    exponent_width: int = 8
    block_size: tuple[int, ...] = (1, 16)
    exponent_bias: int | None = None
    rounding: str = "nearest"

    name: ClassVar[str] = "block_fp"

    def __post_init__(self) -> None:
        check(self, "width", 2, 24)
        check(self, "exponent_width", 2, 8)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)
        if self.exponent_bias is not None:
            check(self, "exponent_bias", -127 + (1 << self.exponent_width), 125)

    @property
    def exponents(self) -> tuple[int, int]:
        """The lowest and the highest shared exponent."""
        bias = (1 << (self.exponent_width - 1)) - 1 if self.exponent_bias is None else self.exponent_bias
        return -bias, min((1 << self.exponent_width) - 1 - bias, 128)

    @property
    def bits(self) -> float:
        """The width, and a share of the exponent."""
        return self.width + shared_bits(self.exponent_width, self.block_size)

    @property
    def range(self) -> Range:
        """Of a block whose largest element is that large."""
        low, high = self.exponents
        step = 2.0 ** (1 - self.width)
        return Range(-(1.0 - step) * 2.0**high, (1.0 - step) * 2.0**high, step * 2.0**low)

    def nearest(self, values: Tensor) -> Tensor:
        """Block by block."""
        return blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        top = shared(exponent(largest) + 1, largest, self.exponents, self.exponents[0])
        steps = power_of_two(top - (self.width - 1), block)
        highest = steps * ((1 << (self.width - 1)) - 1)
        return to_steps(torch.minimum(torch.maximum(block, -highest), highest), steps, self.rounding)
