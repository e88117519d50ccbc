"""Integers rounded to floating point of a few bits; the results are integers again: `rtl/minifloat_cast.sv`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.formats.blocks import BlockMinifloat
from mase_server.formats.fixed import FixedPoint
from mase_server.formats.minifloat import MinifloatDenorm, MinifloatIeee


@dataclass(frozen=True, slots=True)
class Floats:
    """The rounding of a stream's integers to floating point.

    mantissa_width: bits of a number, the leading one included.  tops: the lowest and the highest exponent of the step
    of the largest numbers, in steps of the stream; they only differ if a block's largest number determines it.
    span: the exponent of the smallest numbers' step is so much lower.  No step is below that of the stream.
    """

    mantissa_width: int
    tops: tuple[int, int]
    span: int

    @classmethod
    def fitting(cls, format: MinifloatIeee | MinifloatDenorm | BlockMinifloat, before: FixedPoint) -> Floats:
        """The rounding of a stream to a format."""
        mantissa = format.mantissa_width
        if isinstance(format, BlockMinifloat):
            codes = (1 << format.exponent_width) - 1
            low, high = format.biases
            highest, span = (codes - high, codes - low), codes - 1
        else:
            low, high = format.exponents
            highest, span = (high, high), high - low
            if isinstance(format, MinifloatDenorm):  # 0.1xx is 1.xx of the exponent below
                mantissa, highest = mantissa - 1, (high - 1, high - 1)
        low, high = (each + before.fraction_width - mantissa for each in highest)
        return cls(mantissa + 1, (low, high), span)

    def missing(self, before: FixedPoint) -> int:
        """The bits after the point that a stream lacks for the highest number of the format; 0 if none can be
        reached."""
        return -self.tops[1] if -self.tops[1] > 0 and self.tops[1] + self.mantissa_width < before.width else 0

    def is_exact(self, before: FixedPoint) -> bool:
        """Does the format hold all numbers of a stream?"""
        low, high = self.tops
        return before.width <= self.mantissa_width and low <= self.span and high + self.mantissa_width >= before.width

    def dropped(self, before: FixedPoint) -> int:
        """The lowest bits of results that are always zero."""
        return min(max(self.tops[0] - self.span, 0), before.width)

    def out(self, before: FixedPoint) -> FixedPoint:
        """The format of results. A number that is rounded up may need one more bit than the stream has."""
        width, dropped = min(before.width, self.mantissa_width + max(self.tops[1], 0)) + 1, self.dropped(before)
        return FixedPoint(max(2, width - dropped), before.fraction_width - dropped)


def round_floats(values: Tensor, floats: Floats, block: int = 0) -> Tensor:
    """Round integers to floating point, int64: to multiples of a number's step, half to even, with saturation.

    The step leaves the number `mantissa_width` bits, but is no less than the smallest numbers' one.
    values: below 2**53.  block: 0, or the numbers along the last dimension whose largest one determines the largest
    step.
    """
    blocks = values.reshape(*values.shape[:-1], -1, block or values.shape[-1])
    low, high = (max(each, 0) for each in floats.tops)
    own = _own_steps(blocks, floats)
    top = _own_steps(blocks.abs().amax(-1, keepdim=True), floats).clamp(low, high)
    step = torch.minimum(torch.maximum(own, top - floats.span), top)
    shift = step.clamp(max=62)  # zeros are left of all numbers
    below = torch.where(shift > 0, ((1 << shift) >> 1) - 1 + ((blocks >> shift) & 1), 0)
    mantissas, highest = (blocks + below) >> shift, (1 << floats.mantissa_width) - 1
    limited = torch.where(step == top, mantissas.clamp(-highest, highest), mantissas)
    return (limited << shift).reshape(values.shape)


def _own_steps(values: Tensor, floats: Floats) -> Tensor:
    """The exponents of the steps that leave numbers the bits of a mantissa."""
    return (torch.frexp(values.double()).exponent.long() - floats.mantissa_width).clamp(min=0)
