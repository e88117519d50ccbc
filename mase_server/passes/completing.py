"""The common frame of all passes: they take a MaseGraph, and a transform leaves no node without metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Unpack, cast

from torch import nn

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata, metadata_of
from mase_server.ir.session import Snapshot
from mase_server.passes.declaration import Facts, Function, Result, declare
from mase_server.protocol.answers.models import PassKind


def analysis(title: str, kind: PassKind = "analysis", **facts: Unpack[Facts]) -> Callable[[Function], Function]:
    """Declare a pass that leaves all nodes in place. It raises TypeError for anything but a MaseGraph.

    kind: "transform" if it changes what the metadata says.
    """

    def wrap(function: Function) -> Function:
        @wraps(function)
        def run(graph: Any, *args: Any, **kwargs: Any) -> Result:
            _require_graph(function.__name__, graph)
            return function(graph, *args, **kwargs)

        return declare(title, kind, **facts)(cast(Function, run))

    return wrap


def transform(title: str, **facts: Unpack[Facts]) -> Callable[[Function], Function]:
    """Declare a pass that changes the graph. New nodes get all parts of metadata that every node had before.

    It raises TypeError for anything but a MaseGraph.
    """

    def wrap(function: Function) -> Function:
        @wraps(function)
        def run(graph: Any, *args: Any, **kwargs: Any) -> Result:
            _require_graph(function.__name__, graph)
            parts = _common_parts(graph)
            before = Snapshot.of(graph.fx_graph) if graph.is_recorded else Snapshot()
            made, found = function(graph, *args, **kwargs)
            if isinstance(made, MaseGraph) and parts is not None and not before.holds(made.fx_graph):
                _complete_metadata(made, parts)
            return made, found

        return declare(title, "transform", **facts)(cast(Function, run))

    return wrap


def add_places(metadata: MaseMetadata) -> None:
    """Add a place for the statistics of every tensor among a node's arguments and results; existing ones stay."""
    for part in ("args", "results"):
        entries = metadata["software"].setdefault(part, {})
        for name, entry in metadata["common"].get(part, {}).items():
            if isinstance(entry, dict):
                entries.setdefault(name, {"stat": {}})


def _require_graph(name: str, graph: object) -> None:
    if not isinstance(graph, MaseGraph):
        kind = type(graph).__name__
        hint = "make one from it: MaseGraph(model, inputs)" if isinstance(graph, nn.Module) else "see MaseGraph"
        raise TypeError(f"{name} takes a MaseGraph, not a {kind}; {hint}")


def _common_parts(graph: MaseGraph) -> frozenset[str] | None:
    """The parts of metadata that all nodes have; None if nodes have none at all."""
    if not graph.is_recorded:
        return frozenset()
    found = [node.meta.get("mase") for node in graph.fx_graph.nodes]
    if not all(isinstance(each, MaseMetadata) for each in found):
        return None
    return frozenset(part for part in ("common", "software", "hardware") if all(each[part] for each in found))


def _complete_metadata(graph: MaseGraph, parts: frozenset[str]) -> None:
    graph.init_metadata()
    if "common" in parts:
        graph.annotate_again()
    for node in graph.fx_graph.nodes if parts - {"common"} else ():
        metadata = metadata_of(node, graph.module)
        if "software" in parts:
            add_places(metadata)
        if "hardware" in parts and not metadata["hardware"]:
            metadata["hardware"] = _describe_hardware(graph, node)


def _describe_hardware(graph: MaseGraph, node: Any) -> Mapping[str, Any]:
    from mase_server.passes.metadata import hardware_of

    return hardware_of(node, graph, None)
