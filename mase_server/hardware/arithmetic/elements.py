"""Arithmetic element by element: `rtl/fixed_add.sv`, `rtl/fixed_multiply.sv`, `rtl/fixed_table.sv`, and the conversion
between fixed-point formats: `rtl/fixed_requantise.sv`, `rtl/fixed_cast.sv`; to blocks that share an exponent:
`rtl/mxint_cast.sv`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint

#: The widest input of a table, which has a word for each integer: a wider one needs more memory than a layer should
#: use.
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
    """The words of a function's table, int64: for the integers 0, 1, ... of `data`, then for its negative ones.

    The function is computed in float64 and its values are rounded once.
    ValueError: more than 16 bits of input, or a value that is NaN.
    """
    if data.width > WIDEST_TABLE:
        raise ValueError(
            f"a table for {data} has 2**{data.width} words; quantise to {WIDEST_TABLE} bits or fewer first"
        )
    addresses = torch.arange(1 << data.width)
    integers = _sign_addresses(addresses, data.width) if data.is_signed else addresses
    return out.encode(function(data.decode(integers)))


def look_up(values: Tensor, words: Tensor) -> Tensor:
    """The table's word for each integer."""
    return words.index_select(0, (values & (len(words) - 1)).flatten()).reshape(values.shape)


def _sign_addresses(addresses: Tensor, width: int) -> Tensor:
    return torch.where(addresses < 1 << (width - 1), addresses, addresses - (1 << width))


# Conversion from one fixed-point format to another: `rtl/fixed_requantise.sv`, `rtl/fixed_cast.sv`.

#: Integers up to this size are shifted and rounded without overflow.
LARGEST = 1 << 62
#: Quotients of numerators below this are rounded correctly when computed in doubles: a quotient other than k + 1/2
#: differs from it by at least half of the denominator's reciprocal, which is more than the error of the division.
_DIVIDED = 1 << 52


def requantise(
    values: Tensor, fraction_width: int, to: FixedPoint, *, floor: bool = False, relu: bool = False
) -> Tensor:
    """Convert integers with `fraction_width` bits after the point to format `to`, int64, any shape.

    Rounds half to even, or down with `floor`; then saturates, with `relu` at 0 below.
    ValueError: `to` is unsigned, which no component is, or a value is beyond 2**62.
    """
    _check_range(values, to)
    low, high = to.integers
    shift = fraction_width - to.fraction_width
    if shift <= 0:
        return _shifted_left(values, -shift, 0 if relu else low, high)
    rounded = values >> min(shift, 63) if floor else _half_to_even(values, shift)
    return rounded.clamp(0 if relu else low, high)


def _check_range(values: Tensor, to: FixedPoint) -> None:
    if not to.is_signed:
        raise ValueError(f"{to} is unsigned; the hardware computes with signed numbers: fixed({to.width + 1},...)")
    if _largest_magnitude(values) > LARGEST:
        raise ValueError(f"the integer {int(values.abs().max())} is beyond 2**62; give the accumulator fewer bits")


def _largest_magnitude(values: Tensor) -> int:
    """The largest magnitude; 0 for an empty tensor."""
    if not values.numel():
        return 0
    low, high = torch.aminmax(values)
    return max(-int(low), int(high))


def _half_to_even(values: Tensor, shift: int) -> Tensor:
    if shift > 62:  # at most half of 2**62 remains, and half rounds to the even 0
        return torch.zeros_like(values)
    is_odd = (values >> shift).bitwise_and_(1)
    return is_odd.add_(values).add_((1 << (shift - 1)) - 1).bitwise_right_shift_(shift)


def _shifted_left(values: Tensor, shift: int, low: int, high: int) -> Tensor:
    """Shift left with saturation, without ever shifting a value that would not fit."""
    shift = min(shift, 63)
    inside = values.clamp(-(-low >> shift), high >> shift)
    return torch.where(values > inside, high, torch.where(values < inside, low, inside << shift))


# Blocks of numbers that share an exponent: `rtl/mxint_cast.sv`.


def blocks_format(before: FixedPoint, mantissa_width: int) -> FixedPoint:
    """The format of numbers that were rounded to blocks: a number that is rounded up may need one more bit."""
    return FixedPoint(before.width + int(mantissa_width <= before.width), before.fraction_width)


def round_blocks(values: Tensor, mantissa_width: int, block: int) -> Tensor:
    """Round each block of the last dimension to integers of `mantissa_width` bits times a power of two, int64.

    With 2**k the power at or below a block's largest magnitude, all numbers of the block become multiples of
    2**max(0, k - mantissa_width + 2), half to even, and saturate symmetrically.
    values: below 2**53; `block` divides their last dimension.
    """
    blocks = values.reshape(*values.shape[:-1], -1, block)
    exponents = torch.frexp(blocks.abs().amax(-1, keepdim=True).double()).exponent - 1
    shift = (exponents.long() - (mantissa_width - 2)).clamp(min=0)
    highest = (1 << (mantissa_width - 1)) - 1
    below = torch.where(shift > 0, ((1 << shift) >> 1) - 1 + ((blocks >> shift) & 1), 0)
    return (((blocks + below) >> shift).clamp_(-highest, highest) << shift).reshape(values.shape)


def divide(numerator: Tensor, denominator: Tensor | int) -> Tensor:
    """numerator / denominator, the latter above 0, rounded half to even, int64: `rtl/fixed_divide.sv`."""
    if _largest_magnitude(numerator) < _DIVIDED:
        return (numerator.double() / denominator).round_().to(torch.int64)
    quotient = torch.div(numerator, denominator, rounding_mode="floor")
    twice = 2 * (numerator - quotient * denominator)
    up = (twice > denominator) | ((twice == denominator) & (quotient & 1).bool())
    return quotient + up
