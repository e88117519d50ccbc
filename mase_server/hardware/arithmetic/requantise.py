"""From one fixed-point format into another: `rtl/fixed_requantise.sv`, `rtl/fixed_cast.sv`."""

from __future__ import annotations

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint

#: Integers up to this size are shifted and rounded without overflow.
LARGEST = 1 << 62
#: Quotients of smaller numerators are rounded right when doubles are: one that is not k + 1/2 is at least half of a
#: denominator's reciprocal away from it, which is more than the error of the division.
_DIVIDED = 1 << 52


def requantise(
    values: Tensor, fraction_width: int, to: FixedPoint, *, floor: bool = False, relu: bool = False
) -> Tensor:
    """The integers in format `to` of integers with `fraction_width` bits after the point, int64, any shape.

    Rounds half to even, or down with `floor`; then saturates, with `relu` at 0 below.
    ValueError: `to` is unsigned, which no component is, or a value is beyond 2**62.
    """
    _check(values, to)
    low, high = to.integers
    shift = fraction_width - to.fraction_width
    if shift <= 0:
        return _shifted_left(values, -shift, 0 if relu else low, high)
    rounded = values >> min(shift, 63) if floor else _half_to_even(values, shift)
    return rounded.clamp(0 if relu else low, high)


def _check(values: Tensor, to: FixedPoint) -> None:
    if not to.is_signed:
        raise ValueError(f"{to} is unsigned; the hardware computes with signed numbers: fixed({to.width + 1},...)")
    if _largest(values) > LARGEST:
        raise ValueError(f"the integer {int(values.abs().max())} is beyond 2**62; give the accumulator fewer bits")


def _largest(values: Tensor) -> int:
    """The largest magnitude; 0 of nothing."""
    if not values.numel():
        return 0
    low, high = torch.aminmax(values)
    return max(-int(low), int(high))


def _half_to_even(values: Tensor, shift: int) -> Tensor:
    if shift > 62:  # at most one half remains of 2**62, and half rounds to the even 0
        return torch.zeros_like(values)
    is_odd = (values >> shift).bitwise_and_(1)
    return is_odd.add_(values).add_((1 << (shift - 1)) - 1).bitwise_right_shift_(shift)


def _shifted_left(values: Tensor, shift: int, low: int, high: int) -> Tensor:
    """Saturated without ever shifting a value that does not fit."""
    shift = min(shift, 63)
    inside = values.clamp(-(-low >> shift), high >> shift)
    return torch.where(values > inside, high, torch.where(values < inside, low, inside << shift))


def divide(numerator: Tensor, denominator: Tensor | int) -> Tensor:
    """numerator / denominator, the latter above 0, rounded half to even, int64: `rtl/fixed_divide.sv`."""
    if _largest(numerator) < _DIVIDED:
        return (numerator.double() / denominator).round_().to(torch.int64)
    quotient = torch.div(numerator, denominator, rounding_mode="floor")
    twice = 2 * (numerator - quotient * denominator)
    up = (twice > denominator) | ((twice == denominator) & (quotient & 1).bool())
    return quotient + up
