"""The graph of a model as the daemon's API gives it, put together for printing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mase_server.cli.asking import Subject, Talk, ask

#: What is fetched of each node.
_COLUMNS = (
    "name", "op", "target", "mase_op", "mase_type", "family", "scope", "value", "flops", "file", "line", "column",
    "inputs", "format",
)  # fmt: skip
_TABLES = {"value": "values", "scope": "scopes", "file": "files"}


@dataclass(frozen=True, slots=True)
class Node:
    """A node. scope: the path of the module that it stands in.  inputs: names.  place: file and line, if known."""

    name: str
    op: str
    target: str
    mase_op: str
    mase_type: str
    family: str
    scope: str
    value: Any
    flops: int | None
    file: str | None
    line: int
    inputs: tuple[str, ...]
    format: str | None


@dataclass(frozen=True)
class Graph:
    """model: as `mase/models` has it.  stale: of an older text.  types: of modules, by their paths."""

    path: str
    model: Mapping[str, Any]
    nodes: tuple[Node, ...]
    types: Mapping[str, str]
    stale: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes that are here: with a scope, inputs may come from outside."""
        return {node.name: node for node in self.nodes}


def fetch(subject: Subject, model: str | None, scope: str | None) -> Graph:
    """The graph of a model, or of a module of it; Refused."""

    def talk(path: str) -> Talk[Graph]:
        wanted = {key: value for key, value in {"path": path, "model": model, "scope": scope}.items() if value}
        pages = [(yield "mase/graph", {**wanted, "columns": list(_COLUMNS)})]
        while (start := pages[-1]["next"]) is not None:
            pages.append((yield "mase/graph", {**wanted, "columns": list(_COLUMNS), "start": start}))
        known = yield "mase/models", {"path": path}
        names = {}
        if scope:
            whole = yield "mase/graph", {**wanted, "scope": "", "columns": ["name"]}
            names = dict(zip(whole["columns"]["row"], whole["columns"]["name"], strict=True))
        told = next(each for each in known["models"] if each["title"] == pages[0]["model"])
        return _graph(path, told, pages, names)

    return ask(subject, talk)


def drawing(subject: Subject, place: Mapping[str, Any]) -> str:
    """The SVG of a model; Refused."""

    def talk(path: str) -> Talk[str]:
        wanted = {key: value for key, value in place.items() if value is not None}
        drawn = yield "mase/draw", {"path": path, **wanted}
        return str(drawn["svg"])

    return ask(subject, talk)


def _graph(path: str, model: Mapping[str, Any], pages: list[dict[str, Any]], names: dict[int, str]) -> Graph:
    rows = [row for page in pages for row in _rows(page)]
    names = names | {row["row"]: row["name"] for row in rows}
    nodes = tuple(_node(row, names) for row in rows)
    types = {scope: kind for page in pages for scope, kind in page["scopes"]}
    return Graph(path, model, nodes, types, pages[0]["stale"])


def _rows(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of a page as rows, with values in place of indices."""
    columns = dict(page["columns"])
    for name, table in _TABLES.items():
        columns[name] = [page[table][index] if index >= 0 else None for index in columns[name]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _node(row: Mapping[str, Any], names: Mapping[int, str]) -> Node:
    facts = {key: row[key] for key in ("name", "op", "target", "mase_op", "mase_type", "family", "flops", "format")}
    file = row["file"]["path"] if row["file"] else None
    inputs = tuple(names[each] for each in row["inputs"] if each in names)
    scope = row["scope"][0] if row["scope"] else ""
    return Node(scope=scope, value=row["value"], file=file, line=row["line"], inputs=inputs, **facts)
