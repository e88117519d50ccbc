"""Exact rounding of float32 and float64 tensors, on meta or real: it only multiplies by powers of two."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

#: nearest: half to even.  floor: towards minus infinity.  stochastic: up with a probability equal to the fraction.
ROUNDINGS = ("nearest", "floor", "stochastic")


def to_whole_(values: Tensor, rounding: str = "nearest") -> Tensor:
    """Round to whole numbers in place; NaN stays."""
    if rounding == "nearest":
        return values.round_()
    if rounding == "floor":
        return values.floor_()
    low = values.floor()
    return values.sub_(low).gt_(torch.rand_like(low)).add_(low)


def to_grid_(values: Tensor, fraction_width: int, rounding: str = "nearest") -> Tensor:
    """Round to multiples of 2**-fraction_width, in place."""
    return to_whole_(values.mul_(2.0**fraction_width), rounding).mul_(2.0**-fraction_width)


def to_steps(values: Tensor, steps: Tensor, rounding: str = "nearest") -> Tensor:
    """Round to multiples of `steps`, which are powers of two."""
    return to_whole_(values / steps, rounding).mul_(steps)


def exponent_of(values: Tensor) -> Tensor:
    """floor(log2(|x|)) as int32; for 0 an arbitrary number, which the caller clamps from below."""
    return torch.frexp(values).exponent - 1


#: Element type -> the integer type of the same width, and the position of the exponent in it.
_EXPONENTS = {torch.float32: (torch.int32, 0xFF << 23), torch.float64: (torch.int64, 0x7FF << 52)}


#: The exponent of the smallest normal float32.
_LOWEST = -126


def binade_of(values: Tensor) -> Tensor:
    """2**floor(log2(|x|)); 0 for subnormal numbers. frexp and ldexp take twenty times as long."""
    integers, exponents = _EXPONENTS[values.dtype]
    return (values.view(integers) & exponents).view(values.dtype)


def power_of_two(exponents: Tensor, like: Tensor) -> Tensor:
    """2**exponents, in the element type of `like`."""
    return torch.ldexp(torch.ones_like(exponents, dtype=like.dtype), exponents)


def make_finite(values: Tensor, nan: float) -> Tensor:
    """Replace infinities by the largest finite values, and NaN by `nan`."""
    return torch.nan_to_num(values, nan=nan)


def clamp_to_range(values: Tensor, lowest: float, highest: float) -> Tensor:
    """Clamp to the range, ends included; an end that the element type cannot hold becomes the next value inside."""
    return values.clamp(-_largest_inside(-lowest, values.dtype), _largest_inside(highest, values.dtype))


@lru_cache(maxsize=1024)
def _largest_inside(highest: float, dtype: torch.dtype) -> float:
    """The largest value of an element type that is not above `highest`."""
    with torch.device("cpu"):
        held = torch.tensor(highest, dtype=torch.float64).to(dtype)
    if float(held) > highest:
        held = torch.nextafter(held, torch.tensor(-math.inf, dtype=dtype))
    return float(held)


def to_float(
    values: Tensor,
    mantissa_width: int,
    lowest_exponent: int | Tensor,
    highest: float | Tensor,
    rounding: str = "nearest",
) -> Tensor:
    """Round to a binary floating-point format with subnormals, saturating at `highest`.

    lowest_exponent: the lowest exponent of normal values; at least -126 if it is a tensor. Smaller values keep its
    step.
    """
    if isinstance(highest, Tensor):
        limited = torch.minimum(torch.maximum(values, -highest), highest)
    else:
        limited = values.clamp(-highest, highest)
    if isinstance(lowest_exponent, int) and lowest_exponent < _LOWEST:
        # The element type's own subnormal numbers: their binade is computed from the value, not from exponent bits.
        binades = power_of_two(exponent_of(limited).clamp_(min=lowest_exponent), values)
    elif isinstance(lowest_exponent, Tensor):
        binades = torch.maximum(binade_of(limited), power_of_two(lowest_exponent, values))
    else:
        binades = binade_of(limited).clamp_(min=2.0**lowest_exponent)
    steps = binades.mul_(2.0**-mantissa_width)
    return to_whole_(limited.div_(steps), rounding).mul_(steps)


def to_powers(values: Tensor, lowest_exponent: int | Tensor, highest_exponent: int | Tensor) -> Tensor:
    """The nearest signed powers of two on a logarithmic scale; 0 if more than half an exponent below the lowest one."""
    fraction, raw = torch.frexp(values)
    above = fraction.abs() >= _smallest_above_root_half(values.dtype)
    exponents = torch.where(above, raw, raw - 1)
    lowest = torch.as_tensor(lowest_exponent, dtype=torch.int32, device=values.device)
    highest = torch.as_tensor(highest_exponent, dtype=torch.int32, device=values.device)
    highest = torch.broadcast_to(highest, exponents.shape)
    exponents = torch.where(values.isinf(), highest, exponents)
    powers = power_of_two(torch.minimum(exponents, highest), values)
    vanishing = (exponents < lowest) | (values == 0)
    rounded = torch.where(vanishing, torch.zeros_like(values), torch.copysign(powers, values))
    return torch.where(values.isnan(), values, rounded)


@lru_cache(maxsize=8)
def _smallest_above_root_half(dtype: torch.dtype) -> float:
    """The smallest value of an element type above the square root of one half, which is no value itself."""
    with torch.device("cpu"):
        root = torch.tensor(0.5, dtype=torch.float64).sqrt().to(dtype)
        below = float(root) ** 2 <= 0.5 if dtype is torch.float32 else False
        return float(torch.nextafter(root, torch.tensor(1.0, dtype=dtype)) if below else root)
