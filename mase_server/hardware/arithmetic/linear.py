"""Sums of products with fixed weights: `rtl/fixed_linear.sv`, and layers that read their own last result:
`rtl/fixed_recurrent.sv`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import look_up, requantise, table

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


# GRU and LSTM: a linear layer of the last result, and gates.

#: Of gates and results, which are at most one; and of the sums that make a gate's argument, and an LSTM's cell.
GATES, SUMS = FixedPoint(16, 14), FixedPoint(16, 11)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """The formats of a recurrent layer. is_lstm: else it is a GRU.

    hidden: of the last result, as it is multiplied.  parts: of the two sums that make a gate's argument.
    argument: bits of the index into the tables.  unit: of gates and results.  cell: of an LSTM's cell.
    """

    is_lstm: bool
    hidden: FixedPoint
    weight: FixedPoint
    bias: FixedPoint | None
    parts: FixedPoint = SUMS
    argument: int = 11
    unit: FixedPoint = GATES
    cell: FixedPoint = SUMS

    @classmethod
    def fitting(cls, is_lstm: bool, width: int, weight: FixedPoint, bias: FixedPoint | None) -> Recurrent:
        """The layer whose last result is multiplied with so many bits; tables have three more, but at most 14."""
        return cls(is_lstm, FixedPoint(width, width - 1), weight, bias, argument=min(width + 3, 14))

    @property
    def gates(self) -> int:
        """Gates of a unit: reset, update and new, or input, forget, cell and output."""
        return 4 if self.is_lstm else 3

    @property
    def sigmoid_argument(self) -> FixedPoint:
        """Numbers from -8 to 8."""
        return FixedPoint(self.argument, self.argument - 4)

    @property
    def tanh_argument(self) -> FixedPoint:
        """Numbers from -4 to 4."""
        return FixedPoint(self.argument, self.argument - 3)

    @property
    def sigmoid_words(self) -> Tensor:
        """The table of the sigmoid function."""
        return table(torch.sigmoid, self.sigmoid_argument, self.unit)

    @property
    def tanh_words(self) -> Tensor:
        """The table of the hyperbolic tangent."""
        return table(torch.tanh, self.tanh_argument, self.unit)


def recurrent(parts: Tensor, weight: Tensor, bias: Tensor | None, formats: Recurrent) -> Tensor:
    """The results of a GRU or an LSTM, [N, steps, units], int64, from a state of zeros.

    parts: what the input adds to the gates, [N, steps, units * gates], the gates of a unit side by side in torch's
    order; so are the rows of the weight [units * gates, units], and the bias.
    """
    affine = Affine(formats.hidden, formats.weight, formats.bias, formats.parts)
    sigmoid, tanh = formats.sigmoid_words, formats.tanh_words
    gates = _lstm_step if formats.is_lstm else _gru_step
    shown = state = torch.zeros(len(parts), weight.shape[1], dtype=torch.int64)
    found = []
    for step in parts.unbind(1):
        hidden = requantise(shown, formats.unit.fraction_width, formats.hidden)
        products = linear(hidden, weight, bias, affine)
        pairs = (each.reshape(len(each), -1, formats.gates).unbind(-1) for each in (step, products))
        shown, state = gates(list(zip(*pairs, strict=True)), state, (sigmoid, tanh), formats)
        found.append(shown)
    return torch.stack(found, 1)


_Step = tuple[Tensor, Tensor]


def _gru_step(gates: list[_Step], state: Tensor, tables: _Step, formats: Recurrent) -> _Step:
    (reset, update, (new, kept)), (sigmoid, tanh) = gates, tables
    fraction, unit = formats.parts.fraction_width, formats.unit.fraction_width
    r, z = (look_up(requantise(a + b, fraction, formats.sigmoid_argument), sigmoid) for a, b in (reset, update))
    n = look_up(requantise((new << unit) + r * kept, fraction + unit, formats.tanh_argument), tanh)
    state = requantise((n << unit) + z * (state - n), 2 * unit, formats.unit)
    return state, state


def _lstm_step(gates: list[_Step], state: Tensor, tables: _Step, formats: Recurrent) -> _Step:
    sums, (sigmoid, tanh) = [a + b for a, b in gates], tables
    fraction, unit, cell = formats.parts.fraction_width, formats.unit.fraction_width, formats.cell.fraction_width
    i, f, o = (look_up(requantise(sums[gate], fraction, formats.sigmoid_argument), sigmoid) for gate in (0, 1, 3))
    g = look_up(requantise(sums[2], fraction, formats.tanh_argument), tanh)
    most = max(unit, cell)
    total = ((f * state) << (most - cell)) + ((i * g) << (most - unit))
    state = requantise(total, unit + most, formats.cell)
    return requantise(o * look_up(requantise(state, cell, formats.tanh_argument), tanh), 2 * unit, formats.unit), state
