"""One traced file, immutable: the payload, the indices that make queries cheap, and what passes made of its models."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from mase_server.daemon.emissions import Emission
from mase_server.daemon.slots import let_go
from mase_server.protocol import answers
from mase_server.protocol.answers import DeviceCosts
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import (
    InsertedNode,
    ModelComment,
    ModelRecord,
    NodeDetails,
    Operation,
    Plain,
    TransformRecord,
    UnrunCode,
    Value,
)
from mase_server.protocol.snapshot import KINDS, TRANSFORM_NODES, Payload, Problem, facts_of_transform, unique_titles
from mase_server.protocol.wire import unpack_blob

# The result of a pipeline of passes on one model, as an overlay over a snapshot.

#: The overlay's facts about one node: (format, SQNR in dB, max error, note, saturated share); unknown ones are None.
NodeFacts = tuple[Any, ...]
UNTOUCHED: NodeFacts = (None,) * (len(TRANSFORM_NODES) - 1)


@dataclass(frozen=True, slots=True)
class Transform:
    """One overlay. model: its index in the payload.  values: row of the table rows -> its value now.

    nodes: the columns as received.  places: row of the table nodes -> its place in these columns.
    told: all other results, as `snapshot.TRANSFORM_KEYS` has them, and "texts": its steps as texts.
    inserted, rewired: as in `TRANSFORM_KEYS`.
    """

    model: int
    values: Mapping[int, Any]
    nodes: Mapping[str, Sequence[Any]]
    places: Mapping[int, int]
    told: answers.Transform
    inserted: Sequence[InsertedNode] = ()
    rewired: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, data: TransformRecord) -> Transform:
        """Convert a map that a child sent; KeyError, TypeError or ValueError if it is malformed."""
        texts = [str(Step.from_wire(step)) for step in data["steps"]]
        told: answers.Transform = {**facts_of_transform(data), "texts": texts}
        nodes, (rows, values) = data["nodes"], data["rows"]
        sizes = {len(rows) - len(values), *(len(nodes[name]) - len(nodes["row"]) for name in TRANSFORM_NODES)}
        if sizes != {0}:
            raise ValueError(f"the columns of a transform of model {data['model']} are not of one length")
        # This runs on the event loop: one object per row would burden the collector.
        places = dict(zip(nodes["row"], range(len(nodes["row"])), strict=True))
        rewired = {int(row): inputs for row, inputs in data.get("rewired", ())}
        changed = dict(zip(rows, values, strict=True))
        return cls(data["model"], changed, nodes, places, told, data.get("inserted", ()), rewired)

    @classmethod
    def nothing(cls, model: int, failed: int | None, problem: str) -> Transform:
        """The overlay where not even the first step was applied, and why; `failed` is the index of the failed step."""
        told: answers.Transform = {
            "model": model, "steps": [], "texts": [], "summary": {}, "inputs": "", "weights": "",
            "complete": True, "problem": problem, "failed": failed,
        }  # fmt: skip
        return cls(model, {}, {}, {}, told)

    def node(self, row: int) -> NodeFacts:
        """The facts about one node."""
        place = self.places.get(row)
        return UNTOUCHED if place is None else tuple(self.nodes[name][place] for name in TRANSFORM_NODES[1:])

    @property
    def failed(self) -> bool:
        """Did one of its steps fail?"""
        return self.told["failed"] is not None

    @property
    def complete(self) -> bool:
        """Are all its results here?"""
        return bool(self.told["complete"])

    def stopped(self, why: str | None) -> Transform:
        """The same overlay, marked as final, with the reason if it was stopped early."""
        return replace(self, told={**self.told, "complete": True, "problem": why})


# Indices of a payload's tables: the rows of a site, the sites and nodes of some lines, the modules of a model.

#: Among places of equal extent, the smallest number is the one that the user means.
_PRECEDENCE = {"parameter": 0, "binding": 1, "return": 2, "expression": 3}


class Tables:
    """The indices of a payload, shared by all its snapshots. When they are freed, the payload is freed in pieces."""

    # Not cached_property: in Python 3.11 it has one lock for all instances, so the event loop could wait for a thread.
    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._rows: list[list[int]] | None = None
        self._find_model_places: dict[int, Places] | None = None
        self._nodes: dict[int, Places] | None = None
        self._modules: dict[int, frozenset[str]] | None = None
        tables = (payload["sites"], payload["rows"], payload["nodes"])
        self._parts = [column for table in tables for column in table.values()]
        weakref.finalize(self, let_go, self._parts).atexit = False

    def prepare(self) -> None:
        """Build the indices now."""
        self.rows_of(0)
        self.places_of(0)
        self.nodes_of(0)
        self.modules_of(0)

    def rows_of(self, site: int) -> list[int]:
        """The rows of one site."""
        if self._rows is None:
            buckets: list[list[int]] = [[] for _ in self._payload["sites"]["file"]]
            for row, owner in enumerate(self._payload["rows"]["site"]):
                buckets[owner].append(row)
            self._rows = buckets
            self._parts.append(buckets)
        return self._rows[site] if self._rows else []

    def places_of(self, file: int) -> Places:
        """The sites of one file."""
        if self._find_model_places is None:
            self._find_model_places = _by_file(self._payload["sites"])
        return self._find_model_places.get(file) or Places({}, [])

    def nodes_of(self, file: int) -> Places:
        """The nodes of one file."""
        if self._nodes is None:
            self._nodes = _by_file(self._payload["nodes"])
        return self._nodes.get(file) or Places({}, [])

    def modules_of(self, model: int) -> frozenset[str]:
        """The paths of the modules that hold a node of a model, at any depth."""
        if self._modules is None:
            nodes, scopes = self._payload["nodes"], self._payload["scopes"]
            found: dict[int, set[str]] = {}
            for op, owner, target, scope in zip(
                *(nodes[key] for key in ("op", "model", "target", "scope")), strict=True
            ):
                paths = found.setdefault(owner, set())
                _add_with_above(paths, target if op == "call_module" else scopes[scope][1] if scope >= 0 else "")
            self._modules = {owner: frozenset(paths) for owner, paths in found.items()}
        return self._modules.get(model, frozenset())


def _add_with_above(paths: set[str], path: str) -> None:
    """Add a path and the paths of the modules around it."""
    while path and path not in paths:
        paths.add(path)
        path = path.rpartition(".")[0]


def _by_file(table: Mapping[str, Sequence[int]]) -> dict[int, Places]:
    members: dict[int, list[int]] = {}
    for row, owner in enumerate(table["file"]):
        members.setdefault(owner, []).append(row)
    return {owner: Places(table, found) for owner, found in members.items()}


class Places:
    """The sites, or the nodes, of one file, ordered by position."""

    def __init__(self, table: Mapping[str, Sequence[int]], members: list[int]) -> None:
        self.order = sorted(members, key=lambda row: (table["line"][row], table["column"][row]))
        self.lines = [table["line"][row] for row in self.order]
        # The furthest line that any row up to here reaches: if it is too small, no earlier row covers a line.
        self.reach = list(accumulate((table["end_line"][row] for row in self.order), max))

    def reaching(self, first: int, last: int) -> list[int]:
        """The rows that may lie on the lines `first` to `last`; may include some that end before them."""
        end = start = bisect_right(self.lines, last)
        while start and self.reach[start - 1] >= first:
            start -= 1
        return self.order[start:end]


class FileIndex:
    """The sites of one file of one snapshot, ordered by position, so that reading a few lines is cheap."""

    def __init__(self, snapshot: GraphSnapshot, places: Places) -> None:
        self._snapshot = snapshot
        self._find_model_places = places

    def between(self, first: int, last: int, kinds: frozenset[str] | None) -> Iterator[SiteView]:
        """The sites that start on the lines `first` to `last`, inclusive, in order of position."""
        lines, of_kind = self._find_model_places.lines, self._snapshot.payload["sites"]["kind"]
        for site in self._find_model_places.order[bisect_left(lines, first) : bisect_right(lines, last)]:
            if kinds is None or KINDS[of_kind[site]] in kinds:
                yield self._snapshot.site(site)

    def covering(self, line: int, column: int) -> Iterator[SiteView]:
        """The sites whose extent holds a position; a position right behind a name counts as on it."""
        sites, places = self._snapshot.payload["sites"], self._find_model_places
        for place in range(bisect_right(places.lines, line) - 1, -1, -1):
            if places.reach[place] < line:
                return
            site = places.order[place]
            start = (sites["line"][site], sites["column"][site])
            if start <= (line, column) <= (sites["end_line"][site], sites["end_column"][site]):
                yield self._snapshot.site(site)


def find_smallest_site(sites: Sequence[SiteView], line: int, column: int) -> SiteView | None:
    """The site that a user means at a position: first those that contain it, then the smallest, then a name."""

    def rank(site: SiteView) -> tuple[Any, ...]:
        behind = (line, column) == (site.end_line, site.end_column)
        size = (site.end_line - site.line, site.end_column - site.column)
        return behind, size, _PRECEDENCE[site.kind]

    return min(sites, key=rank, default=None)


_EXTENT = ("line", "column", "end_line", "end_column")


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a graph. `scope` is (module path, module type), `details` its NODE_BLOB map (see `snapshot`).

    format .. note: results of the model's pipeline, as in `snapshot.TRANSFORM_KEYS`; None if unknown.
    hardware: the operations it becomes, as `building.OPERATION_KEYS` has them.
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
    details: NodeDetails
    format: str | None = None
    sqnr: float | str | None = None
    max_error: float | None = None
    note: str | None = None
    saturated: float | None = None
    hardware: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value seen at a site: its model, how often it occurred, in which module instances, and the node that made it.

    original: the value as traced, if the model's pipeline changed it; else None.
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
        """The extent as (line, column, end line, end column)."""
        return self.line, self.column, self.end_line, self.end_column


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model, positioned at its class name; the fields are those of `snapshot.MODEL_KEYS`.

    transform: the result of its pipeline, a map like `Transform.told`; None if it has none.  hardware: the last
    emission, possibly of an older text (`stale`); None if nothing was emitted.
    """

    snapshot: GraphSnapshot = field(repr=False)
    index: int
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    arguments: dict[str, Plain]
    inputs: dict[str, Value]
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
    complete: bool = True
    comment: ModelComment = field(default_factory=ModelComment)
    rest: bool = False
    sets: Sequence[str] = ()
    set: str = ""
    builders: Sequence[str] = ()
    builder: str = ""
    transform: answers.Transform | None = None
    hardware: Emission | None = None

    @property
    def title(self) -> str:
        """Its name, or a numbered name if another model of the same trace has the same name."""
        return self.snapshot.titles[self.index]


@dataclass(frozen=True, slots=True)
class PartView:
    """A class statement, positioned at its name, and the titles of the models that have modules of this class."""

    name: str
    line: int
    column: int
    end_line: int
    end_column: int
    roots: tuple[str, ...]


@dataclass(slots=True)
class NodeRun:
    """The share of a part of a model in a run on a device. moved: bytes read and written.  held: those of activations
    at the peak.  bounds: seconds by what bounds them."""

    flops: float = 0
    moved: float = 0
    held: float = 0
    bounds: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The estimated time."""
        return sum(self.bounds.values())

    @property
    def bound(self) -> str:
        """The bound of most of the time."""
        return max(self.bounds, key=self.bounds.__getitem__, default="")

    def add(self, other: NodeRun, share: float = 1) -> None:
        """Count a share of another part, too."""
        self.flops += share * other.flops
        self.moved += share * other.moved
        self.held += share * other.held
        for bound, seconds in other.bounds.items():
            self.bounds[bound] = self.bounds.get(bound, 0.0) + share * seconds


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run of a model on a device that clients show, without its trace. text: that of the file.  nodes: by row.

    rest: what no node is known for, by the path of its module.  before: the run of the last other text.
    """

    path: str
    sha256: str
    generation: int
    text: str
    told: DeviceCosts
    nodes: Mapping[int, NodeRun]
    rest: Mapping[str, NodeRun]
    before: ShownRun | None = None


def is_same_trace(one: GraphSnapshot | ShownRun | None, other: GraphSnapshot | ShownRun | None) -> bool:
    """A trace has several snapshots: first numbers, later symbols and passes."""
    if one is None or other is None:
        return False
    return (one.sha256, one.generation) == (other.sha256, other.generation)


class GraphSnapshot:
    """The result of one trace of the model file `path`; `sha256` is of the source it was traced from.

    Indices are built on first use, or ahead by `prepare`, which may run in a thread: building is idempotent.
    """

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.path: str = payload["file"]
        self.sha256: str = payload["sha256"]
        self.generation: int = payload["generation"]
        self.complete: bool = payload["complete"]
        self.files: dict[str, int] = {file["path"]: index for index, file in enumerate(payload["files"])}
        self.titles = unique_titles([model["name"] for model in payload["models"]])
        self.problems = tuple(Problem(**problem) for problem in payload["problems"])
        self.transforms: Mapping[int, Transform] = {}
        self.hardware: Mapping[int, Emission] = {}
        #: The files that the trace read, but for those of packages.
        self.read = frozenset(self.files) | {
            path for kind, path, _ in payload["dependencies"] or () if kind == "content"
        }
        self._tables = Tables(payload)

    def with_transforms(self, transforms: Mapping[int, Transform]) -> GraphSnapshot:
        """The same trace with these results of pipelines, by index of the model, in place of its own."""
        other = copy(self)
        other.transforms = {index: found for index, found in transforms.items() if 0 <= index < len(self.titles)}
        return other

    def with_hardware(self, emissions: Mapping[int, Emission]) -> GraphSnapshot:
        """The same trace with these emissions, by index of the model, in place of its own."""
        other = copy(self)
        other.hardware = {index: found for index, found in emissions.items() if 0 <= index < len(self.titles)}
        return other

    @property
    def records(self) -> Sequence[ModelRecord]:
        """The models as the payload has them."""
        return self.payload["models"]

    @property
    def size(self) -> int:
        """The number of rows that the indices are built from."""
        return len(self.payload["sites"]["file"]) + len(self.payload["rows"]["site"])

    def prepare(self) -> GraphSnapshot:
        """Build the indices now."""
        self._tables.prepare()
        return self

    def sha256_of(self, path: str) -> str | None:
        """The hash of the file `path` as it was traced; None if it is not part of this snapshot."""
        index = self.files.get(path)
        return None if index is None else self.payload["files"][index]["sha256"]

    def read_text_of(self, path: str) -> str | None:
        """The hash of a file that the trace read, whether or not anything of it is shown."""
        read = (seen for kind, read, seen in self.payload["dependencies"] or () if kind == "content" and read == path)
        return self.sha256_of(path) or next(filter(None, map(str, read)), None)

    def is_library(self, path: str) -> bool:
        """Is `path` a file outside the workspace in this trace?"""
        index = self.files.get(path)
        return index is not None and bool(self.payload["files"][index]["library"])

    def index(self, path: str) -> FileIndex | None:
        """The sites of one file; None if it is not part of this snapshot."""
        file = self.files.get(path)
        return None if file is None else FileIndex(self, self._tables.places_of(file))

    def site(self, index: int) -> SiteView:
        """One site with its values."""
        sites = self.payload["sites"]
        line, column, end_line, end_column = (sites[key][index] for key in _EXTENT)
        values = tuple(self._view_value(row) for row in self._tables.rows_of(index))
        name, kind, function = sites["name"][index], KINDS[sites["kind"][index]], sites["function"][index]
        return SiteView(line, column, end_line, end_column, name, kind, function, values)

    def models(self, path: str) -> list[ModelView]:
        """The models whose class is in `path`."""
        file = self.files.get(path)
        found = enumerate(self.payload["models"])
        return [self._view_model(index, model, path) for index, model in found if model["file_index"] == file]

    def all_models(self) -> list[ModelView]:
        """Every model, whichever file its class is in."""
        files = self.payload["files"]
        found = enumerate(self.payload["models"])
        return [self._view_model(index, model, files[model["file_index"]]["path"]) for index, model in found]

    def nodes_on(self, path: str, first: int, last: int) -> list[int]:
        """The indices of the nodes on the lines `first` to `last` of a file, in order of execution."""
        file, ends = self.files.get(path), self.payload["nodes"]["end_line"]
        found = [] if file is None else self._tables.nodes_of(file).reaching(first, last)
        return sorted(node for node in found if ends[node] >= first)

    def modules(self, model: int) -> frozenset[str]:
        """The paths of the modules that hold a node of a model; modules that compute nothing are left out."""
        return self._tables.modules_of(model)

    def unrun(self, path: str) -> list[UnrunCode]:
        """The code of a file that did not run."""
        file = self.files.get(path)
        return [each for each in self.payload.get("unrun") or () if each["file_index"] == file]

    def parts(self, path: str) -> list[PartView]:
        """The classes in `path` that have modules in some model; models shown as a fallback do not count."""
        roots: dict[str, dict[str, None]] = {}
        for model, _, kind in self.payload["scopes"]:
            if not self.payload["models"][model].get("rest"):
                roots.setdefault(kind, {})[self.titles[model]] = None
        file = self.files.get(path)
        found = (each for each in self.payload.get("classes") or () if each["file_index"] == file)
        return [
            PartView(
                each["name"],
                each["line"],
                each["column"],
                each["end_line"],
                each["end_column"],
                tuple(roots.get(each["name"], ())),
            )
            for each in found
        ]

    def node(self, index: int) -> NodeView:
        """One node, with its packed map unpacked."""
        nodes = self.payload["nodes"]
        row = {key: nodes[key][index] for key in nodes}
        file, blob = row["file"], row.pop("blob")
        row |= {
            "model": self._model_name(row["model"]),
            "scope": self._get_scope(row["scope"]),
            "value": self.payload["values"][row["value"]] if row["value"] >= 0 else None,
            "file": self.payload["files"][file]["path"] if file >= 0 else None,
        }
        transform = self.transforms.get(nodes["model"][index])
        facts = UNTOUCHED if transform is None else transform.node(index)
        row |= zip(TRANSFORM_NODES[1:], facts, strict=True)
        row["hardware"] = self._get_operations(nodes["model"][index], index)
        return NodeView(index=index, **row, details=unpack_blob(blob) if blob else NodeDetails())

    def _get_operations(self, model: int, row: int) -> tuple[Operation, ...]:
        """The operations that a row becomes; none if the emission belongs to another text."""
        found = self.hardware.get(model)
        return () if found is None or found.stale else found.of_row(row)

    def _view_model(self, index: int, model: ModelRecord, path: str) -> ModelView:
        facts: Any = {key: value for key, value in model.items() if key in ModelView.__dataclass_fields__}
        transform = self.transforms.get(index)
        told = None if transform is None else transform.told
        laid_over = {"transform": told, "hardware": self.hardware.get(index)}
        return ModelView(**{**facts, "snapshot": self, "index": index, "path": path, **laid_over})

    def _view_value(self, row: int) -> ValueView:
        rows = self.payload["rows"]
        node = rows["node"][row]
        scopes = tuple(scope for index in rows["scopes"][row] if (scope := self._get_scope(index)) is not None)
        value = self.payload["values"][rows["value"][row]]
        model = rows["model"][row]
        transform = self.transforms.get(model)
        now = value if transform is None else transform.values.get(row, value)
        ref = None if node < 0 else (self, node)
        original = None if now == value else value
        return ValueView(now, self._model_name(model), rows["count"][row], scopes, ref, original)

    def _get_scope(self, index: int) -> tuple[str, str] | None:
        if index < 0:
            return None
        _, path, kind = self.payload["scopes"][index]
        return path, kind

    def _model_name(self, index: int) -> str:
        return self.titles[index] if index >= 0 else ""
