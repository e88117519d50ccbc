"""One traced file, immutable: a payload and the indices that make asking it cheap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from mase_server.snapshot import KINDS, Payload, Problem, titles
from mase_server.wire import Message, unpack_blob

_EXTENT = ("line", "column", "end_line", "end_column")
#: Among places of equal extent, what a person means by it.
_PRECEDENCE = {"parameter": 0, "binding": 1, "return": 2, "expression": 3}


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a graph. `scope` is (module path, module type), `details` its NODE_BLOB map (see `snapshot`)."""

    index: int
    name: str
    op: str
    target: str
    mase_op: str
    mase_type: str
    family: str
    model: str
    scope: tuple[str, str] | None
    value: Any
    flops: int
    file: str | None
    line: int
    column: int
    end_line: int
    end_column: int
    details: Message


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value that was seen at a site: in which model, how often, in which module instances, made by which node."""

    value: Any
    model: str
    count: int
    scopes: tuple[tuple[str, str], ...]
    node: tuple[GraphSnapshot, int] | None


@dataclass(frozen=True, slots=True)
class SiteView:
    """A place in a file that held tensors. Lines from 1, columns from 0 in code points, ends exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: tuple[ValueView, ...]

    @property
    def extent(self) -> tuple[int, int, int, int]:
        """(line, column, end line, end column)."""
        return self.line, self.column, self.end_line, self.end_column


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model, positioned at its class name; the fields are those of `snapshot.MODEL_KEYS`."""

    snapshot: GraphSnapshot = field(repr=False)
    index: int
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    arguments: dict[str, Any]
    inputs: dict[str, Any]
    inputs_from: str
    arguments_from: str
    found: str
    mode: str
    rung: str
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: int | None
    generic: bool
    symbols: dict[str, int]
    fixed: Sequence[str]
    seconds: float
    comment: dict[str, Any] = field(default_factory=dict)
    rest: bool = False

    @property
    def title(self) -> str:
        """Its name, or one of its own where another model of the same trace has the same."""
        return self.snapshot.titles[self.index]


@dataclass(frozen=True, slots=True)
class PartView:
    """A class statement, positioned at its name, and the models that have modules of it, by their titles."""

    name: str
    line: int
    column: int
    end_line: int
    end_column: int
    roots: tuple[str, ...]


class GraphSnapshot:
    """What one trace of the model file `path` found; `sha256` is of the source it was traced from.

    Indices are built on first use, or ahead by `prepare`, which may run in a thread: building is idempotent.
    """

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.path: str = payload["file"]
        self.sha256: str = payload["sha256"]
        self.generation: int = payload["generation"]
        self.complete: bool = payload["complete"]
        self.files: dict[str, int] = {file["path"]: index for index, file in enumerate(payload["files"])}
        self.titles = titles([model["name"] for model in payload["models"]])
        self.problems = tuple(Problem(**problem) for problem in payload["problems"])
        self._indices: dict[int, FileIndex] | None = None
        self._rows: list[list[int]] | None = None

    @property
    def size(self) -> int:
        """How many rows the indices are built from."""
        return len(self.payload["sites"]["file"]) + len(self.payload["rows"]["site"])

    def prepare(self) -> GraphSnapshot:
        """Build the indices now."""
        self._index_of(0)
        self._rows_of(0)
        return self

    def sha256_of(self, path: str) -> str | None:
        """The hash of the file `path` as it was traced, None where it is no part of this snapshot."""
        index = self.files.get(path)
        return None if index is None else self.payload["files"][index]["sha256"]

    def is_library(self, path: str) -> bool:
        """Does `path` occur here as a file outside the workspace?"""
        index = self.files.get(path)
        return index is not None and bool(self.payload["files"][index]["library"])

    def index(self, path: str) -> FileIndex | None:
        """The sites of one file, None where it is no part of this snapshot."""
        file = self.files.get(path)
        return None if file is None else self._index_of(file)

    def site(self, index: int) -> SiteView:
        """One site with its values."""
        sites = self.payload["sites"]
        line, column, end_line, end_column = (sites[key][index] for key in _EXTENT)
        values = tuple(self._value(row) for row in self._rows_of(index))
        name, kind, function = sites["name"][index], KINDS[sites["kind"][index]], sites["function"][index]
        return SiteView(line, column, end_line, end_column, name, kind, function, values)

    def models(self, path: str) -> list[ModelView]:
        """The models whose class stands in `path`."""
        file = self.files.get(path)
        found = enumerate(self.payload["models"])
        return [self._model(index, model, path) for index, model in found if model["file_index"] == file]

    def parts(self, path: str) -> list[PartView]:
        """The classes in `path` that modules of some model are of; models shown for want of better do not count."""
        roots: dict[str, dict[str, None]] = {}
        for model, _, kind in self.payload["scopes"]:
            if not self.payload["models"][model].get("rest"):
                roots.setdefault(kind, {})[self.titles[model]] = None
        file = self.files.get(path)
        found = (each for each in self.payload.get("classes") or () if each["file_index"] == file)
        return [
            PartView(roots=tuple(roots.get(each["name"], ())), **{key: each[key] for key in ("name", *_EXTENT)})
            for each in found
        ]

    def node(self, index: int) -> NodeView:
        """One node, its packed map unpacked."""
        nodes = self.payload["nodes"]
        row = {key: nodes[key][index] for key in nodes}
        file, blob = row["file"], row.pop("blob")
        row |= {
            "model": self._model_name(row["model"]),
            "scope": self._scope(row["scope"]),
            "value": self.payload["values"][row["value"]] if row["value"] >= 0 else None,
            "file": self.payload["files"][file]["path"] if file >= 0 else None,
        }
        return NodeView(index=index, **row, details=unpack_blob(blob) if blob else {})

    def _model(self, index: int, model: dict[str, Any], path: str) -> ModelView:
        facts = {key: value for key, value in model.items() if key in ModelView.__dataclass_fields__}
        return ModelView(**{**facts, "snapshot": self, "index": index, "path": path})

    def _value(self, row: int) -> ValueView:
        rows = self.payload["rows"]
        node = rows["node"][row]
        scopes = tuple(scope for index in rows["scopes"][row] if (scope := self._scope(index)) is not None)
        value = self.payload["values"][rows["value"][row]]
        model = self._model_name(rows["model"][row])
        return ValueView(value, model, rows["count"][row], scopes, None if node < 0 else (self, node))

    def _scope(self, index: int) -> tuple[str, str] | None:
        if index < 0:
            return None
        _, path, kind = self.payload["scopes"][index]
        return path, kind

    def _model_name(self, index: int) -> str:
        return self.titles[index] if index >= 0 else ""

    def _rows_of(self, site: int) -> list[int]:
        if self._rows is None:
            buckets: list[list[int]] = [[] for _ in self.payload["sites"]["file"]]
            for row, owner in enumerate(self.payload["rows"]["site"]):
                buckets[owner].append(row)
            self._rows = buckets
        return self._rows[site] if self._rows else []

    def _index_of(self, file: int) -> FileIndex:
        if self._indices is None:
            members: dict[int, list[int]] = {}
            for site, owner in enumerate(self.payload["sites"]["file"]):
                members.setdefault(owner, []).append(site)
            self._indices = {owner: FileIndex(self, found) for owner, found in members.items()}
        return self._indices.get(file) or FileIndex(self, [])


class FileIndex:
    """The sites of one file of one snapshot, ordered by position, so that a few lines cost a few lines."""

    def __init__(self, snapshot: GraphSnapshot, members: list[int]) -> None:
        sites = snapshot.payload["sites"]
        lines, columns, ends, kinds = sites["line"], sites["column"], sites["end_line"], sites["kind"]
        self._snapshot = snapshot
        self._order = sorted(members, key=lambda site: (lines[site], columns[site]))
        self._lines = [lines[site] for site in self._order]
        # The furthest line that any site up to here reaches: where it falls short, no earlier site covers a line.
        self._reach = list(accumulate((ends[site] for site in self._order), max))
        self._kinds = kinds

    def between(self, first: int, last: int, kinds: frozenset[str] | None) -> Iterator[SiteView]:
        """The sites that start on the lines `first` to `last`, both included, in position order."""
        for site in self._order[bisect_left(self._lines, first) : bisect_right(self._lines, last)]:
            if kinds is None or KINDS[self._kinds[site]] in kinds:
                yield self._snapshot.site(site)

    def covering(self, line: int, column: int) -> Iterator[SiteView]:
        """The sites whose extent holds a position; a position just behind a name counts as on it."""
        sites = self._snapshot.payload["sites"]
        for place in range(bisect_right(self._lines, line) - 1, -1, -1):
            if self._reach[place] < line:
                return
            site = self._order[place]
            start = (sites["line"][site], sites["column"][site])
            if start <= (line, column) <= (sites["end_line"][site], sites["end_column"][site]):
                yield self._snapshot.site(site)


def smallest(sites: Sequence[SiteView], line: int, column: int) -> SiteView | None:
    """The site that a person means at a position: truly inside before just behind, then the smallest, then a name."""

    def rank(site: SiteView) -> tuple[Any, ...]:
        behind = (line, column) == (site.end_line, site.end_column)
        size = (site.end_line - site.line, site.end_column - site.column)
        return behind, size, _PRECEDENCE[site.kind]

    return min(sites, key=rank, default=None)
