"""Signed powers of two with an exponent bias for a whole block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.blocks import blockwise, check_block, shared, shared_biases, shared_bits
from mase_server.formats.format import NumberFormat, Range, check
from mase_server.formats.rounding import to_powers


@dataclass(frozen=True, slots=True)
class BlockLog(NumberFormat):
    """+-2**(code - bias), with code 0 for zero and a shared bias by which the block's largest magnitude has the highest
    code.

    width: bits of an element, sign included, 3..9.  exponent_bias_width: bits of the shared bias, signed, 2..8; biases
    that do not fit saturate.  block_size: elements that share it, over the last dimensions.  Rounds as `Log` does.
    Source: MASE's `block_log` quantiser, which has no zero.
    """

    width: int
    exponent_bias_width: int = 8
    block_size: tuple[int, ...] = (1, 16)

    name: ClassVar[str] = "block_log"

    def __post_init__(self) -> None:
        check(self, "width", 3, 9)
        check(self, "exponent_bias_width", 2, 8)
        check_block(self, self.block_size)

    @property
    def biases(self) -> tuple[int, int]:
        """The lowest and the highest shared bias."""
        return shared_biases(self.exponent_bias_width, self._top)

    @property
    def _top(self) -> int:
        return (1 << (self.width - 1)) - 1

    @property
    def bits(self) -> float:
        """The width, and a share of the bias."""
        return self.width + shared_bits(self.exponent_bias_width, self.block_size)

    @property
    def range(self) -> Range:
        """Of blocks with the lowest and with the highest bias."""
        low, high = self.biases
        return Range(-(2.0 ** (self._top - low)), 2.0 ** (self._top - low), 2.0 ** (1 - high))

    def nearest(self, values: Tensor) -> Tensor:
        """Block by block."""
        return blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        # The largest magnitude, rounded as every element is, decides.
        top = torch.frexp(to_powers(largest, -(1 << 20), 127)).exponent - 1
        bias = shared(self._top - top, largest, self.biases, self.biases[1])
        return to_powers(block, 1 - bias, self._top - bias)
