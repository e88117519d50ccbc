"""Element by element: `rtl/fixed_add.sv`, `rtl/fixed_multiply.sv`, `rtl/fixed_table.sv`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.requantise import requantise

#: A table has a word for each integer; beyond this many bits it is larger than any memory that a layer should take.
WIDEST_TABLE = 16


def add(
    first: Tensor,
    second: Tensor,
    formats: tuple[FixedPoint, FixedPoint],
    out: FixedPoint,
    *,
    subtract: bool = False,
    floor: bool = False,
    relu: bool = False,
) -> Tensor:
    """first + second, or their difference, of integers in two formats: exact, then requantised; broadcasts, int64."""
    fraction = max(each.fraction_width for each in formats)
    left, right = (
        values << (fraction - each.fraction_width) for values, each in zip((first, second), formats, strict=True)
    )
    return requantise(left - right if subtract else left + right, fraction, out, floor=floor, relu=relu)


def multiply(
    first: Tensor,
    second: Tensor,
    formats: tuple[FixedPoint, FixedPoint],
    out: FixedPoint,
    *,
    floor: bool = False,
    relu: bool = False,
) -> Tensor:
    """first * second of integers in two formats: exact, then requantised; broadcasts, int64."""
    fraction = sum(each.fraction_width for each in formats)
    return requantise(first * second, fraction, out, floor=floor, relu=relu)


def table(function: Callable[[Tensor], Tensor], data: FixedPoint, out: FixedPoint) -> Tensor:
    """The words of a table of a function, int64: for the integers 0, 1, ... of `data`, then for its negative ones.

    The function is computed in float64 and its values rounded once.
    ValueError: more than 16 bits of input, or a value that is NaN.
    """
    if data.width > WIDEST_TABLE:
        raise ValueError(
            f"a table for {data} has 2**{data.width} words; quantise to {WIDEST_TABLE} bits or fewer first"
        )
    addresses = torch.arange(1 << data.width)
    integers = _signed(addresses, data.width) if data.is_signed else addresses
    return out.encode(function(data.decode(integers)))


def look_up(values: Tensor, words: Tensor) -> Tensor:
    """The table's word for each integer."""
    return words.index_select(0, (values & (len(words) - 1)).flatten()).reshape(values.shape)


def _signed(addresses: Tensor, width: int) -> Tensor:
    return torch.where(addresses < 1 << (width - 1), addresses, addresses - (1 << width))
