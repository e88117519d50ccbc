"""Profiling: statistics of weights and activations, over samples of inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.propagate import visit_for_real
from mase_server.ir.values import part_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.statistics import Statistic, make

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "by": "type",
        "target_weight_nodes": (),
        "target_activation_nodes": (),
        "weight_statistics": MappingProxyType({}),
        "activation_statistics": MappingProxyType({}),
        "input_generator": None,
        "num_samples": 1,
    }
)

#: How a node is found: option `by` -> what its patterns are compared with.
_BY: Mapping[str, Callable[[fx.Node, str], bool]] = {
    "type": lambda node, wanted: str(node.meta["mase"]["common"]["mase_op"]) == wanted,
    "name": lambda node, wanted: node.name == wanted or node.target == wanted,
    "regex_name": lambda node, wanted: re.fullmatch(wanted, node.name) is not None,
}

Gathered = dict[tuple[fx.Node, str], dict[str, Statistic]]


def profile_statistics_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Gather statistics into `software.args.$name.stat` of the nodes that are asked for.

    by: "type" (mase_op), "name" or "regex_name", which the two lists of nodes then hold.  target_weight_nodes: nodes of
    whose parameters statistics are wanted.  weight_statistics: which ones.  target_activation_nodes: nodes of whose
    inputs statistics are wanted.  activation_statistics: which ones.  Statistics are given as {name: options}, e.g.
    {"range_quantile": {"dims": "all", "quantile": 0.97}}; there are record, variance_precise, variance_online,
    range_min_max, range_n_sigma, range_quantile and abs_mean.
    input_generator: gives inputs (a dict by name each time).  num_samples: how many of them.  The common metadata must
    be there.  Raises ValueError for unknown options, statistics, and inputs that end too early.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> wanted = {"by": "type", "target_weight_nodes": ["linear"], "weight_statistics": {"range_min_max": {}}}
    >>> graph, _ = passes.profile_statistics_analysis_pass(graph, wanted)
    >>> graph.nodes[1].meta["mase"]["software"]["args"]["weight"]["stat"]["range_min_max"]["count"]
    8
    """
    given = options("profile_statistics_analysis_pass", pass_args, _DEFAULTS)
    for node in graph.fx_graph.nodes:
        if "mase_op" not in metadata_of(node, graph.module)["common"]:
            raise ValueError(f"node {node.name!r} has no common metadata: run add_common_metadata_analysis_pass first")
    weights = _chosen(graph, given["by"], given["target_weight_nodes"], given["weight_statistics"], _is_weight)
    inputs = _chosen(graph, given["by"], given["target_activation_nodes"], given["activation_statistics"], _is_data)
    for (node, name), statistics in weights.items():
        _update(statistics, _weight(graph, node, name))
    if inputs:
        _run(graph, inputs, given)
    for (node, name), statistics in {**weights, **inputs}.items():
        entries = metadata_of(node, graph.module)["software"].setdefault("args", {})
        stat = entries.setdefault(name, {"stat": {}}).setdefault("stat", {})
        stat.update({key: statistic.result() for key, statistic in statistics.items()})
    return graph, {}


def _weight(graph: MaseGraph, node: fx.Node, name: str) -> Any:
    """A parameter of the module called, or of the model."""
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


def _chosen(
    graph: MaseGraph, by: str, patterns: Iterable[str], wanted: Mapping[str, Any], fits: Callable[[str], bool]
) -> Gathered:
    if by not in _BY:
        raise ValueError(f"by is {by!r}; nodes are chosen by {', '.join(_BY)}")
    patterns = tuple(patterns)
    found: Gathered = {}
    for node in graph.fx_graph.nodes:
        if node.op == "output" or not any(_BY[by](node, pattern) for pattern in patterns):
            continue
        for name, entry in node.meta["mase"]["common"]["args"].items():
            if isinstance(entry, dict) and "shape" in entry and fits(name):
                found[node, name] = make(wanted)
    return found


def _run(graph: MaseGraph, gathered: Gathered, given: Mapping[str, Any]) -> None:
    generator, count = given["input_generator"], int(given["num_samples"])
    if generator is None:
        raise ValueError("activation statistics need an input_generator, which gives inputs by name")
    samples = list(islice(iter(generator), count))
    if len(samples) < count:
        raise ValueError(f"num_samples is {count}, but the input_generator ended after {len(samples)}")
    for sample in samples:
        _visit(graph, gathered, sample)


def _visit(graph: MaseGraph, gathered: Gathered, sample: Any) -> None:
    """One run; what a node gets is taken when it is made, before anything can write to it."""
    wanted: dict[fx.Node, list[tuple[tuple[Any, ...], dict[str, Statistic]]]] = {}
    for (node, name), statistics in gathered.items():
        source = node.meta["mase"]["common"]["args"][name]
        wanted.setdefault(source["from"], []).append((source.get("path", ()), statistics))

    def visit(node: fx.Node, value: Any) -> None:
        for path, statistics in wanted.get(node, ()):
            _update(statistics, part_of(value, path))

    knowledge = graph.knowledge
    visit_for_real(graph.module, knowledge.feed(knowledge.named(sample)), visit)


def _update(statistics: Mapping[str, Statistic], value: Any) -> None:
    if isinstance(value, torch.Tensor) and not value.is_meta:
        for statistic in statistics.values():
            statistic.update(value)
