"""Microscaling integers (OCP MX)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mase_server.formats.blocks import blockwise, check_block, shared_bits
from mase_server.formats.format import NumberFormat, Range, check, check_rounding
from mase_server.formats.rounding import binade, to_steps

#: Exponents of an E8M0 scale.
SCALES = (-127, 127)


@dataclass(frozen=True, slots=True)
class MxInt(NumberFormat):
    """Two's-complement elements with width - 2 bits after the point, times a power of two for each block.

    width: bits of an element, 2..24; 8 is the specification's MXINT8.  block_size: elements that share a scale, over
    the last dimensions.  The scale is 2**floor(log2(largest magnitude)), in 8 bits.  rounding: as of `FixedPoint`.
    Saturates symmetrically: the lowest code is left out, as the specification allows.
    Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3.4 and 6.3; MASE's `mxint`.
    """

    width: int
    block_size: tuple[int, ...] = (32,)
    rounding: str = "nearest"

    name: ClassVar[str] = "mxint"

    def __post_init__(self) -> None:
        check(self, "width", 2, 24)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)

    @property
    def bits(self) -> float:
        """The width, and a share of the scale."""
        return self.width + shared_bits(8, self.block_size)

    @property
    def range(self) -> Range:
        """Of blocks with the lowest and with the highest scale."""
        step = 2.0 ** (2 - self.width)
        return Range(-(2.0 - step) * 2.0 ** SCALES[1], (2.0 - step) * 2.0 ** SCALES[1], step * 2.0 ** SCALES[0])

    def nearest(self, values: Tensor) -> Tensor:
        """Block by block."""
        return blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        steps = shared_scale(largest, 0) * 2.0 ** (2 - self.width)
        highest = steps * ((1 << (self.width - 1)) - 1)
        return to_steps(torch.minimum(torch.maximum(block, -highest), highest), steps, self.rounding)


def shared_scale(largest: Tensor, element: int) -> Tensor:
    """A block's scale, a power of two. element: the exponent of the largest power of two that an element can be."""
    # Subnormal numbers and zeros, which have no binade, get the smallest scale in any case.
    return binade(largest).mul_(2.0**-element).clamp_(2.0 ** SCALES[0], 2.0 ** SCALES[1])
