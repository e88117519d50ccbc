"""Sums of products with fixed weights: `rtl/fixed_linear.sv`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import requantise

#: Doubles hold every integer below this, so a product of matrices that stays below it is exact in them.
EXACT = 1 << 53
_EXACT_SINGLE = 1 << 24


@dataclass(frozen=True, slots=True)
class Affine:
    """The formats of activation(x @ weight.T + bias), which determine its arithmetic and so its hardware.

    bias: None without one.  floor: round down instead of half to even.  relu: the activation is ReLU.
    """

    data: FixedPoint
    weight: FixedPoint
    bias: FixedPoint | None
    out: FixedPoint
    floor: bool = False
    relu: bool = False

    @property
    def product_fraction(self) -> int:
        """Bits after the point of a product."""
        return self.data.fraction_width + self.weight.fraction_width

    @property
    def accumulator_fraction(self) -> int:
        """Bits after the point of the sum: it keeps all bits of products and bias."""
        return self.product_fraction if self.bias is None else max(self.product_fraction, self.bias.fraction_width)

    def accumulator_width(self, length: int) -> int:
        """Bits of the sum of `length` products and the bias, sign included: it cannot overflow.

        Only the product of the two lowest factors uses the top bit of a product's width, so a shorter bias fits as
        well.
        """
        products = (
            self.data.width
            + self.weight.width
            + _bits_of_count(length)
            + self.accumulator_fraction
            - self.product_fraction
        )
        if self.bias is None:
            return products
        return max(products, self.bias.width + self.accumulator_fraction - self.bias.fraction_width + 1)

    def check(self, length: int) -> None:
        """Raise ValueError if the sum of `length` products needs more than 63 bits."""
        if (width := self.accumulator_width(length)) > 63:
            raise ValueError(f"a sum of {length} products needs {width} bits, more than 63: use narrower formats")


def linear(values: Tensor, weight: Tensor, bias: Tensor | None, formats: Affine) -> Tensor:
    """activation(values @ weight.T + bias) in integers: [..., in], [out, in], [out] -> [..., out], int64.

    The sum is exact; it is rounded once, at the end.
    ValueError: the sum needs more than 63 bits.
    """
    formats.check(values.shape[-1])
    return finish_products(exact_product(values, weight.T, formats.accumulator_width(values.shape[-1])), bias, formats)


def matmul(first: Tensor, second: Tensor, formats: Affine) -> Tensor:
    """first @ second.T in integers: [..., rows, in], [..., out, in] -> [..., rows, out], int64; as `linear`, no bias.

    formats: `weight` is the format of `second`.  ValueError: a sum needs more than 63 bits.
    """
    length = first.shape[-1]
    formats.check(length)
    return finish_products(
        exact_product(first, second.transpose(-1, -2), formats.accumulator_width(length)), None, formats
    )


def finish_products(products: Tensor, bias: Tensor | None, formats: Affine) -> Tensor:
    """Add the bias [out] to sums of products [..., out], and requantise: the last step after all multiplications."""
    shift = formats.accumulator_fraction - formats.product_fraction
    total = products << shift if shift else products
    if bias is not None and formats.bias is not None:
        total = total + (bias << (formats.accumulator_fraction - formats.bias.fraction_width))
    return requantise(total, formats.accumulator_fraction, formats.out, floor=formats.floor, relu=formats.relu)


def exact_product(first: Tensor, second: Tensor, width: int) -> Tensor:
    """The exact product of integer matrices whose sums of products have `width` bits, int64; computed in floats if
    exact."""
    largest, singles = 1 << (width - 1), torch.get_float32_matmul_precision() == "highest"
    if largest <= EXACT:
        dtype = torch.float32 if singles and largest <= _EXACT_SINGLE else torch.float64
        return (first.to(dtype) @ second.to(dtype)).to(torch.int64)
    return first @ second


def _bits_of_count(count: int) -> int:
    """The number of bits by which a sum of `count` equal numbers is longer than one of them."""
    return max(count - 1, 0).bit_length()
