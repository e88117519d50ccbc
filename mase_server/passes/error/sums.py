"""The error of values against a reference: what is summed, and what it means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

#: Elements that are widened to float64 at a time.
CHUNK = 1 << 20


class Error(NamedTuple):
    """How far values y are from a reference x.

    sqnr: signal to quantisation noise, 10 * log10(sum(x**2) / sum((x - y)**2)) in dB; infinite where nothing differs;
    None where the reference is all zero and they differ, and where something is not finite.
    max_error: the largest |x - y|; None where something is not finite.
    Infinities and NaN that are the same in both are left out.
    """

    sqnr: float | None
    max_error: float | None


@dataclass(slots=True)
class Sums:
    """What an `Error` is computed of, over any number of tensors."""

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    known: bool = True

    def add(self, reference: Tensor, values: Tensor) -> None:
        """Two tensors of one shape; of others nothing is known then."""
        if reference.shape != values.shape or reference.is_meta or values.is_meta:
            self.known = False
            return
        for x, y in zip(_chunks(reference), _chunks(values), strict=True):
            self._add(x, y)

    def _add(self, x: Tensor, y: Tensor) -> None:
        difference = x - y
        signal, noise = float(torch.dot(x, x)), float(torch.dot(difference, difference))
        if not (math.isfinite(signal) and math.isfinite(noise)):
            same = (x == y) | (x.isnan() & y.isnan())
            difference = difference.masked_fill(same, 0.0)
            x = x.masked_fill(same & ~x.isfinite(), 0.0)
            signal, noise = float(torch.dot(x, x)), float(torch.dot(difference, difference))
        self.signal, self.noise = self.signal + signal, self.noise + noise
        self.largest = max(self.largest, float(difference.abs().max()))
        self.known = self.known and math.isfinite(signal) and math.isfinite(noise)

    def error(self) -> Error:
        """The error of all that was added."""
        if not self.known:
            return Error(None, None)
        if self.noise == 0:
            return Error(math.inf, 0.0)
        return Error(10 * math.log10(self.signal / self.noise) if self.signal else None, self.largest)


def _chunks(tensor: Tensor) -> Iterator[Tensor]:
    flat = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    if flat.numel():
        yield from (part.double() for part in torch.split(flat.reshape(-1), CHUNK))
