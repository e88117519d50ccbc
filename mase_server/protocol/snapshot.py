"""The payload of a trace child: the results of a trace, as columns.

This module is the contract between the compiler half (which builds payloads) and the daemon half (which reads them).
It imports almost only the standard library, because both halves load it.

A payload crosses the wire as one *head*, any number of *chunks* and one *tail* (see `split_payload` and `Assembler`),
so that the server's event loop never unpacks more than a few hundred rows at a time.

Positions: lines count from 1; columns count from 0 in Unicode code points; ends are exclusive. Paths are absolute.

A **value** describes what a name was bound to:

- a tensor is ``[dtype, shape, symbols]``, e.g. ``["f32", [2, 16, 768], ["B", "T", "768"]]``; ``symbols`` is ``None``
  while the dimensions have not been probed yet;
- a tuple, list or named tuple is ``{"tuple": [value, ...]}``;
- a dict or a model output is ``{"dict": {key: value}}``;
- ``None`` is ``None``; anything else is ``{"python": "type name"}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from mase_server.protocol.records import (
    ClassRecord,
    Command,
    FileRecord,
    Fix,
    NodeDetails,
    ProblemRecord,
    Related,
    Summary,
    TracedModel,
    TransformFacts,
    TransformRecord,
    UnrunCode,
    UnshownModel,
    Value,
    WeightColumns,
    key_meanings,
)
from mase_server.visible import hide_addresses, reveal, reveal_lines

SCHEMA = 1
CHUNK_ROWS = 400

KINDS = ("parameter", "binding", "return", "expression")

#: The columns of each table of a payload. Every column of one table has the same length.
COLUMNS: dict[str, tuple[str, ...]] = {
    # A place in a source file that held tensors while the model ran. `kind` indexes KINDS. `name` is the bound name,
    # "" for returns and expressions; `function` is the qualified name of the enclosing function, "" at module level.
    "sites": ("file", "line", "column", "end_line", "end_column", "name", "kind", "function"),
    # One row for each distinct value seen at a site. `site`, `value`, `model` are indices; `count` is how often the
    # value was seen; `scopes` is a list of indices into "scopes" (module instances, at most MAX_SCOPES of them);
    # `node` is the index of the node that made the first such value, or -1.
    "rows": ("site", "value", "model", "count", "scopes", "node"),
    # Every fx node, in execution order. `blob` is one packed map (see NODE_BLOB) that only a hover unpacks.
    # `file` is -1 where the position is unknown. `user_*` is the innermost frame in the workspace's own files.
    "nodes": (
        "name", "op", "target", "mase_op", "mase_type", "family", "model", "scope", "value", "flops",
        "file", "line", "column", "end_line", "end_column", "blob",
    ),
}  # fmt: skip

MAX_SCOPES = 64

#: Keys of a node's packed map; absent keys do not apply.
NODE_BLOB = key_meanings(NodeDetails)

#: A table of a payload: its columns, all of one length, under the names that COLUMNS has.
Table = dict[str, list[Any]]


#: A module instance: (model index, module path, module type name); a list once it crossed the wire.
Scope = tuple[int, str, str]


class PayloadHead(TypedDict):
    """The keys of a payload that are not tables. scopes, files and values: the tables refer to these by index."""

    schema: int
    file: str
    sha256: str
    generation: int
    python: str
    torch: str
    seconds: float
    complete: bool
    models: list[TracedModel]
    files: list[FileRecord]  # the first one is `file`
    values: list[Value]
    scopes: list[Scope]
    classes: list[ClassRecord]  # the class statements, in the workspace's files, of the modules in `scopes`
    problems: list[ProblemRecord]
    unshown: list[UnshownModel]  # the file's own models that none of `models` shows
    unrun: list[UnrunCode]  # code of the shown models that did not run
    dependencies: list[list[Any]]  # [kind, path, seen], see `dependencies.Dependency`: what it read and looked for
    preload: list[str]  # the third-party top-level modules that it imported (for the next warm parent)
    fit: bytes  # opaque to the server; handed back with the next trace of this file
    weights: list[WeightColumns]  # one for each model
    transforms: list[TransformRecord]  # what pipelines made of its models


class Payload(PayloadHead):
    """All that a trace tells of a file."""

    sites: Table
    rows: Table
    nodes: Table


#: The keys of a payload that are not tables.
HEAD_KEYS = tuple(PayloadHead.__annotations__)
#: A part of a payload or of a transform, as `split_payload` and `split_transform` cut them.
Frame = dict[str, Any]

#: Maximum characters of a diagnostic's message.
MOST_TEXT = 8000


#: Of an error in the project's own code.
NOBODY = (
    "No line of this file raised it: perhaps the file changes what everything uses, such as a builtin or a function of "
    "the standard library."
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A diagnostic at a place in a file, with its explanation and its fixes.

    severity: "error" | "warning" | "information" | "hint".  code: a stable identifier, e.g. "shape-mismatch".
    related: places that explain it, each {file, line, column, end_line, end_column, message}, innermost call first.
    fixes: {"title", "preferred": bool, "edits": [{file, line, column, end_line, end_column, new_text}]}.
    command: a program that mends it, such as an installation; it runs in a terminal, and only if the user chooses so.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: str
    code: str
    message: str
    related: list[Related] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    command: Command | None = None

    def __post_init__(self) -> None:
        """Make the shown texts visible, whatever their origin: an exception may contain any characters."""
        object.__setattr__(self, "message", reveal_lines(hide_addresses(self.message)))
        related: list[Related] = [
            {**each, "message": reveal_lines(hide_addresses(each["message"]))} for each in self.related
        ]
        object.__setattr__(self, "related", related)
        fixes: list[Fix] = [{**each, "title": reveal(each["title"])} for each in self.fixes]
        object.__setattr__(self, "fixes", fixes)

    def to_wire(self) -> ProblemRecord:
        """As a map of plain values, under the names of the fields."""
        return {
            "file": self.file, "line": self.line, "column": self.column,
            "end_line": self.end_line, "end_column": self.end_column,
            "severity": self.severity, "code": self.code, "message": self.message,
            "related": self.related, "fixes": self.fixes, "command": self.command,
        }  # fmt: skip

    def bounded(self) -> Problem:
        """The same with a message of bounded length: an exception's text may be as long as a tensor's."""
        left = len(self.message) - MOST_TEXT
        return self if left <= 0 else replace(self, message=f"{self.message[:MOST_TEXT]}… ({left:,} characters more)")


#: Keys of one model, of one class, of the columns of a model's parameters, of what a pipeline made of a model.
MODEL_KEYS = key_meanings(TracedModel)
CLASS_KEYS = tuple(ClassRecord.__annotations__)
WEIGHTS_KEYS = key_meanings(WeightColumns)
TRANSFORM_KEYS = key_meanings(TransformRecord)


#: The columns of a transform's "nodes".
TRANSFORM_NODES = ("row", "format", "sqnr", "max_error", "note", "saturated")


def share_text(share: float) -> str:
    """A share from 0 to 1 as `0.4 %`; a share above zero is never shown as 0 %."""
    percent = 100 * share
    return "0 %" if not share else "< 0.1 %" if percent < 0.1 else f"{percent:.2g} %" if percent < 99.5 else "100 %"


def effect_texts(summary: Summary | None) -> list[str]:
    """The effect of passes on a model's parameters: `LoRA rank 8`, `1.2 % trainable`, `50 % pruned`; [] for none."""
    summary = summary or {}
    ranks, trainable = summary.get("ranks"), summary.get("trainable")
    count = (summary.get("parameters") or [0])[-1]
    found = [f"LoRA rank {', '.join(map(str, ranks))}"] if ranks else []
    found += [f"{share_text(trainable[-1] / count)} trainable"] if trainable and count else []
    return found + ([f"{share_text(summary['sparsity'])} pruned"] if summary.get("sparsity") else [])


def iterate_tensor_values(value: Any) -> Iterator[list[Any]]:
    """Every tensor in a value, in order."""
    if isinstance(value, list | tuple):
        yield list(value)
    elif isinstance(value, dict):
        parts = value.get("tuple") or (value.get("dict") or {}).values()
        for part in parts:
            yield from iterate_tensor_values(part)


def unique_titles(names: Sequence[str]) -> list[str]:
    """A unique name for each model: `Net`, and `Net #2` for another of the same class."""
    return [
        name if names.index(name) == index else f"{name} #{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def split_payload(payload: Payload) -> Iterator[Frame]:
    """Cut a payload into frames: one {"head": ...}, then {"table", "start", "columns"} chunks, then {"tail": rows}.

    Its transforms go in between, as {"transform": frame}, see `split_transform`.
    """
    given: Mapping[str, Any] = {**payload}
    yield {"head": {key: given[key] for key in HEAD_KEYS} | {"transforms": []}}
    for transform in payload["transforms"] or ():
        yield from ({"transform": frame} for frame in split_transform(transform))
    counts = {}
    for table, names in COLUMNS.items():
        columns = given[table]
        rows = counts[table] = len(columns[names[0]])
        for start in range(0, rows, CHUNK_ROWS):
            part = {name: columns[name][start : start + CHUNK_ROWS] for name in names}
            yield {"table": table, "start": start, "columns": part}
    yield {"tail": counts}


def facts_of_transform(transform: TransformRecord) -> TransformFacts:
    """The result of a pipeline on a model, without its tables."""
    facts: TransformFacts = {
        "model": transform["model"], "steps": transform["steps"], "summary": transform["summary"],
        "inputs": transform["inputs"], "weights": transform["weights"], "complete": transform["complete"],
        "problem": transform["problem"], "failed": transform["failed"],
    }  # fmt: skip
    if "formats" in transform:
        facts["formats"] = transform["formats"]
    return facts


def split_transform(transform: TransformRecord) -> Iterator[Frame]:
    """Cut what a pipeline made into frames: {"head": ...}, {"rows": ...} and {"nodes": ...} chunks, {"tail": sizes}."""
    rows, nodes = transform["rows"], transform["nodes"]
    yield {"head": facts_of_transform(transform)}
    for start in range(0, len(rows[0]), CHUNK_ROWS):
        yield {"rows": [column[start : start + CHUNK_ROWS] for column in rows]}
    for start in range(0, len(nodes["row"]), CHUNK_ROWS):
        yield {"nodes": {name: column[start : start + CHUNK_ROWS] for name, column in nodes.items()}}
    if made := transform.get("inserted"):
        yield {"inserted": made, "rewired": transform.get("rewired", [])}
    yield {"tail": [len(rows[0]), len(nodes["row"])]}


class TransformAssembler:
    """Reassembles the frames of `split_transform`; `add` returns the map at the tail, None before it."""

    def __init__(self) -> None:
        self._transform: TransformRecord | None = None

    def add(self, frame: Mapping[str, Any]) -> TransformRecord | None:
        """Take one frame; ValueError if it does not fit."""
        if "head" in frame:
            head: TransformFacts = frame["head"]
            nodes: dict[str, list[Any]] = {name: [] for name in TRANSFORM_NODES}
            self._transform = {**head, "rows": [[], []], "nodes": nodes, "inserted": [], "rewired": []}
            return None
        if (found := self._transform) is None:
            raise ValueError(f"a frame of a transform with keys {sorted(frame)} arrived before any head")
        if "tail" in frame:
            self._transform = None
            sizes = [len(found["rows"][0]), len(found["nodes"]["row"])]
            if list(frame["tail"]) != sizes:
                raise ValueError(f"a transform has {sizes} rows and nodes, expected {frame['tail']}")
            return found
        if "inserted" in frame:
            found["inserted"], found["rewired"] = frame["inserted"], frame["rewired"]
        for column, part in zip(found["rows"], frame.get("rows", ([], [])), strict=True):
            column.extend(part)
        for name, part in frame.get("nodes", {}).items():
            found["nodes"][name].extend(part)
        return None


class Assembler:
    """Reassembles the frames of `split_payload`.

    `add` returns the payload at the tail, None before it, and raises ValueError for a frame that does not fit.
    """

    def __init__(self) -> None:
        self._payload: Payload | None = None
        self._tables: dict[str, Table] = {}
        self._transform = TransformAssembler()

    def add(self, frame: Frame) -> Payload | None:
        """Take one frame; returns the finished payload once the tail has arrived."""
        if "head" in frame:
            self._tables = {table: {name: [] for name in names} for table, names in COLUMNS.items()}
            head: PayloadHead = frame["head"]
            sites, rows, nodes = (self._tables[table] for table in ("sites", "rows", "nodes"))
            self._payload = {**head, "transforms": [], "sites": sites, "rows": rows, "nodes": nodes}
            return None
        if self._payload is None:
            raise ValueError(f"a frame with keys {sorted(frame)} arrived before any head")
        if "tail" in frame:
            return self._finish_payload(frame["tail"])
        if "transform" in frame:
            if (transform := self._transform.add(frame["transform"])) is not None:
                self._payload["transforms"].append(transform)
            return None
        self._extend_table(frame["table"], frame["start"], frame["columns"])
        return None

    def _extend_table(self, table: str, start: int, columns: dict[str, Sequence[Any]]) -> None:
        for name in COLUMNS[table]:
            column = self._tables[table][name]
            if len(column) != start:
                raise ValueError(f"chunk of {table}.{name} starts at row {start}, expected {len(column)}")
            column.extend(columns[name])

    def _finish_payload(self, counts: dict[str, int]) -> Payload:
        payload, self._payload = self._payload, None
        assert payload is not None
        for table, names in COLUMNS.items():
            rows = len(self._tables[table][names[0]])
            if rows != counts[table]:
                raise ValueError(f"table {table} has {rows} rows, expected {counts[table]}")
        return payload
