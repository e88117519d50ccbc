"""Where in the model each operation of a design belongs, and which parts of it could be built alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from mase_server.hardware.design import Design, Operation, Unsupported
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text
from mase_server.passes.error.measuring import GIVES, PART_OF
from mase_server.passes.selection import path_of
from mase_server.suggestions import suggest


@dataclass(frozen=True, slots=True)
class Places:
    """Of each node its module's path, and the nodes that it stands for: those that became a part of it, and what it
    rounds. calls: recorded nodes by path."""

    paths: Mapping[str, str]
    gives: Mapping[str, str]
    rounds: Mapping[str, str]
    calls: Mapping[str, str]

    @classmethod
    def of(cls, graph: MaseGraph, recorded: Mapping[str, str]) -> Places:
        """Of a graph that is ready to be lowered. recorded: path -> node of modules that were one call; see `calls`."""
        nodes = list(graph.fx_graph.nodes)
        gives = {node.name: str(node.meta[key]) for key in (PART_OF, GIVES) for node in nodes if key in node.meta}
        rounds = {node.name: node.all_input_nodes[0].name for node in nodes if format_text(node) is not None}
        return cls({node.name: path_of(node) for node in nodes}, gives, rounds, recorded)

    def nodes(self, operation: Operation, design: Design) -> list[str]:
        """The names of its nodes, with those that they stand for; of a buffer those of what it holds."""
        while not operation.nodes and operation.inputs:
            operation = design.operations[operation.inputs[0]]
        return self.stood_for(operation.nodes)

    def stood_for(self, names: Sequence[str]) -> list[str]:
        """The names of some nodes, and of the recorded ones that they stand for."""
        found = list(names)
        for of in (self.gives, self.rounds):
            found += [of[name] for name in names if name in of]
        path = next((self.paths[name] for name in names if name in self.paths), "")
        above = [each for each in self.calls if path == each or path.startswith(f"{each}.")]
        return list(dict.fromkeys([*found, *([self.calls[max(above, key=len)]] if above else [])]))

    def path(self, operation: Operation) -> str:
        """The path of the module that an operation belongs to; that of what it computes, not of what it rounds."""
        return next((self.paths[name] for name in operation.nodes if name in self.paths), "")


def calls(graph: fx.Graph) -> dict[str, str]:
    """Path of a module -> name of the node that calls it, which a pass may take apart."""
    return {str(node.target): node.name for node in graph.nodes if node.op == "call_module"}


def members(design: Design, places: Places, scope: str) -> set[str]:
    """The names of the operations that a scope has: a module's path, or a node's name.

    ValueError for a scope that there is not, or that has no hardware.
    """
    found = {
        each.name
        for each in design.operations.values()
        if each.kind != "input" and (scope in each.nodes or _inside(places.path(each), scope))
    }
    if not found:
        raise ValueError(_unknown(design, places, scope))
    return found


def unsupported_in(design: Design, places: Places, scope: str) -> list[Unsupported]:
    """What of a scope has no hardware."""
    return [each for each in design.unsupported if scope == each.node or _inside(places.paths[each.node], scope)]


def _inside(path: str, scope: str) -> bool:
    return path == scope or path.startswith(f"{scope}.")


def _unknown(design: Design, places: Places, scope: str) -> str:
    if missing := unsupported_in(design, places, scope):
        return f"{scope} has no hardware: " + "; ".join(f"{each.operator}: {each.why}" for each in missing)
    if scope in places.paths or scope in places.paths.values():
        return f"{scope} computes nothing that becomes hardware of its own; name a layer, or a module above it"
    known = sorted({*modules(design, places), *(name for each in design.operations.values() for name in each.nodes)})
    return f"there is no module or node {scope!r} in the model{suggest(scope, known)}"


def modules(design: Design, places: Places) -> dict[str, list[str]]:
    """Path -> the operations inside, of every module that has some."""
    found: dict[str, list[str]] = {}
    for operation in design.operations.values():
        if operation.kind != "input":
            for path in _above(places.path(operation)):
                found.setdefault(path, []).append(operation.name)
    return found


def _above(path: str) -> Iterator[str]:
    """A path and those of all modules around it, but for the whole model."""
    while path:
        yield path
        path = path.rpartition(".")[0]
