"""One traced file, immutable: a payload and the indices that make asking it cheap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from mase_server.daemon.emissions import Emission
from mase_server.daemon.indices import FileIndex, Tables
from mase_server.daemon.transform import UNTOUCHED, Transform
from mase_server.snapshot import KINDS, TRANSFORM_NODES, Payload, Problem, titles
from mase_server.wire import Message, unpack_blob

_EXTENT = ("line", "column", "end_line", "end_column")


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a graph. `scope` is (module path, module type), `details` its NODE_BLOB map (see `snapshot`).

    format .. note: what the model's pipeline made of it, as in `snapshot.TRANSFORM_KEYS`; None where it is not known.
    hardware: the operations that it becomes, as `building.OPERATION_KEYS` has them.
    """

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
    format: str | None = None
    sqnr: float | str | None = None
    max_error: float | None = None
    note: str | None = None
    saturated: float | None = None
    hardware: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value that was seen at a site: in which model, how often, in which module instances, made by which node.

    original: the value as it was traced, where the model's pipeline made another one of it; else None.
    """

    value: Any
    model: str
    count: int
    scopes: tuple[tuple[str, str], ...]
    node: tuple[GraphSnapshot, int] | None
    original: Any = None


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
    """One model, positioned at its class name; the fields are those of `snapshot.MODEL_KEYS`.

    transform: what its pipeline made of it, a map as `Transform.told` is; None where it has none.  hardware: what was
    emitted last, maybe of an older text (`stale`); None where nobody asked.
    """

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
    guards: Sequence[str] = ()
    comment: dict[str, Any] = field(default_factory=dict)
    rest: bool = False
    sets: Sequence[str] = ()
    set: str = ""
    transform: Mapping[str, Any] | None = None
    hardware: Emission | None = None

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
        self.transforms: Mapping[int, Transform] = {}
        self.hardware: Mapping[int, Emission] = {}
        self._tables = Tables(payload)

    def with_transforms(self, transforms: Mapping[int, Transform]) -> GraphSnapshot:
        """The same trace with what pipelines made of its models, by index, instead of what this one tells of them."""
        other = copy(self)
        other.transforms = {index: found for index, found in transforms.items() if 0 <= index < len(self.titles)}
        return other

    def with_hardware(self, emissions: Mapping[int, Emission]) -> GraphSnapshot:
        """The same trace with what was emitted of its models, by index, instead of what this one tells of that."""
        other = copy(self)
        other.hardware = {index: found for index, found in emissions.items() if 0 <= index < len(self.titles)}
        return other

    @property
    def size(self) -> int:
        """How many rows the indices are built from."""
        return len(self.payload["sites"]["file"]) + len(self.payload["rows"]["site"])

    def prepare(self) -> GraphSnapshot:
        """Build the indices now."""
        self._tables.prepare()
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
        return None if file is None else FileIndex(self, self._tables.places_of(file))

    def site(self, index: int) -> SiteView:
        """One site with its values."""
        sites = self.payload["sites"]
        line, column, end_line, end_column = (sites[key][index] for key in _EXTENT)
        values = tuple(self._value(row) for row in self._tables.rows_of(index))
        name, kind, function = sites["name"][index], KINDS[sites["kind"][index]], sites["function"][index]
        return SiteView(line, column, end_line, end_column, name, kind, function, values)

    def models(self, path: str) -> list[ModelView]:
        """The models whose class stands in `path`."""
        file = self.files.get(path)
        found = enumerate(self.payload["models"])
        return [self._model(index, model, path) for index, model in found if model["file_index"] == file]

    def all_models(self) -> list[ModelView]:
        """Every model, wherever its class stands."""
        files = self.payload["files"]
        found = enumerate(self.payload["models"])
        return [self._model(index, model, files[model["file_index"]]["path"]) for index, model in found]

    def nodes_on(self, path: str, first: int, last: int) -> list[int]:
        """The nodes, by their index, that lie on the lines `first` to `last` of a file, in order of execution."""
        file, ends = self.files.get(path), self.payload["nodes"]["end_line"]
        found = [] if file is None else self._tables.nodes_of(file).reaching(first, last)
        return sorted(node for node in found if ends[node] >= first)

    def modules(self, model: int) -> frozenset[str]:
        """The paths of the modules that hold a node of a model: not those in which nothing is computed."""
        return self._tables.modules_of(model)

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
        transform = self.transforms.get(nodes["model"][index])
        facts = UNTOUCHED if transform is None else transform.node(index)
        row |= zip(TRANSFORM_NODES[1:], facts, strict=True)
        row["hardware"] = self._hardware(nodes["model"][index], index)
        return NodeView(index=index, **row, details=unpack_blob(blob) if blob else {})

    def _hardware(self, model: int, row: int) -> tuple[Mapping[str, Any], ...]:
        """The operations that a row becomes, unless they were told of another text."""
        found = self.hardware.get(model)
        return () if found is None or found.stale else found.of_row(row)

    def _model(self, index: int, model: dict[str, Any], path: str) -> ModelView:
        facts = {key: value for key, value in model.items() if key in ModelView.__dataclass_fields__}
        transform = self.transforms.get(index)
        told = None if transform is None else transform.told
        laid_over = {"transform": told, "hardware": self.hardware.get(index)}
        return ModelView(**{**facts, "snapshot": self, "index": index, "path": path, **laid_over})

    def _value(self, row: int) -> ValueView:
        rows = self.payload["rows"]
        node = rows["node"][row]
        scopes = tuple(scope for index in rows["scopes"][row] if (scope := self._scope(index)) is not None)
        value = self.payload["values"][rows["value"][row]]
        model = rows["model"][row]
        transform = self.transforms.get(model)
        now = value if transform is None else transform.values.get(row, value)
        ref = None if node < 0 else (self, node)
        original = None if now == value else value
        return ValueView(now, self._model_name(model), rows["count"][row], scopes, ref, original)

    def _scope(self, index: int) -> tuple[str, str] | None:
        if index < 0:
            return None
        _, path, kind = self.payload["scopes"][index]
        return path, kind

    def _model_name(self, index: int) -> str:
        return self.titles[index] if index >= 0 else ""
