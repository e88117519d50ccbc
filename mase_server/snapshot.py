"""The payload that a trace child sends: what was traced, as columns.

This module is the contract between the compiler half (which builds payloads) and the daemon half (which reads them).
It imports next to nothing but the standard library, because both halves load it.

A payload crosses the wire as one *head*, any number of *chunks* and one *tail* (see `split` and `Assembler`), so that
the server's event loop never unpacks more than a few hundred rows at a time.

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
from typing import Any

from mase_server.visible import reveal, reveal_lines

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
NODE_BLOB = {
    "args": "list of [MASE argument name, value or text]",
    "module": "text of the module as torch prints it, e.g. Linear(in_features=768, out_features=3072, bias=True)",
    "module_path": "qualified name in the model, e.g. transformer.h.0.mlp.c_fc",
    "parameters": "{name: value} of the module's own parameters",
    "parameter_count": "int", "parameter_bytes": "int", "bytes": "bytes read and written",
    "stack": "list of [file index, line, column, end_line, end_column, function], innermost first",
    "input_nodes": "list of node indices",
}  # fmt: skip

Payload = dict[str, Any]


#: Characters of a diagnostic's message.
MOST_TEXT = 8000


@dataclass(frozen=True, slots=True)
class Problem:
    """A diagnostic at a place in a file, with its explanation and its mends.

    severity: "error" | "warning" | "information" | "hint".  code: a stable identifier, e.g. "shape-mismatch".
    related: places that explain it, each {file, line, column, end_line, end_column, message}, innermost call first.
    fixes: {"title", "preferred": bool, "edits": [{file, line, column, end_line, end_column, new_text}]}.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: str
    code: str
    message: str
    related: list[dict[str, Any]] = field(default_factory=list)
    fixes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make visible what is shown of it, wherever it came from: an exception may say anything."""
        object.__setattr__(self, "message", reveal_lines(self.message))
        related = [{**each, "message": reveal_lines(each["message"])} for each in self.related]
        object.__setattr__(self, "related", related)
        fixes = [{**each, "title": reveal(each["title"])} for each in self.fixes]
        object.__setattr__(self, "fixes", fixes)

    def bounded(self) -> Problem:
        """The same, the message no longer than anybody reads: an exception's text may be as long as a tensor's."""
        left = len(self.message) - MOST_TEXT
        return self if left <= 0 else replace(self, message=f"{self.message[:MOST_TEXT]}… ({left:,} characters more)")


#: Keys of a payload that are not tables.
HEAD_KEYS = (
    "schema", "file", "sha256", "generation", "python", "torch", "seconds", "complete",
    "models",    # list of maps, see MODEL_KEYS
    "files",     # list of {"path", "sha256", "library": bool}; the other tables refer to files by index; 0 is `file`
    "values",    # interned values
    "scopes",    # list of [model index, module path, module type name]
    "classes",   # list of CLASS_KEYS maps: the class statements, in the workspace's files, of the modules in "scopes"
    "problems",  # list of Problem as maps
    "dependencies",  # list of [kind, path, seen], see `dependencies.Dependency`: what it read and looked for
    "preload",   # names of the third-party top-level modules that it imported (for the next warm parent)
    "fit",       # opaque to the server; handed back with the next trace of this file
    "weights",   # list of WEIGHTS_KEYS maps, one for each model
    "transforms",  # what pipelines made of its models, list of TRANSFORM_KEYS maps
)  # fmt: skip

#: Keys of one model: `line` .. `end_column` is the class name in its file (`file_index`).
MODEL_KEYS = {
    "name": "class name", "file_index": "int", "line": "int", "column": "int", "end_line": "int", "end_column": "int",
    "arguments": "{constructor argument: plain value or text}",
    "inputs": "{forward parameter: value}; tensors as {dtype, shape, symbols} nested like values",
    "inputs_from": "option|comment|settings|main|instance|usage|search", "arguments_from": "the same words, or default",
    "found": "one sentence on how they were found, for the lens and the hover",
    "mode": "eval|train", "rung": "meta|fake|real: what the values ran on",
    "nodes": "int", "parameters": "int", "parameter_bytes": "int",
    "flops": "int; None while the payload is not complete: it then has no nodes",
    "generic": "bool: proven at other sizes", "symbols": "{symbol: size in this run}",
    "fixed": "texts on what the graph is fixed to, e.g. 'fixed to batch 2'",
    "guards": "texts on what the graph takes for granted of sizes and values, e.g. 'T <= 512 at model.py:12'",
    "seconds": "float, time of the recording alone",
    "rest": "bool: shown alone because no other model has it",
    "sets": "names of the sets of inputs that comments give it", "set": "the set that is used, '' for none",
    "comment": "{text, why, inputs, line, column}: the `# mase:` comment that asks for what was assumed, without its "
    "`#`, and above which line it goes; None where `why` says what has no text form; inputs: the one for these alone; "
    "written: the comments about it, {line, column, end_column, set, text, own, skip} each",
    "form": "{call, arguments, inputs}: what a person may change, see `inputs.form`; only where a trial was asked for",
}  # fmt: skip


#: Keys of one class: `line` .. `end_column` is its name.
CLASS_KEYS = ("name", "file_index", "line", "column", "end_line", "end_column")


#: Columns of the parameters of one model, as `named_parameters` lists them, shared ones under each of their names.
WEIGHTS_KEYS = {
    "name": "e.g. transformer.h.0.mlp.c_fc.weight", "elements": "int", "bytes": "int",
    "same": "index of the first name of the same parameter: its own, unless it is shared",
}  # fmt: skip


#: What a pipeline of passes made of one model: it lies over the payload of the model as it was traced.
TRANSFORM_KEYS = {
    "model": "index into models",
    "steps": "list of {pass, arguments, title, seconds, info, report}: in order; info: what it did, in words; report: "
    "the text that a pass of that kind writes, else None",
    "rows": "[rows of the table rows], [their values now]: as in values, the number format for the element type",
    "nodes": "columns row (in nodes), format, sqnr (dB), max_error, note (e.g. 'taken together with conv1'), saturated "
    "(the share of its values that its formats do not hold, 0 to 1); None each where it is not known",
    "formats": "{number format: bits of an element on average}: every format that `rows` and `nodes` name",
    "summary": "{nodes, parameters, parameter_bytes, data_bits, weight_bits: [before, after] each; sqnr, max_error: of "
    "the output; saturated: of all values}; these three are None until measured, sqnr is 'inf' where nothing differs",
    "inputs": "on what inputs the errors were measured, in words; '' until measured",
    "weights": "whose values: in words, e.g. 'weights that model.pt gave' or 'random weights (seed 0)'; '' until then",
    "complete": "bool: no more is coming",
    "problem": "why it stopped, and at which step; None where all steps were applied",
    "failed": "index of the step that failed, or None",
}


#: The columns of a transform's "nodes".
TRANSFORM_NODES = ("row", "format", "sqnr", "max_error", "note", "saturated")


def tensors(value: Any) -> Iterator[list[Any]]:
    """Every tensor in a value, in order."""
    if isinstance(value, list | tuple):
        yield list(value)
    elif isinstance(value, dict):
        parts = value.get("tuple") or (value.get("dict") or {}).values()
        for part in parts:
            yield from tensors(part)


def titles(names: Sequence[str]) -> list[str]:
    """A name of its own for each model: `Net`, and `Net #2` for another of the same class."""
    return [
        name if names.index(name) == index else f"{name} #{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def split(payload: Payload) -> Iterator[dict[str, Any]]:
    """Cut a payload into frames: one {"head": ...}, then {"table", "start", "columns"} chunks, then {"tail": rows}.

    What its transforms hold goes between, as {"transform": frame}, see `split_transform`.
    """
    yield {"head": {key: payload[key] for key in HEAD_KEYS} | {"transforms": []}}
    for transform in payload["transforms"] or ():
        yield from ({"transform": frame} for frame in split_transform(transform))
    counts = {}
    for table, names in COLUMNS.items():
        columns = payload[table]
        rows = counts[table] = len(columns[names[0]])
        for start in range(0, rows, CHUNK_ROWS):
            part = {name: columns[name][start : start + CHUNK_ROWS] for name in names}
            yield {"table": table, "start": start, "columns": part}
    yield {"tail": counts}


def split_transform(transform: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cut what a pipeline made into frames: {"head": ...}, {"rows": ...} and {"nodes": ...} chunks, {"tail": sizes}."""
    rows, nodes = transform["rows"], transform["nodes"]
    yield {"head": {key: value for key, value in transform.items() if key not in ("rows", "nodes")}}
    for start in range(0, len(rows[0]), CHUNK_ROWS):
        yield {"rows": [column[start : start + CHUNK_ROWS] for column in rows]}
    for start in range(0, len(nodes["row"]), CHUNK_ROWS):
        yield {"nodes": {name: column[start : start + CHUNK_ROWS] for name, column in nodes.items()}}
    yield {"tail": [len(rows[0]), len(nodes["row"])]}


class TransformAssembler:
    """Puts frames made by `split_transform` together again; `add` gives the map at the tail, None before it."""

    def __init__(self) -> None:
        self._transform: dict[str, Any] | None = None

    def add(self, frame: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take one frame; ValueError for one that does not fit."""
        if "head" in frame:
            self._transform = {**frame["head"], "rows": [[], []], "nodes": {name: [] for name in TRANSFORM_NODES}}
            return None
        if (found := self._transform) is None:
            raise ValueError(f"a frame of a transform with keys {sorted(frame)} arrived before any head")
        if "tail" in frame:
            self._transform = None
            sizes = [len(found["rows"][0]), len(found["nodes"]["row"])]
            if list(frame["tail"]) != sizes:
                raise ValueError(f"a transform has {sizes} rows and nodes, expected {frame['tail']}")
            return found
        for column, part in zip(found["rows"], frame.get("rows", ([], [])), strict=True):
            column.extend(part)
        for name, part in frame.get("nodes", {}).items():
            found["nodes"][name].extend(part)
        return None


class Assembler:
    """Puts frames made by `split` together again.

    `add` returns the payload at the tail, None before it, and raises ValueError for a frame that does not fit.
    """

    def __init__(self) -> None:
        self._payload: Payload | None = None
        self._transform = TransformAssembler()

    def add(self, frame: dict[str, Any]) -> Payload | None:
        """Take one frame; the finished payload once the tail has arrived."""
        if "head" in frame:
            self._payload = {**frame["head"], "transforms": []}
            self._payload |= {table: {name: [] for name in names} for table, names in COLUMNS.items()}
            return None
        if self._payload is None:
            raise ValueError(f"a frame with keys {sorted(frame)} arrived before any head")
        if "tail" in frame:
            return self._finish(frame["tail"])
        if "transform" in frame:
            if (transform := self._transform.add(frame["transform"])) is not None:
                self._payload["transforms"].append(transform)
            return None
        self._extend(frame["table"], frame["start"], frame["columns"])
        return None

    def _extend(self, table: str, start: int, columns: dict[str, Sequence[Any]]) -> None:
        assert self._payload is not None
        for name in COLUMNS[table]:
            column = self._payload[table][name]
            if len(column) != start:
                raise ValueError(f"chunk of {table}.{name} starts at row {start}, expected {len(column)}")
            column.extend(columns[name])

    def _finish(self, counts: dict[str, int]) -> Payload:
        payload, self._payload = self._payload, None
        assert payload is not None
        for table, names in COLUMNS.items():
            rows = len(payload[table][names[0]])
            if rows != counts[table]:
                raise ValueError(f"table {table} has {rows} rows, expected {counts[table]}")
        return payload
