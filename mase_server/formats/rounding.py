"""Rounding on meta or real float32 and float64 tensors, exact: only powers of two are multiplied with."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

#: nearest: half to even.  floor: down, towards minus infinity.  stochastic: up with the probability of what is over.
ROUNDINGS = ("nearest", "floor", "stochastic")


def to_whole_(values: Tensor, rounding: str = "nearest") -> Tensor:
    """Whole numbers, in place; NaN stays."""
    if rounding == "nearest":
        return values.round_()
    if rounding == "floor":
        return values.floor_()
    low = values.floor()
    return values.sub_(low).gt_(torch.rand_like(low)).add_(low)


def to_grid_(values: Tensor, fraction_width: int, rounding: str = "nearest") -> Tensor:
    """Multiples of 2**-fraction_width, in place."""
    return to_whole_(values.mul_(2.0**fraction_width), rounding).mul_(2.0**-fraction_width)


def to_steps(values: Tensor, steps: Tensor, rounding: str = "nearest") -> Tensor:
    """Multiples of `steps`, which are powers of two."""
    return to_whole_(values / steps, rounding).mul_(steps)


def exponent(values: Tensor) -> Tensor:
    """floor(log2(|x|)), an int32 tensor; for 0 some number: the caller's floor decides."""
    return torch.frexp(values).exponent - 1


#: Element type -> the integers of as many bits, and where the exponent is in them.
_EXPONENTS = {torch.float32: (torch.int32, 0xFF << 23), torch.float64: (torch.int64, 0x7FF << 52)}


#: The exponent of the smallest normal float32.
_LOWEST = -126


def binade(values: Tensor) -> Tensor:
    """2**floor(log2(|x|)); 0 for subnormal numbers. frexp and ldexp take twenty times as long."""
    integers, exponents = _EXPONENTS[values.dtype]
    return (values.view(integers) & exponents).view(values.dtype)


def power_of_two(exponents: Tensor, like: Tensor) -> Tensor:
    """2**exponent, in the element type of `like`."""
    return torch.ldexp(torch.ones_like(exponents, dtype=like.dtype), exponents)


def finite(values: Tensor, nan: float) -> Tensor:
    """Infinities as the largest finite values, and NaN as `nan`."""
    return torch.nan_to_num(values, nan=nan)


def clamp(values: Tensor, lowest: float, highest: float) -> Tensor:
    """Into the range, ends included; an end that the element type cannot hold becomes the next one inside."""
    return values.clamp(-_inside(-lowest, values.dtype), _inside(highest, values.dtype))


@lru_cache(maxsize=1024)
def _inside(highest: float, dtype: torch.dtype) -> float:
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
    """Values of a binary floating-point format with subnormals, saturated at `highest`.

    lowest_exponent: that of the normal values; a tensor's at least -126; below it the steps stay as they are there.
    """
    if isinstance(highest, Tensor):
        limited = torch.minimum(torch.maximum(values, -highest), highest)
    else:
        limited = values.clamp(-highest, highest)
    if isinstance(lowest_exponent, int) and lowest_exponent < _LOWEST:
        # Subnormal numbers of the carrier have a binade only by their value.
        binades = power_of_two(exponent(limited).clamp_(min=lowest_exponent), values)
    elif isinstance(lowest_exponent, Tensor):
        binades = torch.maximum(binade(limited), power_of_two(lowest_exponent, values))
    else:
        binades = binade(limited).clamp_(min=2.0**lowest_exponent)
    steps = binades.mul_(2.0**-mantissa_width)
    return to_whole_(limited.div_(steps), rounding).mul_(steps)


def to_powers(values: Tensor, lowest_exponent: int | Tensor, highest_exponent: int | Tensor) -> Tensor:
    """The nearest signed powers of two on a logarithmic scale; 0 from half an exponent below the lowest one."""
    fraction, raw = torch.frexp(values)
    above = fraction.abs() >= _middle(values.dtype)
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
def _middle(dtype: torch.dtype) -> float:
    """The smallest value of an element type above the square root of one half; no value is the root itself."""
    with torch.device("cpu"):
        root = torch.tensor(0.5, dtype=torch.float64).sqrt().to(dtype)
        below = float(root) ** 2 <= 0.5 if dtype is torch.float32 else False
        return float(torch.nextafter(root, torch.tensor(1.0, dtype=dtype)) if below else root)
