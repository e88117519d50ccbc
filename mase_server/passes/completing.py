"""What all passes have in common: they take a MaseGraph, and a transform leaves no node without metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from torch import nn

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata, metadata_of
from mase_server.ir.state import Snapshot

Function = TypeVar("Function", bound=Callable[..., tuple[Any, dict[str, Any]]])


def analysis(function: Function) -> Function:
    """A pass that leaves the graph as it is. It raises TypeError for what is no MaseGraph."""

    @wraps(function)
    def run(graph: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        _require(function.__name__, graph)
        return function(graph, *args, **kwargs)

    return cast(Function, run)


def transform(function: Function) -> Function:
    """A pass that changes the graph. What metadata all nodes had, the nodes that it makes get, too.

    It raises TypeError for what is no MaseGraph.
    """

    @wraps(function)
    def run(graph: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        _require(function.__name__, graph)
        parts = _parts(graph)
        before = Snapshot.of(graph.fx_graph) if graph.is_recorded else Snapshot()
        made, found = function(graph, *args, **kwargs)
        if isinstance(made, MaseGraph) and parts is not None and not before.holds(made.fx_graph):
            _complete(made, parts)
        return made, found

    return cast(Function, run)


def add_places(metadata: MaseMetadata) -> None:
    """A place for the statistics of every tensor among a node's arguments and results; those that are there stay."""
    for part in ("args", "results"):
        entries = metadata["software"].setdefault(part, {})
        for name, entry in metadata["common"].get(part, {}).items():
            if isinstance(entry, dict):
                entries.setdefault(name, {"stat": {}})


def _require(name: str, graph: object) -> None:
    if not isinstance(graph, MaseGraph):
        kind = type(graph).__name__
        hint = "make one of it: MaseGraph(model, inputs)" if isinstance(graph, nn.Module) else "see MaseGraph"
        raise TypeError(f"{name} takes a MaseGraph, not a {kind}; {hint}")


def _parts(graph: MaseGraph) -> frozenset[str] | None:
    """The parts of metadata that all nodes have; None where nodes have none at all."""
    if not graph.is_recorded:
        return frozenset()
    found = [node.meta.get("mase") for node in graph.fx_graph.nodes]
    if not all(isinstance(each, MaseMetadata) for each in found):
        return None
    return frozenset(part for part in ("common", "software", "hardware") if all(each[part] for each in found))


def _complete(graph: MaseGraph, parts: frozenset[str]) -> None:
    graph.init_metadata()
    if "common" in parts:
        graph.annotate_again()
    for node in graph.fx_graph.nodes if parts - {"common"} else ():
        metadata = metadata_of(node, graph.module)
        if "software" in parts:
            add_places(metadata)
        if "hardware" in parts and not metadata["hardware"]:
            metadata["hardware"] = _hardware(graph, node)


def _hardware(graph: MaseGraph, node: Any) -> Mapping[str, Any]:
    from mase_server.passes.metadata.add_hardware_metadata import hardware_of

    return hardware_of(node, graph, None)
