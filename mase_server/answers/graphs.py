"""Graphs: nodes, places in the source, and the values that were seen there."""

from __future__ import annotations

from typing import Any, TypedDict

from mase_server.answers.files import Problem, Status
from mase_server.answers.models import ModelFacts, ModelTrace


class Node(TypedDict):
    """A node of a graph: what it computes, where it stands, what passes and hardware made of it.

    scope: [module path, type].  details: a map of `snapshot.NODE_BLOB`.  sqnr: in dB, "inf" where nothing differs.
    """

    index: int
    name: str
    op: str
    target: str
    mase_op: str
    mase_type: str
    family: str
    model: str
    scope: list[str] | None
    value: Any
    flops: int | None
    file: str | None
    line: int
    column: int
    end_line: int
    end_column: int
    details: dict[str, Any]
    format: str | None
    sqnr: float | str | None
    max_error: float | None
    note: str | None
    saturated: float | None
    hardware: list[dict[str, Any]]


class PlaceValue(TypedDict):
    """A value that was seen at a place. original: without passes, where they change it.  scopes: [path, type] each."""

    value: Any
    original: Any
    model: str
    count: int
    scopes: list[list[str]]
    node: Node | None


class Place(TypedDict):
    """A place in a source file that held values. kind: one of `snapshot.KINDS`."""

    path: str
    sha256: str
    stale: bool
    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: list[PlaceValue]


class SiteValue(TypedDict):
    """A value, without the node that made it."""

    value: Any
    original: Any
    model: str
    count: int


class Site(TypedDict):
    """A place with its values."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: list[SiteValue]


class Tensors(TypedDict):
    """The tensors of a source file. next: the line that the rest begins at."""

    path: str
    sha256: str
    stale: bool
    next: int | None
    sites: list[Site]


class Graph(ModelTrace):
    """A graph as columns. values, scopes ([path, type]), files: what columns of these names refer to."""

    total: int
    start: int
    next: int | None
    columns: dict[str, list[Any]]
    values: list[Any]
    scopes: list[list[str]]
    files: list[dict[str, Any]]


class TracedValue(TypedDict):
    """A value, and the paths of the modules that it was seen in."""

    value: Any
    model: str
    count: int
    scopes: list[str]


class TracedSite(TypedDict):
    """A place with its values."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: list[TracedValue]


class Traced(TypedDict):
    """All that the trace of a file tells of that file. next: the line that the rest of the sites begins at."""

    path: str
    sha256: str
    status: Status | None
    interpreter: str | None
    python: str | None
    torch: str | None
    seconds: float | None
    models: list[ModelFacts]
    problems: list[Problem]
    sites: list[TracedSite]
    next: int | None
