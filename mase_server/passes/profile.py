"""Profiling: statistics of weights and activations, over samples of inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import ceil
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.propagate import visit_for_real
from mase_server.ir.values import part_of
from mase_server.passes.arguments import Result, options, with_common_metadata
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, load
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import table
from mase_server.passes.selection import Selection, path_of
from mase_server.passes.statistics import STATISTICS, Statistic, make

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

#: How a node is found: option `by` -> what its patterns are compared with.
_BY: Mapping[str, Callable[[fx.Node, str], bool]] = {
    "type": lambda node, wanted: str(node.meta["mase"]["common"]["mase_op"]) == wanted,
    "name": lambda node, wanted: wanted in (node.name, path_of(node)),
    "regex_name": lambda node, wanted: re.fullmatch(wanted, node.name) is not None,
}


class Gathering:
    """The statistics of one tensor; none before its first sample."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._fresh, self.statistics = make(wanted), dict[str, Statistic]()

    def update(self, value: Any) -> None:
        """Take a sample, where it is a tensor with elements."""
        if isinstance(value, torch.Tensor) and value.numel():
            self.statistics = self._fresh
            for statistic in self.statistics.values():
                statistic.update(value)


#: (node, args or results, name) -> statistics.
Gathered = dict[tuple[fx.Node, str, str], Gathering]


@analysis
def profile_statistics_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Gather statistics into `software.args.$name.stat` of the nodes that are asked for.

    by: "type" (mase_op), "name" or "regex_name", which the two lists of nodes then hold.  target_weight_nodes: nodes of
    whose parameters statistics are wanted.  weight_statistics: which ones.  target_activation_nodes: nodes of whose
    inputs statistics are wanted.  activation_statistics: which ones.  Statistics are given as {name: options}, e.g.
    {"range_quantile": {"dims": "all", "quantile": 0.97}}; there are record, variance_precise, variance_online,
    range_min_max, range_n_sigma, range_quantile and abs_mean.
    profile_output_activation: also of their results, in `software.results`.  only: nodes, layers or scopes, instead of
    all.  input_generator: gives inputs (a dict by name each time); where it has a `batch_size`, batches.  num_samples:
    how many samples.  Without a generator, data as all passes have it, of which that many batches are taken.
    The common metadata must be there.  Gives {"report": text}.
    Raises ValueError for unknown options, statistics, inputs that end too early, and weights on meta.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> wanted = {"by": "type", "target_weight_nodes": ["linear"], "weight_statistics": {"range_min_max": {}}}
    >>> graph, _ = passes.profile_statistics_analysis_pass(graph, wanted)
    >>> graph.nodes[1].meta["mase"]["software"]["args"]["weight"]["stat"]["range_min_max"]["count"]
    8
    """
    given = options("profile_statistics_analysis_pass", pass_args, _DEFAULTS)
    with_common_metadata(graph)
    only = Selection.of(given["only"]).checked(graph.fx_graph)
    weights = _chosen(graph, only, given, "weight", {"args": _is_weight})
    outputs = {"results": _is_any} if given["profile_output_activation"] else {}
    inputs = _chosen(graph, only, given, "activation", {"args": _is_data, **outputs})
    for (node, part, name), gathering in weights.items():
        value = _weight(graph, node, name)
        if value is None:  # made of a parameter by other nodes
            inputs[node, part, name] = gathering
        gathering.update(value)
    if inputs:
        _run(graph, inputs, given)
    rows: list[tuple[str, ...]] = []
    for (node, part, name), gathering in {**weights, **inputs}.items():
        entries = metadata_of(node, graph.module)["software"].setdefault(part, {})
        stat = entries.setdefault(name, {"stat": {}}).setdefault("stat", {})
        stat.update(found := {key: statistic.result() for key, statistic in gathering.statistics.items()})
        rows += [(node.name, name, key, _words(result)) for key, result in found.items()]
    return graph, {"report": table(("node", "tensor", "statistic", "found"), rows)}


def _words(result: Mapping[str, Any]) -> str:
    """Numbers as they are, tensors of several by their shape."""
    return ", ".join(f"{key} {_word(value)}" for key, value in result.items())


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.item():.4g}" if value.numel() == 1 else f"of shape {list(value.shape)}"
    return str(value)


def _weight(graph: MaseGraph, node: fx.Node, name: str) -> Any:
    """A parameter of the module called, or of the model. ValueError where it is on meta."""
    found = _parameter(graph, node, name)
    if isinstance(found, torch.Tensor) and found.is_meta:
        raise ValueError(
            f"profile_statistics needs the values of {name} of {node.name}, which is on meta: "
            "build the model with its weights"
        )
    return found


def _parameter(graph: MaseGraph, node: fx.Node, name: str) -> Any:
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


def _chosen(
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


def _run(graph: MaseGraph, gathered: Gathered, given: Mapping[str, Any]) -> None:
    for sample in _samples(graph, given):
        _visit(graph, gathered, sample)


def _samples(graph: MaseGraph, given: Mapping[str, Any]) -> Iterable[Any]:
    generator, count = given["input_generator"], int(given["num_samples"])
    if generator is None:
        return load(graph, given["data"], count).batches
    size = getattr(generator, "batch_size", None)
    wanted = ceil(count / size) if isinstance(size, int) and size > 0 else count
    samples = list(islice(iter(generator), wanted))
    if len(samples) < wanted:
        raise ValueError(f"num_samples is {count}, but the input_generator ended after {len(samples)}")
    return samples


def _visit(graph: MaseGraph, gathered: Gathered, sample: Any) -> None:
    """One run; what a node gets is taken when it is made, before anything can write to it."""
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


_WHICH = f"statistics by name with their options; there are {', '.join(STATISTICS)}"
_USUAL: Mapping[str, Any] = {"range_min_max": {}, "variance_online": {}, "abs_mean": {}}

PASS = Pass(
    "profile_statistics",
    "Gather statistics of weights and activations",
    "analysis",
    profile_statistics_analysis_pass,
    (
        Argument("by", "choice", "what the two lists of nodes hold", "regex_name", choices=tuple(_BY)),
        Argument("target_weight_nodes", "texts", "nodes of whose parameters statistics are wanted", [".*"]),
        Argument("target_activation_nodes", "texts", "nodes of whose inputs statistics are wanted", [".*"]),
        Argument("weight_statistics", "map", _WHICH, _USUAL),
        Argument("activation_statistics", "map", _WHICH, _USUAL),
        Argument("profile_output_activation", "boolean", "of results, too", False),
        DATA,
        Argument("num_samples", "integer", "samples that the model is run on", 1, minimum=1),
    ),
    needs=frozenset({"weights", "data", "metadata"}),
    selects=True,
)
