"""Profiling: statistics of weights and activations, over samples of inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import ceil
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import fx

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.propagate import part_of, visit_for_real
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, load
from mase_server.passes.declaration import (
    Argument,
    Result,
    Selection,
    complete_options,
    path_of,
    with_common_metadata,
)
from mase_server.passes.report.report_graph import format_table
from mase_server.suggestions import suggest

# Statistics of tensors, gathered sample by sample: one class for each, in a table by name.

#: What a statistic found of one tensor, by name; None before the first sample.
Figures = dict[str, torch.Tensor | int | None]
Dims = str | int | list[int] | None


class Statistic(Protocol):
    """Takes samples of one tensor, then gives its result."""

    def update(self, sample: torch.Tensor) -> None:
        """Take one sample."""

    def result(self) -> Figures:
        """The result, as the metadata has it."""


def _reduced_axes(sample: torch.Tensor, dims: Dims) -> list[int]:
    """The dimensions that are reduced: "all" or None for every one."""
    if dims is None or dims == "all":
        return list(range(sample.dim()))
    return [dims] if isinstance(dims, int) else [int(dim) for dim in dims]


class _Gathered:
    """Keeps all samples, stacked along a new first dimension (or joined along the present one)."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", add_new_dim_before_concat: bool = False) -> None:
        self.device, self.dims, self.stack = device, dims, add_new_dim_before_concat
        self.samples: list[torch.Tensor] = []

    def update(self, sample: torch.Tensor) -> None:
        """Keep a copy of the sample."""
        kept = sample.detach().to(self.device, copy=True)
        self.samples.append(kept.unsqueeze(0) if self.stack or kept.dim() == 0 else kept)

    @property
    def data(self) -> torch.Tensor:
        """All samples together."""
        return torch.cat(self.samples, dim=0)


class Record(_Gathered):
    """Every sample: {"data", "count"}."""

    def result(self) -> Figures:
        """The samples joined along the first dimension, and the number of their elements."""
        return {"data": self.data, "count": self.data.numel()}


class VariancePrecise(_Gathered):
    """Variance and mean over all samples at once: {"variance", "mean", "count"}."""

    def result(self) -> Figures:
        """The unbiased variance, as torch.var."""
        data = self.data.double()
        axes = _reduced_axes(data, self.dims)
        return {"variance": data.var(dim=axes), "mean": data.mean(dim=axes), "count": _count_elements(data, axes)}


class VarianceOnline:
    """Variance and mean by Chan's update, keeping no sample: {"variance", "mean", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all") -> None:
        self.device, self.dims = device, dims
        self.count = 0
        self.mean: torch.Tensor = torch.zeros(())
        self.squares: torch.Tensor = torch.zeros(())

    def update(self, sample: torch.Tensor) -> None:
        """Merge the moments of one sample."""
        data = sample.detach().to(self.device).double()
        axes = _reduced_axes(data, self.dims)
        count, mean = _count_elements(data, axes), data.mean(dim=axes)
        squares = data.var(dim=axes, correction=0) * count
        delta, total = mean - self.mean, self.count + count
        self.mean = self.mean + delta * count / total
        self.squares = self.squares + squares + delta * delta * self.count * count / total
        self.count = total

    def result(self) -> Figures:
        """The unbiased variance, as torch.var."""
        return {"variance": self.squares / (self.count - 1), "mean": self.mean, "count": self.count}


class RangeMinMax:
    """The smallest and largest element: {"min", "max", "count"}; abs: of the absolute values."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", abs: bool = False) -> None:
        self.device, self.dims, self.abs = device, dims, abs
        self.low: torch.Tensor | None = None
        self.high: torch.Tensor | None = None
        self.count = 0

    def update(self, sample: torch.Tensor) -> None:
        """Widen the range."""
        data = sample.detach().to(self.device)
        data = data.abs() if self.abs else data
        axes = _reduced_axes(data, self.dims)
        low, high = (data.amin(dim=axes), data.amax(dim=axes)) if axes else (data, data)
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)
        self.count += _count_elements(data, axes)

    def result(self) -> Figures:
        """The range over all samples."""
        return {"min": self.low, "max": self.high, "count": self.count}


class RangeNSigma(VarianceOnline):
    """Mean plus and minus some standard deviations: {"min", "max", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", abs: bool = False, num_sigma: float = 3) -> None:
        super().__init__(device, dims)
        self.abs, self.sigmas = abs, num_sigma

    def update(self, sample: torch.Tensor) -> None:
        """Merge the moments of one sample."""
        super().update(sample.abs() if self.abs else sample)

    def result(self) -> Figures:
        """The range by the moments of all samples."""
        reach = self.sigmas * (self.squares / (self.count - 1)).sqrt()
        return {"min": self.mean - reach, "max": self.mean + reach, "count": self.count}


class RangeQuantile(_Gathered):
    """The range that excludes (1 - quantile) of the elements at each end: {"min", "max", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", abs: bool = False, quantile: float = 0.99) -> None:
        super().__init__(device, dims)
        self.abs, self.quantile = abs, quantile

    def result(self) -> Figures:
        """Both ends by linear interpolation, as torch.quantile."""
        data = self.data.double()
        data = data.abs() if self.abs else data
        axes = _reduced_axes(data, self.dims)
        rest = [axis for axis in range(data.dim()) if axis not in [a % data.dim() for a in axes]]
        flat = data.permute(*rest, *axes).reshape(*(data.shape[axis] for axis in rest), -1)
        low, high = _compute_quantile(flat, 1 - self.quantile), _compute_quantile(flat, self.quantile)
        return {"min": low, "max": high, "count": flat.shape[-1]}


class AbsMean:
    """The mean of the absolute values: {"abs_mean", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all") -> None:
        self.device, self.dims = device, dims
        self.total: torch.Tensor = torch.zeros(())
        self.count = 0

    def update(self, sample: torch.Tensor) -> None:
        """Add one sample."""
        data = sample.detach().to(self.device).double().abs()
        axes = _reduced_axes(data, self.dims)
        self.total = self.total + data.sum(dim=axes)
        self.count += _count_elements(data, axes)

    def result(self) -> Figures:
        """The mean over all samples."""
        return {"abs_mean": self.total / self.count, "count": self.count}


def _count_elements(data: torch.Tensor, axes: list[int]) -> int:
    """The number of elements behind each result."""
    count = 1
    for axis in axes:
        count *= data.shape[axis]
    return count


def _compute_quantile(data: torch.Tensor, share: float) -> torch.Tensor:
    """torch.quantile without its limit of 2**24 elements."""
    ordered = data.sort(dim=-1).values
    place = share * (data.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, data.shape[-1] - 1)
    return torch.lerp(ordered[..., below], ordered[..., above], place - below)


STATISTICS: Mapping[str, Callable[..., Statistic]] = {
    "record": Record,
    "variance_online": VarianceOnline,
    "variance_precise": VariancePrecise,
    "range_n_sigma": RangeNSigma,
    "range_quantile": RangeQuantile,
    "range_min_max": RangeMinMax,
    "abs_mean": AbsMean,
}


def make_statistics(wanted: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Statistic]:
    """Statistics by name with their options. Raises ValueError for an unknown name or option."""
    found: dict[str, Statistic] = {}
    for name, settings in wanted.items():
        if name not in STATISTICS:
            raise ValueError(f"there is no statistic {name!r}{suggest(name, STATISTICS, 'known are')}")
        try:
            found[name] = STATISTICS[name](**(settings or {}))
        except TypeError as error:
            raise ValueError(f"the statistic {name} does not take {settings!r}: {error}") from error
    return found


_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "by": "type",
        "target_weight_nodes": (),
        "target_activation_nodes": (),
        "weight_statistics": MappingProxyType({}),
        "activation_statistics": MappingProxyType({}),
        "profile_output_activation": False,
        "input_generator": None,
        "data": None,
        "num_samples": 1,
        "only": None,
    }
)

#: Option `by` -> the property of a node that patterns are compared with.
_BY: Mapping[str, Callable[[fx.Node, str], bool]] = {
    "type": lambda node, wanted: str(node.meta["mase"]["common"]["mase_op"]) == wanted,
    "name": lambda node, wanted: wanted in (node.name, path_of(node)),
    "regex_name": lambda node, wanted: re.fullmatch(wanted, node.name) is not None,
}


class Gathering:
    """The statistics of one tensor; none before its first sample."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._fresh, self.statistics = make_statistics(wanted), dict[str, Statistic]()

    def update(self, value: Any) -> None:
        """Take a sample if it is a tensor with elements."""
        if isinstance(value, torch.Tensor) and value.numel():
            self.statistics = self._fresh
            for statistic in self.statistics.values():
                statistic.update(value)


#: (node, args or results, name) -> statistics.
Gathered = dict[tuple[fx.Node, str, str], Gathering]


_WHICH = f"statistics by name with their options; there are {', '.join(STATISTICS)}"
_USUAL: Mapping[str, Any] = {"range_min_max": {}, "variance_online": {}, "abs_mean": {}}


@analysis(
    "Gather statistics of weights and activations",
    arguments=(
        Argument(
            "by", "choice", "what the two lists contain: types, names or patterns", "regex_name", choices=tuple(_BY)
        ),
        Argument("target_weight_nodes", "texts", "the nodes whose parameters are profiled", [".*"]),
        Argument("target_activation_nodes", "texts", "nodes whose inputs are profiled", [".*"]),
        Argument("weight_statistics", "map", _WHICH, _USUAL),
        Argument("activation_statistics", "map", _WHICH, _USUAL),
        Argument("profile_output_activation", "boolean", "profile results, too", False),
        DATA,
        Argument("num_samples", "integer", "the number of samples", 1, minimum=1),
    ),
    needs={"weights", "data", "metadata"},
    selects=True,
)
def profile_statistics_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Gather statistics into `software.args.$name.stat` of the selected nodes.

    by: "type" (mase_op), "name" or "regex_name", which the two lists of nodes then hold.  target_weight_nodes: nodes
    for whose parameters statistics are wanted.  weight_statistics: which ones.  target_activation_nodes: nodes of whose
    inputs statistics are wanted.  activation_statistics: which ones.  Statistics are given as {name: options}, e.g.
    {"range_quantile": {"dims": "all", "quantile": 0.97}}; there are record, variance_precise, variance_online,
    range_min_max, range_n_sigma, range_quantile and abs_mean.
    profile_output_activation: also of their results, in `software.results`.  only: nodes, layers or scopes, instead of
    all.  input_generator: gives inputs (a dict by name each time); where it has a `batch_size`, batches.  num_samples:
    how many samples.  Without a generator, data as all passes have it, of which that many batches are taken.
    The common metadata must exist.  Gives {"report": text}.
    Raises ValueError for unknown options, statistics, inputs that end too early, and weights on meta.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> wanted = {"by": "type", "target_weight_nodes": ["linear"], "weight_statistics": {"range_min_max": {}}}
    >>> graph, _ = passes.profile_statistics_analysis_pass(graph, wanted)
    >>> graph.nodes[1].meta["mase"]["software"]["args"]["weight"]["stat"]["range_min_max"]["count"]
    8
    """
    given = complete_options("profile_statistics_analysis_pass", pass_args, _DEFAULTS)
    with_common_metadata(graph)
    only = Selection.of(given["only"]).checked(graph.fx_graph)
    weights = _choose_tensors(graph, only, given, "weight", {"args": _is_weight})
    outputs = {"results": _is_any} if given["profile_output_activation"] else {}
    inputs = _choose_tensors(graph, only, given, "activation", {"args": _is_data, **outputs})
    for (node, part, name), gathering in weights.items():
        value = _profiled_weight(graph, node, name)
        if value is None:  # computed from a parameter by other nodes
            inputs[node, part, name] = gathering
        gathering.update(value)
    if inputs:
        _gather_samples(graph, inputs, given)
    rows: list[tuple[str, ...]] = []
    for (node, part, name), gathering in {**weights, **inputs}.items():
        entries = metadata_of(node, graph.module)["software"].setdefault(part, {})
        stat = entries.setdefault(name, {"stat": {}}).setdefault("stat", {})
        stat.update(found := {key: statistic.result() for key, statistic in gathering.statistics.items()})
        rows += [(node.name, name, key, _describe_result(result)) for key, result in found.items()]
    return graph, {"report": format_table(("node", "tensor", "statistic", "found"), rows)}


def _describe_result(result: Mapping[str, Any]) -> str:
    """Numbers as they are, tensors of several elements by their shape."""
    return ", ".join(f"{key} {_describe_value(value)}" for key, value in result.items())


def _describe_value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.item():.4g}" if value.numel() == 1 else f"of shape {list(value.shape)}"
    return str(value)


def _profiled_weight(graph: MaseGraph, node: fx.Node, name: str) -> Any:
    """A parameter of the called module, or of the model. ValueError if it is on meta."""
    found = _find_parameter(graph, node, name)
    if isinstance(found, torch.Tensor) and found.is_meta:
        raise ValueError(
            f"profile_statistics needs the values of {name} of {node.name}, which is on meta: "
            "build the model with its weights"
        )
    return found


def _find_parameter(graph: MaseGraph, node: fx.Node, name: str) -> Any:
    module = metadata_of(node, graph.module).module
    own = {} if module is None else {key.replace(".", "_"): value for key, value in module.named_parameters()}
    source = node.meta["mase"]["common"]["args"][name].get("from")
    if name in own or source is None or source.op != "get_attr":
        return own.get(name)
    return attribute(graph.module, str(source.target))


def _is_data(name: str) -> bool:
    return name.startswith("data_in_")


def _is_weight(name: str) -> bool:
    return not _is_data(name)


def _is_any(name: str) -> bool:
    return True


def _choose_tensors(
    graph: MaseGraph, only: Selection, given: Mapping[str, Any], kind: str, parts: Mapping[str, Callable[[str], bool]]
) -> Gathered:
    by, patterns = given["by"], given[f"target_{kind}_nodes"]
    if by not in _BY:
        raise ValueError(f"by is {by!r}; nodes are chosen by {', '.join(_BY)}")
    patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    found: Gathered = {}
    for node in graph.fx_graph.nodes:
        chosen = only.covers(node) and any(_BY[by](node, pattern) for pattern in patterns)
        for part, fits in parts.items() if node.op != "output" and chosen else ():
            for name, entry in node.meta["mase"]["common"][part].items():
                if isinstance(entry, dict) and "shape" in entry and fits(name):
                    found[node, part, name] = Gathering(given[f"{kind}_statistics"])
    return found


def _gather_samples(graph: MaseGraph, gathered: Gathered, given: Mapping[str, Any]) -> None:
    for sample in _generate_samples(graph, given):
        _gather_run(graph, gathered, sample)


def _generate_samples(graph: MaseGraph, given: Mapping[str, Any]) -> Iterable[Any]:
    generator, count = given["input_generator"], int(given["num_samples"])
    if generator is None:
        return load(graph, given["data"], count).batches
    size = getattr(generator, "batch_size", None)
    wanted = ceil(count / size) if isinstance(size, int) and size > 0 else count
    samples = list(islice(iter(generator), wanted))
    if len(samples) < wanted:
        raise ValueError(f"num_samples is {count}, but the input_generator ended after {len(samples)}")
    return samples


def _gather_run(graph: MaseGraph, gathered: Gathered, sample: Any) -> None:
    """Run once; a node's inputs are sampled when they are made, before anything can write to them."""
    wanted: dict[fx.Node, list[tuple[tuple[Any, ...], Gathering]]] = {}
    for (node, part, name), gathering in gathered.items():
        entry = node.meta["mase"]["common"][part][name]
        source = node if part == "results" else entry["from"]
        wanted.setdefault(source, []).append((entry.get("path", ()), gathering))

    def visit(node: fx.Node, value: Any) -> None:
        for path, gathering in wanted.get(node, ()):
            gathering.update(part_of(value, path))

    knowledge = graph.knowledge
    visit_for_real(graph.module, knowledge.feed(knowledge.named(sample)), visit)
