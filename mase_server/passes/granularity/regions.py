"""Which parts of a graph are the calls of one module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.passes.selection import Selection

_OUTSIDE = ("placeholder", "output")


@dataclass(slots=True)
class Region:
    """Consecutive nodes that a module's forward made, those of the modules inside of it included."""

    path: str
    kind: str
    nodes: list[fx.Node] = field(default_factory=list)


def module_kinds(graph: MaseGraph) -> dict[str, str]:
    """The class name of every module whose forward was run through, by path; the model itself is not among them."""
    found = {} if graph.recording is None else {path: kind.__name__ for path, kind in graph.recording.run.scopes}
    for node in graph.fx_graph.nodes:
        scope = node.meta.get("scope")
        if scope is not None:
            found.setdefault(scope.module_path, getattr(scope.module_type, "__name__", str(scope.module_type)))
    return {path: kind for path, kind in found.items() if path}


def module_paths(graph: fx.Graph) -> dict[fx.Node, str]:
    """The module in which each node stands; what a pass put in stands where the node after it does."""
    found: dict[fx.Node, str] = {}
    path = ""
    for node in reversed(list(graph.nodes)):
        scope = node.meta.get("scope")
        path = found[node] = path if scope is None else scope.module_path
    return found


def is_inside(path: str, module: str) -> bool:
    """Is this the module, or one inside of it?"""
    return not module or path == module or path.startswith(f"{module}.")


def innermost(paths: Iterable[str]) -> list[str]:
    """Those that have none of the others inside."""
    known = list(paths)
    return [path for path in known if not any(other.startswith(f"{path}.") for other in known)]


def outermost(paths: Iterable[str]) -> list[str]:
    """Those that are inside of none of the others."""
    known = list(paths)
    return [path for path in known if not any(path.startswith(f"{other}.") for other in known)]


def selected(graph: MaseGraph, selection: Selection) -> list[str]:
    """The paths of the modules that a selection covers; a node's name stands for the module around it."""
    paths = module_paths(graph.fx_graph)
    around = {paths[node] for node in graph.fx_graph.nodes if node.name in selection.only}
    present = {path for node, path in paths.items() if node.op not in _OUTSIDE}
    known = [path for path in module_kinds(graph) if any(is_inside(each, path) for each in present)]
    if not selection.only:
        return known
    return [path for path in known if path in around or any(is_inside(path, text) for text in selection.only)]


def regions(graph: MaseGraph, path: str) -> Iterator[Region]:
    """The runs of consecutive nodes of one module."""
    kind = module_kinds(graph)[path]
    paths = module_paths(graph.fx_graph)
    region = Region(path, kind)
    for node in graph.fx_graph.nodes:
        if node.op not in _OUTSIDE and is_inside(paths[node], path):
            region.nodes.append(node)
        elif region.nodes:
            yield region
            region = Region(path, kind)
    if region.nodes:
        yield region
