"""The API function for the cost of each part of a model, and the tree of rows that it answers with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from mase_server.daemon.api_devices import compare_with_earlier
from mase_server.daemon.api_graphs import MADE, describe_model_trace, find_kernels, find_shown_model, rows_of
from mase_server.daemon.graph_snapshot import GraphSnapshot, NodeRun
from mase_server.daemon.methods import Api, ApiMethod, Params
from mase_server.daemon.slots import Slices, iterate_in_slices
from mase_server.dtypes import tensor_bytes
from mase_server.protocol import answers
from mase_server.protocol.records import Estimate, Extent, WeightColumns
from mase_server.protocol.snapshot import effect_texts, iterate_tensor_values
from mase_server.protocol.wire import unpack_blobs

#: Nodes that are unpacked before the event loop gets its next turn.
_AT_ONCE = 32
#: Nodes that compute nothing: they are counted but have no row of their own.
_HIDDEN = frozenset({"placeholder", "output", "get_attr"})
_PLACE = ("line", "column", "end_line", "end_column")


async def cost_table(api: Api, params: Params) -> answers.CostTable:
    """The cost of each module, operator and parameter of a model: {"path", "model", ..., "rows"}; see `answers`.

    A row comes after the row that holds it (`parent`, its number; the first row is the whole model) and counts
    everything below it.  id: a module's path, or "path/name" of an operator or a parameter in that module.  kind:
    "scope", "layer", "operator" (all calls of one operator in a module) or "parameter".  parameters, parameter_bytes:
    each parameter counts once in every row, even if layers share it; None if unknown.  shared: the other modules that
    use some of them.  flops, nodes: as `mase/costs` has them.  traffic: bytes read and written.  results: bytes that
    operators wrote, without views.  formats, bits: of results after passes; bits is None if there are several.  sqnr,
    max_error: of the last result of the row.  saturated: the share of values outside of what their formats hold; of a
    module the highest in it, of the whole model that of all its values.  passes: what passes did to a layer, an
    operator or the whole model, in words, e.g. "50 % of the weight pruned"; "" for nothing.  hardware: {"multipliers",
    "luts", "memory_bits", "cycles"} of the emitted hardware, cycles being those of the slowest part; None if nothing
    was emitted, if it belongs to another text, or if a node in the row has no hardware.  kernels: how many kernels
    Inductor makes of it, alone or with others; None unless they were asked for with `mase/compiled`.  seconds: the
    estimated time on a device; moved: the bytes read and written there; bound: compute, memory or launch, of most of
    the time; held: bytes of its activations at the peak; None unless they are shown, with `mase/deviceCosts`.  places:
    the first places where it is called, or where the class of a module is.
    """
    snapshot, model = find_shown_model(api, params)
    types = {path: kind for of, path, kind in snapshot.payload["scopes"] if of == model}
    tree = CostTree(snapshot.titles[model], types)
    leaves = await _count_nodes(snapshot, model, tree)
    if (kernels := api.daemon.kernels(snapshot, snapshot.titles[model])) is not None:
        for row, leaf in leaves.items():
            leaf.compiled(each["name"] for each in find_kernels(kernels, snapshot, row))
    shown, run = api.daemon.run_shown(snapshot.path, snapshot.titles[model]), None
    if shown is not None:
        run = api.daemon.run_costs(snapshot, snapshot.titles[model])
    if run is not None:
        for row, part in run.nodes.items():
            leaves.get(row, tree.root).timed(part)
        for path, part in run.rest.items():
            (tree.module(path) if path in tree else tree.root).timed(part)
    weights = (snapshot.payload.get("weights") or [])[model : model + 1]
    if weights:
        tree.weigh(weights[0])
    _add_hardware_costs(snapshot, model, tree, leaves)
    _place_classes(snapshot, tree)
    told = snapshot.transforms[model].told if model in snapshot.transforms else None
    return {
        **describe_model_trace(api, snapshot, model),
        "steps": [] if told is None else list(told["texts"]),
        "rows": await _describe_rows(tree, weights[0] if weights else None, told),
        "run": None if shown is None else _summarize_run(shown.told),
        "older": shown is not None and run is None,
        "change": None if run is None else compare_with_earlier(run),
    }


def _summarize_run(told: answers.DeviceCosts) -> answers.RunSummary:
    return cast("answers.RunSummary", {key: told[key] for key in answers.RunSummary.__annotations__})  # type: ignore[literal-required]


async def _count_nodes(snapshot: GraphSnapshot, model: int, tree: CostTree) -> dict[int, CostRow]:
    """Count every node; returns the row of each node that has one."""
    rows, leaves = rows_of(snapshot, model, None), dict[int, CostRow]()
    slices = Slices()
    for start in range(0, len(rows), _AT_ONCE):
        page = rows[start : start + _AT_ONCE]
        details = unpack_blobs([snapshot.payload["nodes"]["blob"][row] for row in page])
        for row, detail in zip(page, details, strict=True):
            leaf = _find_leaf_row(snapshot, row, tree)
            _add_node_costs(snapshot, model, row, leaf, int(detail.get("bytes", 0)))
            if leaf.kind != "scope":
                leaves[row] = leaf
        await slices.pause()
    return leaves


def _find_leaf_row(snapshot: GraphSnapshot, row: int, tree: CostTree) -> CostRow:
    path, operator = _locate_operator(snapshot, row)
    if operator:
        return tree.within(path, operator, "operator")
    layer = snapshot.payload["nodes"]["op"][row] == "call_module"
    found = tree.module(path, "layer" if layer else "scope")
    found.type = found.type or snapshot.payload["nodes"]["mase_op"][row]
    return found


def _locate_operator(snapshot: GraphSnapshot, row: int) -> tuple[str, str]:
    """The path of the module that a node calls or belongs to, and the name of its computation; "" if there is none."""
    nodes, scope = snapshot.payload["nodes"], snapshot.payload["nodes"]["scope"][row]
    if nodes["op"][row] == "call_module":
        return str(nodes["target"][row]), ""
    path = str(snapshot.payload["scopes"][scope][1]) if scope >= 0 else ""
    return path, "" if nodes["op"][row] in _HIDDEN else str(nodes["mase_op"][row] or nodes["target"][row])


async def row_ids(snapshot: GraphSnapshot, model: int, only: Sequence[str]) -> list[str]:
    """The ids of the rows that these names of nodes and paths of modules refer to; see `cost_table`."""
    nodes, wanted = snapshot.payload["nodes"], set(only)
    paths = {path for of, path, _ in snapshot.payload["scopes"] if of == model}
    found = {path: None for path in only if path in paths}
    async for row in iterate_in_slices(rows_of(snapshot, model, None)):
        path, operator = _locate_operator(snapshot, row)
        if path in wanted and not operator:
            found[path] = None
        elif nodes["name"][row] in wanted:
            found[f"{path}/{operator}" if operator else path] = None
    return list(found)


def _add_node_costs(snapshot: GraphSnapshot, model: int, row: int, leaf: CostRow, traffic: int) -> None:
    nodes = snapshot.payload["nodes"]
    found, value = list[Any](), nodes["value"][row]
    if value >= 0 and traffic and nodes["op"][row] not in _HIDDEN:
        found = list(iterate_tensor_values(snapshot.payload["values"][value]))
    leaf.ran(nodes["flops"][row] or 0, traffic, sum(map(tensor_bytes, found)))
    if (file := nodes["file"][row]) >= 0 and leaf.kind != "scope":
        line, column, end_line, end_column = (nodes[key][row] for key in _PLACE)
        extent: Extent = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        leaf.at(_make_place(snapshot.payload["files"][file]["path"], extent))
    transform = snapshot.transforms.get(model)
    if transform is not None:
        facts = dict(zip(MADE, transform.node(row), strict=True)) if row in transform.places else {}
        kinds = {tensor[0] for tensor in found if str(tensor[0]).startswith(("f", "bf"))}
        format = facts.get("format") or (kinds.pop() if len(kinds) == 1 else None)
        leaf.note_passes(format, (facts.get("sqnr"), facts.get("max_error")), facts.get("saturated"))
        if facts.get("note"):
            leaf.notes[facts["note"]] = None


def _make_place(file: str, extent: Extent) -> answers.CostPlace:
    return {
        "file": file, "line": extent["line"], "column": extent["column"],
        "end_line": extent["end_line"], "end_column": extent["end_column"],
    }  # fmt: skip


def _add_hardware_costs(snapshot: GraphSnapshot, model: int, tree: CostTree, leaves: Mapping[int, CostRow]) -> None:
    """Add hardware costs; each operation counts in one row, that of the first node that it computes."""
    emission = snapshot.hardware.get(model)
    if emission is None or emission.stale or emission.told["refusal"]:
        return
    for operation in emission.told["operations"]:
        known = (leaves[row] for row in operation["rows"] if row in leaves)
        scope = operation["scope"]
        row = next(known, tree.module(scope) if scope in tree else tree.root)
        row.built(operation["estimate"])
    totals = emission.told["totals"]
    if tree.root.hardware is not None and totals:
        tree.root.hardware = {
            "multipliers": totals["multipliers"], "luts": totals["luts"],
            "memory_bits": totals["memory_bits"], "cycles": totals["interval"],
        }  # fmt: skip
    for missing in emission.told["unsupported"]:
        for row in leaves.get(missing["row"], tree.root).lineage:
            row.hardware = None


def _place_classes(snapshot: GraphSnapshot, tree: CostTree) -> None:
    """Give a module that holds others the place of its class, or of its first node if no traced file has the class."""
    classes: dict[str, list[answers.CostPlace]] = {}
    for each in snapshot.payload.get("classes") or ():
        file = snapshot.payload["files"][each["file_index"]]["path"]
        classes.setdefault(each["name"], []).append(_make_place(file, each))
    for row in reversed([row for row, _ in tree.rows() if row.kind == "scope"]):
        begins: list[answers.CostPlace] = [below.places[0] for below in row.below if below.places]
        for place in classes.get(row.type) or begins[:1]:
            row.at(place)


async def _describe_rows(
    tree: CostTree, weights: WeightColumns | None, transform: answers.Transform | None
) -> list[answers.CostRow]:
    holders = _find_holders(tree)
    bits = {} if transform is None else transform.get("formats") or {}
    summary = None if transform is None else transform["summary"]
    if summary and summary.get("sqnr") is not None:
        tree.root.error = summary["sqnr"], summary["max_error"]
    if summary and summary.get("saturated") is not None:
        tree.root.saturated = summary["saturated"]
    if effects := effect_texts(summary):
        tree.root.notes = {" · ".join(effects): None}
    found: list[answers.CostRow] = []
    async for row, parent in iterate_in_slices(tree.rows()):
        found.append(_cost_row_to_map(row, parent, weights, bits, _list_sharing_rows(row, holders)))
    return found


def _cost_row_to_map(
    row: CostRow, parent: int, weights: WeightColumns | None, bits: Mapping[str, float], shared: list[str]
) -> answers.CostRow:
    formats = list(row.formats)
    return {
        "id": row.ident, "parent": parent, "name": row.name, "kind": row.kind, "type": row.type,
        "nodes": row.nodes,
        "parameters": None if weights is None else sum(weights["elements"][index] for index in row.weights),
        "parameter_bytes": None if weights is None else sum(weights["bytes"][index] for index in row.weights),
        "shared": shared, "flops": row.flops, "traffic": row.traffic, "results": round(row.results),
        "formats": formats, "bits": bits.get(formats[0]) if len(formats) == 1 else None,
        "sqnr": row.error[0], "max_error": row.error[1], "hardware": row.hardware, "places": row.places,
        "passes": "; ".join([*row.notes][:_NOTES]), "saturated": row.saturated,
        "kernels": None if row.kernels is None else len(row.kernels), **_describe_run(row.run),
    }  # fmt: skip


def _describe_run(run: NodeRun | None) -> answers.RowRun:
    if run is None:
        return {"seconds": None, "moved": None, "bound": None, "held": None}
    return {"seconds": run.seconds, "moved": round(run.moved), "bound": run.bound, "held": round(run.held)}


def _find_holders(tree: CostTree) -> dict[int, list[str]]:
    """For each parameter, the paths of the layers or modules that use it."""
    holders: dict[int, list[str]] = {}
    for row, _ in tree.rows():
        if row.kind != "scope":
            for index in row.weights:
                holders.setdefault(index, []).append(row.ident)
    return {index: idents for index, idents in holders.items() if len(idents) > 1}


def _list_sharing_rows(row: CostRow, holders: Mapping[int, list[str]]) -> list[str]:
    """The paths of the other modules that use some of the parameters of a row that is no scope."""
    if row.kind == "scope" or not holders:
        return []
    others = {ident: None for index in sorted(row.weights) for ident in holders.get(index, ()) if ident != row.ident}
    return list(others)


COSTS = (ApiMethod("mase/costTable", {"path": str, "model?": str}, cost_table, answers.CostTable),)


# The rows of a model's cost table: its modules as a tree, with the operators and parameters in them.

#: Maximum number of places in one row.
_PLACES = 8
#: Maximum number of different notes of passes in one row.
_NOTES = 4


@dataclass(slots=True)
class CostRow:
    """One row. ident: a module's path, or "path/name" of a part of it.  kind: scope, layer, operator, parameter.

    weights: the parameters in it, as indices of their first names.  error: (sqnr, max error) of its last result.
    saturated: the highest share of saturated values in it.  notes: what passes did to it, each text once.
    """

    ident: str
    name: str
    kind: str
    above: CostRow | None = None
    type: str = ""
    nodes: int = 0
    flops: int = 0
    traffic: int = 0
    results: float = 0
    weights: set[int] = field(default_factory=set)
    formats: dict[str, None] = field(default_factory=dict)
    error: tuple[Any, Any] = (None, None)
    saturated: float | None = None
    kernels: set[str] | None = None
    run: NodeRun | None = None
    notes: dict[str, None] = field(default_factory=dict)
    hardware: answers.CostHardware | None = None
    places: list[answers.CostPlace] = field(default_factory=list)
    below: list[CostRow] = field(default_factory=list)

    @property
    def lineage(self) -> Iterator[CostRow]:
        """This row, and all rows that hold it."""
        row: CostRow | None = self
        while row is not None:
            yield row
            row = row.above

    def ran(self, flops: int, traffic: int, results: float) -> None:
        """Count one node in this row and in all rows that hold it."""
        for row in self.lineage:
            row.nodes += 1
            row.flops += flops
            row.traffic += traffic
            row.results += results

    def note_passes(self, format: str | None, error: tuple[Any, Any], saturated: float | None) -> None:
        """Note the format, the error and the saturation of a node; a module keeps the error of its last result."""
        for row in self.lineage:
            if format is not None:
                row.formats[format] = None
            if error != (None, None):
                row.error = error
            if saturated is not None:
                row.saturated = max(row.saturated or 0.0, saturated)

    def compiled(self, kernels: Iterable[str]) -> None:
        """Count kernels, by their names, in this row and in all rows that hold it."""
        names = set(kernels)
        for row in self.lineage:
            row.kernels = (row.kernels or set()) | names

    def timed(self, part: NodeRun) -> None:
        """Count a part of a run in this row and in all rows that hold it."""
        for row in self.lineage:
            row.run = row.run or NodeRun()
            row.run.add(part)

    def built(self, estimate: Estimate) -> None:
        """Count hardware. Operations run side by side, so the slowest determines the cycles of a sample."""
        for row in self.lineage:
            found = row.hardware or {"multipliers": 0, "luts": 0, "memory_bits": 0, "cycles": 0}
            row.hardware = {
                "multipliers": found["multipliers"] + (estimate["multipliers"] or 0),
                "luts": found["luts"] + (estimate["luts"] or 0),
                "memory_bits": found["memory_bits"] + (estimate["memory_bits"] or 0),
                "cycles": max(found["cycles"], estimate["cycles"] or 0),
            }

    def at(self, place: answers.CostPlace) -> None:
        """Add a place to this row."""
        if place not in self.places and len(self.places) < _PLACES:
            self.places.append(place)


class CostTree:
    """The rows of one model. types: the types of its modules, by path."""

    def __init__(self, title: str, types: Mapping[str, str]) -> None:
        self.types = types
        self.root = CostRow("", title, "scope", type=types.get("", ""))
        self._rows = {"": self.root}

    def __contains__(self, path: str) -> bool:
        return path in self._rows

    def module(self, path: str, kind: str = "scope") -> CostRow:
        """The row of a module; creates it and the rows that hold it if needed."""
        if (found := self._rows.get(path)) is not None:
            return found
        above, _, name = path.rpartition(".")
        return self._add_row(path, name, kind, self.module(above), self.types.get(path, ""))

    def within(self, path: str, name: str, kind: str) -> CostRow:
        """The row of an operator or a parameter in a module."""
        ident = f"{path}/{name}"
        return self._rows.get(ident) or self._add_row(ident, name, kind, self.module(path), "")

    def _add_row(self, ident: str, name: str, kind: str, above: CostRow, type_name: str) -> CostRow:
        row = self._rows[ident] = CostRow(ident, name, kind, above, type_name)
        above.below.append(row)
        return row

    def weigh(self, weights: WeightColumns) -> None:
        """Put each parameter into its layer; a parameter that a module has beside its layers gets a row of its own."""
        for name, same in zip(weights["name"], weights["same"], strict=True):
            owner, _, last = name.rpartition(".")
            row = self._find_layer(owner)
            if row is None and (owner in self.types or not owner):
                row = self.within(owner, last, "parameter")
            for each in (row or self.module(owner, "layer")).lineage:
                each.weights.add(same)

    def _find_layer(self, path: str) -> CostRow | None:
        """The path of the layer that a module is or is a part of; None for a module that holds layers."""
        while path:
            found = self._rows.get(path)
            if found is not None and found.kind == "layer":
                return found
            path = path.rpartition(".")[0]
        return None

    def rows(self) -> Iterator[tuple[CostRow, int]]:
        """Every row, after the row that holds it, with the number of that row, -1 for the whole model."""
        waiting, number = [(self.root, -1)], 0
        while waiting:
            row, above = waiting.pop()
            yield row, above
            waiting += [(each, number) for each in reversed(row.below)]
            number += 1
