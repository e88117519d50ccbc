"""Microscaling formats (OCP MX): small floating-point numbers or integers times a power of two for each block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mase_server.formats.blocks import check_block, round_blockwise, shared_bits
from mase_server.formats.format import FormatParameters, NumberFormat, Range, check_rounding, check_whole_number
from mase_server.formats.rounding import binade_of, to_float, to_steps

#: (width, exponent_width) of the specification's element types -> the highest value, and the bias.
ELEMENTS: dict[tuple[int, int], tuple[float, int]] = {
    (8, 5): (57344.0, 15),
    (8, 4): (448.0, 7),
    (6, 3): (28.0, 3),
    (6, 2): (7.5, 1),
    (4, 2): (6.0, 1),
}


@dataclass(frozen=True, slots=True)
class MxFloat(NumberFormat):
    """FP8 (E5M2, E4M3), FP6 (E3M2, E2M3) or FP4 (E2M1) elements, times a power of two for each block.

    width, exponent_width: of an element, one of (8,5) (8,4) (6,3) (6,2) (4,2).  block_size: elements that share a
    scale, over the last dimensions.  The scale is 2**(floor(log2(largest magnitude)) - the element type's highest
    exponent), in 8 bits.  rounding: as of `FixedPoint`.  Saturates.
    Source: OCP Microscaling Formats (MX) Specification 1.0, sections 5.3 and 6.3; MASE's `mxfp`.
    """

    width: int
    exponent_width: int
    block_size: tuple[int, ...] = (32,)
    rounding: str = "nearest"

    name: ClassVar[str] = "mxfp"
    further_keys: ClassVar[tuple[str, ...]] = ("frac_width",)

    def __post_init__(self) -> None:
        if (self.width, self.exponent_width) not in ELEMENTS:
            known = " ".join(f"({width},{exponent})" for width, exponent in ELEMENTS)
            raise ValueError(
                f"mxfp: no element type has width {self.width!r}, exponent {self.exponent_width!r}: {known}"
            )
        check_whole_number(self, "width", 4, 8)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)

    @classmethod
    def of_keys(cls, values: FormatParameters, given: Mapping[str, Any]) -> FormatParameters:
        """The parameters. MASE gives the widths of exponent and fraction but not the element's width; ValueError if
        they differ."""
        fraction, exponent = given.get("frac_width"), values.get("exponent_width")
        if type(fraction) is not int or type(exponent) is not int:
            return values
        width = 1 + exponent + fraction
        if values.get("width", width) != width:
            told = f"width is {values['width']!r}, but exponent_width and frac_width make {width}"
            raise ValueError(f"mxfp: {told}; leave out one of them")
        return {**values, "width": width}

    @property
    def mantissa_width(self) -> int:
        """Bits of an element's mantissa, without the hidden one."""
        return self.width - 1 - self.exponent_width

    @property
    def bits(self) -> float:
        """The width plus a share of the scale."""
        return self.width + shared_bits(8, self.block_size)

    @property
    def range(self) -> Range:
        """The range over blocks with the lowest and with the highest scale, as far as float32 holds it."""
        highest, bias = ELEMENTS[self.width, self.exponent_width]
        top = min(highest * 2.0 ** SCALES[1], (2.0 - 2.0**-23) * 2.0**127)
        return Range(-top, top, 2.0 ** (SCALES[0] + 1 - bias - self.mantissa_width))

    def nearest(self, values: Tensor) -> Tensor:
        """Round block by block."""
        return round_blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        highest, bias = ELEMENTS[self.width, self.exponent_width]
        _, top = _split_exponent(highest)
        scale = shared_scale(largest, top)
        # Dividing by the scale is exact; the quotients are elements of one small floating-point format.
        return to_float(block / scale, self.mantissa_width, 1 - bias, highest, self.rounding).mul_(scale)


def _split_exponent(value: float) -> tuple[float, int]:
    """Split a value into a fraction in [1, 2) and an exponent."""
    exponent = 0
    while value >= 2:
        value, exponent = value / 2, exponent + 1
    return value, exponent


# Microscaling integers.

#: The lowest and highest exponent of an E8M0 scale.
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
        check_whole_number(self, "width", 2, 24)
        check_block(self, self.block_size)
        check_rounding(self, self.rounding)

    @property
    def bits(self) -> float:
        """The width plus a share of the scale."""
        return self.width + shared_bits(8, self.block_size)

    @property
    def range(self) -> Range:
        """The range over blocks with the lowest and with the highest scale."""
        step = 2.0 ** (2 - self.width)
        return Range(-(2.0 - step) * 2.0 ** SCALES[1], (2.0 - step) * 2.0 ** SCALES[1], step * 2.0 ** SCALES[0])

    def nearest(self, values: Tensor) -> Tensor:
        """Round block by block."""
        return round_blockwise(values, self.block_size, self._rounded)

    def _rounded(self, block: Tensor, largest: Tensor) -> Tensor:
        steps = shared_scale(largest, 0) * 2.0 ** (2 - self.width)
        highest = steps * ((1 << (self.width - 1)) - 1)
        return to_steps(torch.minimum(torch.maximum(block, -highest), highest), steps, self.rounding)


def shared_scale(largest: Tensor, element: int) -> Tensor:
    """A block's scale, a power of two. element: the exponent of the largest power of two that an element can hold."""
    # Subnormal numbers and zeros, which have no binade, get the smallest scale.
    return binade_of(largest).mul_(2.0**-element).clamp_(2.0 ** SCALES[0], 2.0 ** SCALES[1])
