"""A graph for programs that draw: Graphviz and Mermaid. Modules are boxes around their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mase_server.cli.graph_data import Graph, Node
from mase_server.cli.graph_text import name_of, value_of
from mase_server.cli.terminal import say
from mase_server.visible import reveal

_MARKS = re.compile(r'["#&<>`%\\]')


@dataclass(slots=True)
class Module:
    """A module by its path, "" for the whole model, with what it holds in order of execution."""

    path: str
    held: list[Module | Node] = field(default_factory=list)


def print_dot(graph: Graph) -> None:
    """For Graphviz."""
    say("\n".join(_dot(graph)))


def print_mermaid(graph: Graph) -> None:
    """For Markdown pages."""
    say("\n".join(_mermaid(graph)))


def _tree(graph: Graph) -> Module:
    modules = {"": Module("")}

    def module(path: str) -> Module:
        if path not in modules:
            modules[path] = Module(path)
            module(path.rpartition(".")[0]).held.append(modules[path])
        return modules[path]

    for node in graph.nodes:
        module(node.scope).held.append(node)
    return modules[""]


def _title(graph: Graph, module: Module) -> str:
    kind = graph.types.get(module.path, "")
    return f"{module.path.rpartition('.')[2]}{': ' if kind else ''}{kind}"


def _edges(graph: Graph) -> Iterator[tuple[Node, Node]]:
    known = graph.by_name
    yield from ((known[name], node) for node in graph.nodes for name in node.inputs if name in known)


def _dot(graph: Graph) -> Iterator[str]:
    yield f"digraph {_quoted(graph.model['title'])} {{"
    yield '  node [shape=box, style=rounded, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    yield from _dot_module(graph, _tree(graph), "  ")
    for before, after in _edges(graph):
        yield f"  {_quoted(before.name)} -> {_quoted(after.name)} [label={_quoted(value_of(before))}];"
    yield "}"


def _dot_module(graph: Graph, module: Module, indent: str) -> Iterator[str]:
    for each in module.held:
        if isinstance(each, Node):
            yield f"{indent}{_quoted(each.name)} [label={_quoted(_label(each))}];"
        else:
            yield f"{indent}subgraph {_quoted(f'cluster_{each.path}')} {{ label={_quoted(_title(graph, each))};"
            yield from _dot_module(graph, each, indent + "  ")
            yield f"{indent}}}"


def _label(node: Node) -> str:
    name = name_of(node)
    return name if name == node.mase_op else f"{name}: {node.mase_op}"


def _quoted(text: str) -> str:
    escaped = reveal(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _mermaid(graph: Graph) -> Iterator[str]:
    numbers = {node.name: number for number, node in enumerate(graph.nodes)}
    yield "flowchart TD"
    yield from _mermaid_module(graph, _tree(graph), "  ", numbers)
    for before, after in _edges(graph):
        shape = value_of(before)
        arrow = f"-->|{_entity(shape)}|" if shape else "-->"
        yield f"  n{numbers[before.name]} {arrow} n{numbers[after.name]}"


def _mermaid_module(graph: Graph, module: Module, indent: str, numbers: dict[str, int]) -> Iterator[str]:
    for each in module.held:
        if isinstance(each, Node):
            yield f"{indent}n{numbers[each.name]}[{_entity(_label(each))}]"
        else:
            yield f"{indent}subgraph {_entity(each.path)} [{_entity(_title(graph, each))}]"
            yield from _mermaid_module(graph, each, indent + "  ", numbers)
            yield f"{indent}end"


def _entity(text: str) -> str:
    """A text of Mermaid: none of its own marks, of Markdown's and of HTML's stands for itself."""
    escaped = _MARKS.sub(lambda found: f"#{ord(found[0])};", reveal(text))
    return f'"{escaped}"'
