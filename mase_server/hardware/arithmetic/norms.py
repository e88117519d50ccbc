"""Layer norm and RMS norm: `rtl/fixed_norm.sv`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import divide, requantise


@dataclass(frozen=True, slots=True)
class Norm:
    """The parameters of a norm's arithmetic over rows of `size` numbers.

    centred: layer norm, else RMS norm.  epsilon: as in torch.  weight, bias: None without.
    root_fraction: bits after the point of the standard deviation (times `size`, if centred).  norm_fraction: of the
    normalised numbers, before weight and bias.  ValueError if the root of the smallest sum would be 0.
    """

    size: int
    data: FixedPoint
    out: FixedPoint
    weight: FixedPoint | None = None
    bias: FixedPoint | None = None
    centred: bool = True
    epsilon: float = 1e-5
    root_fraction: int = 8
    norm_fraction: int = 12

    def __post_init__(self) -> None:
        if 4**self.root_fraction < self.size:
            raise ValueError(f"a root of {self.size} numbers needs more than {self.root_fraction} bits after the point")
        if (bits := self.sum_width + 2 * self.root_fraction) > 62:
            raise ValueError(f"sums of {self.size} squares of {self.data} need {bits} bits, more than 62")

    @classmethod
    def fitting(
        cls,
        size: int,
        data: FixedPoint,
        out: FixedPoint,
        weight: FixedPoint | None = None,
        bias: FixedPoint | None = None,
        centred: bool = True,
        epsilon: float = 1e-5,
    ) -> Norm:
        """The norm with as many bits of the root after the point, at most 8, as a sum of 62 bits allows. ValueError if
        those are too few."""
        least = max(1, ((size - 1).bit_length() + 1) // 2)
        for root_fraction in range(8, least, -1):
            with suppress(ValueError):
                return cls(size, data, out, weight, bias, centred, epsilon, root_fraction)
        return cls(size, data, out, weight, bias, centred, epsilon, least)

    @property
    def steps(self) -> int:
        """Epsilon in the units of the sum of squares, at least 1."""
        return max(1, round(self.epsilon * 4.0**self.data.fraction_width * self.size ** (3 if self.centred else 1)))

    @property
    def sum_width(self) -> int:
        """Bits of the largest sum of squares and epsilon."""
        largest = (self.size if self.centred else 1) << self.data.width
        return max(self.size * largest * largest, self.steps).bit_length() + 1


def norm(values: Tensor, weight: Tensor | None, bias: Tensor | None, formats: Norm) -> Tensor:
    """Normalise rows [..., size], then multiply by weight [size] and add bias [size], in integers, int64.

    Sums and squares are exact, the root is rounded down, and the quotient and the result half to even.
    """
    centred = values * formats.size - values.sum(-1, keepdim=True) if formats.centred else values
    total = centred.square().sum(-1, keepdim=True) + formats.steps
    root = root_floor((total << (2 * formats.root_fraction)) // formats.size)
    normalised = divide(centred << (formats.root_fraction + formats.norm_fraction), root)
    return _scale_and_shift(normalised, weight, bias, formats)


def _scale_and_shift(normalised: Tensor, weight: Tensor | None, bias: Tensor | None, formats: Norm) -> Tensor:
    fraction, total = formats.norm_fraction, normalised
    if weight is not None and formats.weight is not None:
        fraction, total = fraction + formats.weight.fraction_width, total * weight
    if bias is None or formats.bias is None:
        return requantise(total, fraction, formats.out)
    longest = max(fraction, formats.bias.fraction_width)
    total = (total << (longest - fraction)) + (bias << (longest - formats.bias.fraction_width))
    return requantise(total, longest, formats.out)


def root_floor(values: Tensor) -> Tensor:
    """The floor of the square roots of values from 0 to 2**62; int64."""
    guess = values.double().sqrt().floor().to(torch.int64)
    guess = guess - (guess * guess > values).long()
    return guess + ((guess + 1) * (guess + 1) <= values).long()
