"""What is looked at in data, to choose a format's parameter: ranges, a histogram, squared errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mase_server.formats import NumberFormat, Open

#: min-max: everything is held.  percentile: this share of the values is held.  mse: the smallest squared error.
METHODS = ("minmax", "percentile", "mse")
#: Elements of one tensor that squared errors are summed over: every n-th, where it has more.
SAMPLED = 1 << 15
#: Bits of a float32 that number the bins of a histogram: sign, exponent and five bits of the fraction.
_BIN_BITS = 14


@dataclass(frozen=True, slots=True)
class Method:
    """How a parameter is chosen. percentile: the share of values, in percent, that is held by that method."""

    name: str = "mse"
    percentile: float = 99.9

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise ValueError(f"quantize: calibrate is {self.name!r}, expected one of {', '.join(METHODS)}")
        if not 50 <= self.percentile <= 100:
            raise ValueError(f"quantize: percentile is {self.percentile!r}, expected a number from 50 to 100")


@dataclass(slots=True)
class Ranges:
    """The range of all finite values that were seen, and a histogram where one is wanted.

    The bins of the histogram are the same for all data, 3 % wide: it has one size, whatever is added.
    """

    counted: bool = False
    low: float = 0.0
    high: float = 0.0
    bins: Tensor | None = field(default=None, repr=False)

    def add(self, values: Tensor) -> None:
        """One tensor."""
        flat, low, high = _finite(values.detach().reshape(-1))
        if not flat.numel():
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self.counted:
            counts = torch.bincount(_bins_of(flat.float()), minlength=1 << _BIN_BITS)
            self.bins = counts if self.bins is None else self.bins + counts

    def limits(self, method: Method) -> tuple[float, float]:
        """From where to where a format should hold: zero is always inside."""
        if method.name != "percentile" or self.bins is None:
            return self.low, self.high
        edges, order = _edges()
        shares = self.bins[order].cumsum(0).double() / int(self.bins.sum())
        outside = (1 - method.percentile / 100) / 2
        first = int((shares > outside).nonzero()[0])
        last = int((shares >= 1 - outside).nonzero()[0])
        low, high = float(edges[order][first]), float(edges[order][last])
        return max(min(low, 0.0), self.low), min(max(high, 0.0), self.high)


def _bins_of(values: Tensor) -> Tensor:
    return (values.view(torch.int32).long() & 0xFFFFFFFF) >> (32 - _BIN_BITS)


def _edges() -> tuple[Tensor, Tensor]:
    """The end of each bin that is farther from zero, and the order of the bins by it."""
    numbers = torch.arange(1 << _BIN_BITS)
    last = ((numbers << (32 - _BIN_BITS)) | ((1 << (32 - _BIN_BITS)) - 1)).to(torch.int64)
    signed = torch.where(last >= 1 << 31, last - (1 << 32), last).to(torch.int32)
    edges = signed.view(torch.float32).double()
    return edges, edges.nan_to_num(nan=math.inf).argsort(stable=True)


@dataclass(slots=True)
class Trials:
    """Squared errors of several formats on the same data."""

    formats: list[NumberFormat]
    errors: list[float] = field(default_factory=list)

    def add(self, values: Tensor) -> None:
        """One tensor, or a part of it that is spread evenly."""
        part = sampled(values)
        errors = self.errors or [0.0] * len(self.formats)
        self.errors = [error + _squared(format, part) for format, error in zip(self.formats, errors, strict=True)]

    @property
    def best(self) -> NumberFormat:
        """The format with the smallest error; of several the one that holds most."""
        if not self.errors:
            return self.formats[0]
        return self.formats[min(range(len(self.formats)), key=self.errors.__getitem__)]


def sampled(values: Tensor) -> Tensor:
    """At most SAMPLED finite elements, spread evenly."""
    flat = values.detach().reshape(-1)
    flat = flat[:: math.ceil(flat.numel() / SAMPLED)] if flat.numel() > SAMPLED else flat
    return _finite(flat.float())[0]


def _squared(format: NumberFormat, values: Tensor) -> float:
    off = format.nearest(values).sub_(values).double()
    return float(torch.dot(off, off))


def _finite(values: Tensor) -> tuple[Tensor, float, float]:
    """The values without infinities and NaN, the lowest and the highest of them."""
    if not values.numel():
        return values, 0.0, 0.0
    low, high = map(float, values.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return values, low, high
    return _finite(values[values.isfinite()])


def candidates(open_: Open, ranges: Ranges, method: Method) -> list[NumberFormat]:
    """The formats that come into question: one, unless errors decide."""
    choices: list[Any] = open_.choices(*ranges.limits(method))
    return [open_.closed(value) for value in (choices if method.name == "mse" else choices[:1])]


def of_tensor(open_: Open, values: Tensor, method: Method) -> NumberFormat:
    """The format for one tensor whose values are all known: a weight."""
    return of_tensors(open_, [values], method)


def of_tensors(open_: Open, tensors: Iterable[Tensor], method: Method) -> NumberFormat:
    """The format for several tensors together; they are gone through twice."""
    parts = list(tensors)
    ranges = Ranges(method.name == "percentile")
    for part in parts:
        ranges.add(part)
    trials = Trials(candidates(open_, ranges, method))
    for part in parts if len(trials.formats) > 1 else ():
        trials.add(part)
    return trials.best
