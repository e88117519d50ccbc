"""A graph as a table by modules, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

from mase_server.cli.graph_data import Graph, Node
from mase_server.cli.lines import Line, from_here, print_lines
from mase_server.cli.report import value_map
from mase_server.cli.tables import columns
from mase_server.cli.terminal import say_json
from mase_server.lsp.figures import scaled
from mase_server.lsp.labels import has_tensor, label
from mase_server.lsp.wording import lens_text
from mase_server.visible import reveal

_HEAD = ("node", "operator", "result", "from", "FLOPs", "format", "line")
#: Longest list of inputs that a row shows, in characters.
_INPUTS = 40


def print_text(graph: Graph) -> None:
    """A row for each node, under the modules that it stands in."""
    lens = lens_text(SimpleNamespace(**graph.model), graph.stale)  # type: ignore[arg-type]
    head = Line(((f"{graph.model['title']}", "bold"), (f" ({reveal(from_here(graph.path))}): {lens}", "")))
    rows = list(_rows(graph))
    used = [place for place, name in enumerate(_HEAD) if name != "format" or any(row[place] for row in rows)]
    table = columns([_HEAD[place] for place in used], [[row[place] for place in used] for row in rows], right={4})
    is_node = [True, *(bool(row[1]) for row in rows)]
    print_lines([head, *(Line(((text, "" if of else "dim"),)) for text, of in zip(table, is_node, strict=True))])


def _rows(graph: Graph) -> Iterator[tuple[str, ...]]:
    shown: list[str] = []
    for node in graph.nodes:
        parts = node.scope.split(".") if node.scope else []
        common = next((depth for depth, pair in enumerate(zip(shown, parts, strict=False)) if pair[0] != pair[1]),
                      min(len(shown), len(parts)))  # fmt: skip
        for depth in range(common, len(parts)):
            kind = graph.types.get(".".join(parts[: depth + 1]), "")
            yield "  " * depth + parts[depth] + (f": {kind}" if kind else ""), *[""] * (len(_HEAD) - 1)
        shown = parts
        yield _row(graph, node, len(parts))


def _row(graph: Graph, node: Node, depth: int) -> tuple[str, ...]:
    inputs = ", ".join(_called(graph.by_name.get(name), name, node.scope) for name in node.inputs)
    inputs = inputs if len(inputs) <= _INPUTS else inputs[: _INPUTS - 1] + "…"
    line = str(node.line) if node.file == graph.path else f"{Path(node.file).name}:{node.line}" if node.file else ""
    flops = scaled(node.flops, "").strip() if node.flops else ""
    return "  " * depth + name_of(node), node.mase_op, value_of(node), inputs, flops, node.format or "", line


def name_of(node: Node) -> str:
    """A layer by its own name, anything else by that of its node."""
    return node.target.rpartition(".")[2] if node.op == "call_module" else node.name


def _called(node: Node | None, name: str, scope: str) -> str:
    """A node as a row of this module speaks of it: a layer by its path, or by its own name in the same module."""
    if node is None or node.op != "call_module":
        return name
    return name_of(node) if node.scope == scope else node.target


def value_of(node: Node) -> str:
    """Its result, where there are tensors in it."""
    return label([node.value]) if has_tensor(node.value) else ""


def print_json(graph: Graph) -> None:
    """One object: {"file", "model", "stale", "modules", "nodes"}."""
    nodes = [asdict(node) | {"value": value_map(node.value), "inputs": list(node.inputs)} for node in graph.nodes]
    told = {"file": graph.path, "model": graph.model["title"], "stale": graph.stale}
    say_json({**told, "modules": dict(graph.types), "nodes": nodes})
