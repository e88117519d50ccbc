"""Calibration: choosing the open parameters of formats from the values that nodes have on data.

Parameters choose their formats by their values, everything else by a run on data (`passes.data`, which executes nothing
of a file). Ranges and histograms have bounded sizes; a second run sums squared errors for the few candidates that are
left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import NumberFormat, Open
from mase_server.ir.feeding import tensors_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import visit_for_real
from mase_server.passes.data import Data, load
from mase_server.passes.quantize.places import Places
from mase_server.tracing.recording.values import Rebuild

#: (node, open format) -> the format chosen from the node's values.
Closed = dict[tuple[fx.Node, Open], NumberFormat]


def calibrate_formats(graph: MaseGraph, wanted: Mapping[fx.Node, Iterable[Open]], data: Data, method: Method) -> Closed:
    """Run the graph on data and choose the parameters of formats for nodes' results.

    Only ranges, histograms and sums are kept. With squared errors the graph runs twice: ranges first.
    """
    ranges = {node: Ranges(method.name == "percentile") for node in wanted}

    def measure(node: fx.Node, tensor: Tensor) -> None:
        ranges[node].add(tensor)

    def attempt(node: fx.Node, tensor: Tensor) -> None:
        for open_ in wanted[node]:
            trials[node, open_].add(tensor)

    _run_on_data(graph, data, measure, wanted)
    trials = {
        (node, open_): Trials(candidate_formats(open_, ranges[node], method))
        for node, formats in wanted.items()
        for open_ in formats
    }
    if any(len(each.formats) > 1 for each in trials.values()):
        _run_on_data(graph, data, attempt, wanted)
    return {key: each.best for key, each in trials.items()}


def _run_on_data(
    graph: MaseGraph, data: Data, see: Callable[[fx.Node, Tensor], None], nodes: Mapping[fx.Node, Any]
) -> None:
    def visit(node: fx.Node, value: Any) -> None:
        if node in nodes:
            for tensor in tensors_of(value).values():
                if tensor.is_floating_point():
                    see(node, tensor)

    for values in data.feeds(graph):
        visit_for_real(graph.module, values, visit)


# Closing the open formats of all places.


@dataclass(frozen=True, slots=True)
class Closing:
    """words: the source of the values, None if none were needed."""

    closed: Closed
    method: Method
    words: str | None

    @classmethod
    def of(cls, graph: MaseGraph, places: Places, given: Mapping[str, Any]) -> Closing:
        """Read the pass's arguments `calibrate`, `percentile`, `data` and `samples`, and calibrate."""
        method = Method(given.get("calibrate") or "mse", given.get("percentile") or 99.9)
        wanted: dict[fx.Node, list[Open]] = {}
        for node, format in (each for place in places.found for each in place.values):
            if isinstance(format, Open) and format not in wanted.setdefault(node, []):
                wanted[node].append(format)
        wanted = {node: formats for node, formats in wanted.items() if formats}
        if not wanted or not has_values(graph):
            return cls({}, method, None)
        data = load(graph, given.get("data"), given.get("samples"))
        with torch.no_grad():
            return cls(calibrate_formats(graph, wanted, data, method), method, data.words)

    def of_value(self, node: fx.Node, format: NumberFormat) -> NumberFormat:
        """The format for a node's value."""
        return self.closed.get((node, format), format) if isinstance(format, Open) else format

    def of_parameter(self, tensor: torch.Tensor, format: NumberFormat) -> NumberFormat:
        """The format for a parameter."""
        if not isinstance(format, Open) or tensor.is_meta:
            return format
        with torch.no_grad():
            return of_tensor(format, tensor, self.method)


def has_values(graph: MaseGraph) -> bool:
    """Are weights and inputs real?"""
    tensors = [*graph.module.parameters(), *Rebuild.of(dict(graph.arguments)).tensors]
    return not any(tensor.is_meta for tensor in tensors)


# The statistics of data from which a format's parameter is chosen: ranges, a histogram, squared errors.

#: min-max: the format holds everything.  percentile: it holds this share of values.  mse: the smallest squared error.
METHODS = ("minmax", "percentile", "mse")
#: The most elements of one tensor in a sum of squared errors: of a larger one every n-th counts.
SAMPLED = 1 << 15
#: Bits of a float32 that number the bins of a histogram: sign, exponent and five bits of the fraction.
_BIN_BITS = 14


@dataclass(frozen=True, slots=True)
class Method:
    """How a parameter is chosen. percentile: the share of values, in percent, that the format holds by that method."""

    name: str = "mse"
    percentile: float = 99.9

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise ValueError(f"quantize: calibrate is {self.name!r}, expected one of {', '.join(METHODS)}")
        if not 50 <= self.percentile <= 100:
            raise ValueError(f"quantize: percentile is {self.percentile!r}, expected a number from 50 to 100")


@dataclass(slots=True)
class Ranges:
    """The range of all finite values seen so far, and a histogram if one is wanted.

    The bins of the histogram are the same for all data, 3 % wide, so its size does not depend on the data.
    """

    counted: bool = False
    low: float = 0.0
    high: float = 0.0
    bins: Tensor | None = field(default=None, repr=False)

    def add(self, values: Tensor) -> None:
        """Add one tensor."""
        flat, low, high = _finite_values(values.detach().reshape(-1))
        if not flat.numel():
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self.counted:
            counts = torch.bincount(_bins_of(flat.float()), minlength=1 << _BIN_BITS)
            self.bins = counts if self.bins is None else self.bins + counts

    def limits(self, method: Method) -> tuple[float, float]:
        """The range that a format should hold; it always contains zero."""
        if method.name != "percentile" or self.bins is None:
            return self.low, self.high
        edges, order = _bin_edges()
        shares = self.bins[order].cumsum(0).double() / int(self.bins.sum())
        outside = (1 - method.percentile / 100) / 2
        first = int((shares > outside).nonzero()[0])
        last = int((shares >= 1 - outside).nonzero()[0])
        low, high = float(edges[order][first]), float(edges[order][last])
        return max(min(low, 0.0), self.low), min(max(high, 0.0), self.high)


def _bins_of(values: Tensor) -> Tensor:
    return (values.view(torch.int32).long() & 0xFFFFFFFF) >> (32 - _BIN_BITS)


def _bin_edges() -> tuple[Tensor, Tensor]:
    """The end of each bin that is farther from zero, and the bins sorted by it."""
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
        """Add one tensor, or an even sample of it."""
        part = sample_values(values)
        errors = self.errors or [0.0] * len(self.formats)
        self.errors = [error + _squared_error(format, part) for format, error in zip(self.formats, errors, strict=True)]

    @property
    def best(self) -> NumberFormat:
        """The format with the smallest error; of several the one with the largest range."""
        if not self.errors:
            return self.formats[0]
        return self.formats[min(range(len(self.formats)), key=self.errors.__getitem__)]


def sample_values(values: Tensor) -> Tensor:
    """At most SAMPLED finite elements, spread evenly."""
    flat = values.detach().reshape(-1)
    flat = flat[:: math.ceil(flat.numel() / SAMPLED)] if flat.numel() > SAMPLED else flat
    return _finite_values(flat.float())[0]


def _squared_error(format: NumberFormat, values: Tensor) -> float:
    off = format.nearest(values).sub_(values).double()
    return float(torch.dot(off, off))


def _finite_values(values: Tensor) -> tuple[Tensor, float, float]:
    """The values without infinities and NaN, the lowest and the highest of them."""
    if not values.numel():
        return values, 0.0, 0.0
    low, high = map(float, values.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return values, low, high
    return _finite_values(values[values.isfinite()])


def candidate_formats(open_: Open, ranges: Ranges, method: Method) -> list[NumberFormat]:
    """The candidates: one format, unless errors decide."""
    choices: list[Any] = open_.choices(*ranges.limits(method))
    return [open_.closed(value) for value in (choices if method.name == "mse" else choices[:1])]


def of_tensor(open_: Open, values: Tensor, method: Method) -> NumberFormat:
    """The format for a weight, all of whose values are known."""
    return of_tensors(open_, [values], method)


def of_tensors(open_: Open, tensors: Iterable[Tensor], method: Method) -> NumberFormat:
    """The format for several tensors together, in two passes over them."""
    parts = list(tensors)
    ranges = Ranges(method.name == "percentile")
    for part in parts:
        ranges.add(part)
    trials = Trials(candidate_formats(open_, ranges, method))
    for part in parts if len(trials.formats) > 1 else ():
        trials.add(part)
    return trials.best
