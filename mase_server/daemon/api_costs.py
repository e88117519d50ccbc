"""The API function that tells what each part of a model costs, as the rows of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mase_server import answers
from mase_server.daemon.api_graphs import MADE, head, rows_of, shown
from mase_server.daemon.cost_rows import CostRow, CostTree
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.methods import Api, ApiMethod, Params
from mase_server.daemon.slices import Slices, sliced
from mase_server.dtypes import tensor_bytes
from mase_server.snapshot import tensors
from mase_server.wire import unpack_blobs

#: Nodes that are unpacked before it is looked whether others should get their turn.
_AT_ONCE = 32
#: Nodes that compute nothing: they count, but have no row of their own.
_HIDDEN = frozenset({"placeholder", "output", "get_attr"})
_PLACE = ("line", "column", "end_line", "end_column")
_TOTALS = {"multipliers": "multipliers", "luts": "luts", "memory_bits": "memory_bits", "cycles": "interval"}


async def cost_table(api: Api, params: Params) -> dict[str, Any]:
    """What each module, operator and parameter of a model costs: {"path", "model", ..., "rows"}; see `answers`.

    A row comes behind the one that holds it (`parent`, its number; the first is the whole model) and counts all below
    it.  id: a module's path, or "path/name" of an operator or a parameter that stands in it.  kind: "scope", "layer",
    "operator" (all calls of one in a module) or "parameter".  parameters, parameter_bytes: each counted once in every
    row, also where layers share it; None where nobody knows.  shared: the other modules that have some of them.
    flops, nodes: as `mase/costs` tells.  traffic: bytes read and written.  results: bytes of what operators wrote,
    views not among them.  formats, bits: of results after passes; bits is None where they have several.  sqnr,
    max_error: of the last result of the row.  hardware: {"multipliers", "luts", "memory_bits", "cycles"} of what was
    emitted, cycles being those of the slowest part; None where nothing was, or of another text, and where a node in it
    has no hardware.  places: where it is
    called, or where the class of a module is; the first ones.
    """
    snapshot, model = shown(api, params)
    types = {path: kind for of, path, kind in snapshot.payload["scopes"] if of == model}
    tree = CostTree(snapshot.titles[model], types)
    leaves = await _count(snapshot, model, tree)
    weights = (snapshot.payload.get("weights") or [])[model : model + 1]
    if weights:
        tree.weigh(weights[0])
    _build(snapshot, model, tree, leaves)
    _place_classes(snapshot, tree)
    told: Mapping[str, Any] = snapshot.transforms[model].told if model in snapshot.transforms else {}
    return {
        **head(api, snapshot, model),
        "steps": list(told.get("texts", ())),
        "rows": await _told(tree, weights[0] if weights else None, told),
    }


async def _count(snapshot: GraphSnapshot, model: int, tree: CostTree) -> dict[int, CostRow]:
    """Count every node; the row of each that has one."""
    rows, leaves = rows_of(snapshot, model, None), dict[int, CostRow]()
    slices = Slices()
    for start in range(0, len(rows), _AT_ONCE):
        page = rows[start : start + _AT_ONCE]
        details = unpack_blobs([snapshot.payload["nodes"]["blob"][row] for row in page])
        for row, detail in zip(page, details, strict=True):
            leaf = _leaf(snapshot, row, tree)
            _node(snapshot, model, row, leaf, int(detail.get("bytes", 0)))
            if leaf.kind != "scope":
                leaves[row] = leaf
        await slices.pause()
    return leaves


def _leaf(snapshot: GraphSnapshot, row: int, tree: CostTree) -> CostRow:
    path, operator = _where(snapshot, row)
    if operator:
        return tree.within(path, operator, "operator")
    layer = snapshot.payload["nodes"]["op"][row] == "call_module"
    found = tree.module(path, "layer" if layer else "scope")
    found.type = found.type or snapshot.payload["nodes"]["mase_op"][row]
    return found


def _where(snapshot: GraphSnapshot, row: int) -> tuple[str, str]:
    """The path of the module that a node calls, or stands in, and then what it computes; "" where that is nothing."""
    nodes, scope = snapshot.payload["nodes"], snapshot.payload["nodes"]["scope"][row]
    if nodes["op"][row] == "call_module":
        return str(nodes["target"][row]), ""
    path = str(snapshot.payload["scopes"][scope][1]) if scope >= 0 else ""
    return path, "" if nodes["op"][row] in _HIDDEN else str(nodes["mase_op"][row] or nodes["target"][row])


async def row_ids(snapshot: GraphSnapshot, model: int, only: Sequence[str]) -> list[str]:
    """The ids of the rows that names of nodes and paths of modules mean; see `cost_table`."""
    nodes, wanted = snapshot.payload["nodes"], set(only)
    paths = {path for of, path, _ in snapshot.payload["scopes"] if of == model}
    found = {path: None for path in only if path in paths}
    async for row in sliced(rows_of(snapshot, model, None)):
        path, operator = _where(snapshot, row)
        if path in wanted and not operator:
            found[path] = None
        elif nodes["name"][row] in wanted:
            found[f"{path}/{operator}" if operator else path] = None
    return list(found)


def _node(snapshot: GraphSnapshot, model: int, row: int, leaf: CostRow, traffic: int) -> None:
    nodes = snapshot.payload["nodes"]
    found, value = list[Any](), nodes["value"][row]
    if value >= 0 and traffic and nodes["op"][row] not in _HIDDEN:
        found = list(tensors(snapshot.payload["values"][value]))
    leaf.ran(nodes["flops"][row] or 0, traffic, sum(map(tensor_bytes, found)))
    if (file := nodes["file"][row]) >= 0 and leaf.kind != "scope":
        place = {key: nodes[key][row] for key in _PLACE}
        leaf.at({"file": snapshot.payload["files"][file]["path"], **place})
    transform = snapshot.transforms.get(model)
    if transform is not None:
        facts = dict(zip(MADE, transform.node(row), strict=True)) if row in transform.places else {}
        kinds = {tensor[0] for tensor in found if str(tensor[0]).startswith(("f", "bf"))}
        format = facts.get("format") or (kinds.pop() if len(kinds) == 1 else None)
        leaf.became(format, (facts.get("sqnr"), facts.get("max_error")))


def _build(snapshot: GraphSnapshot, model: int, tree: CostTree, leaves: Mapping[int, CostRow]) -> None:
    """Hardware, each operation in one row: that of the first node that it computes."""
    emission = snapshot.hardware.get(model)
    if emission is None or emission.stale or emission.told["refusal"]:
        return
    for operation in emission.told["operations"]:
        known = (leaves[row] for row in operation["rows"] if row in leaves)
        scope = operation["scope"]
        row = next(known, tree.module(scope) if scope in tree else tree.root)
        row.built({key: value or 0 for key, value in operation["estimate"].items()})
    totals = emission.told["totals"]
    if tree.root.hardware is not None and totals:
        tree.root.hardware = {key: totals[name] for key, name in _TOTALS.items()}
    for missing in emission.told["unsupported"]:
        for row in leaves.get(missing["row"], tree.root).lineage:
            row.hardware = None


def _place_classes(snapshot: GraphSnapshot, tree: CostTree) -> None:
    """A module that holds others is at its class; where that is no file of the workspace, where it begins to run."""
    classes: dict[str, list[dict[str, Any]]] = {}
    for each in snapshot.payload.get("classes") or ():
        file = snapshot.payload["files"][each["file_index"]]["path"]
        classes.setdefault(each["name"], []).append({"file": file, **{key: each[key] for key in _PLACE}})
    for row in reversed([row for row, _ in tree.rows() if row.kind == "scope"]):
        begins: list[Mapping[str, Any]] = [below.places[0] for below in row.below if below.places]
        for place in classes.get(row.type) or begins[:1]:
            row.at(place)


async def _told(
    tree: CostTree, weights: Mapping[str, Sequence[Any]] | None, transform: Mapping[str, Any]
) -> list[dict[str, Any]]:
    holders = _holders(tree)
    bits = transform.get("formats") or {}
    summary = transform.get("summary") or {}
    if summary.get("sqnr") is not None:
        tree.root.error = summary["sqnr"], summary["max_error"]
    found = []
    async for row, parent in sliced(tree.rows()):
        found.append(_row(row, parent, weights, bits) | {"shared": _shared(row, holders)})
    return found


def _row(
    row: CostRow, parent: int, weights: Mapping[str, Sequence[Any]] | None, bits: Mapping[str, float]
) -> dict[str, Any]:
    formats = list(row.formats)
    sizes: dict[str, int | None] = dict.fromkeys(("parameters", "parameter_bytes"))
    if weights is not None:
        sums = (sum(weights[key][index] for index in row.weights) for key in ("elements", "bytes"))
        sizes = dict(zip(sizes, sums, strict=True))
    return {
        "id": row.ident, "parent": parent, "name": row.name, "kind": row.kind, "type": row.type,
        "nodes": row.nodes, **sizes, "flops": row.flops, "traffic": row.traffic, "results": round(row.results),
        "formats": formats, "bits": bits.get(formats[0]) if len(formats) == 1 else None,
        "sqnr": row.error[0], "max_error": row.error[1], "hardware": row.hardware, "places": row.places,
    }  # fmt: skip


def _holders(tree: CostTree) -> dict[int, list[str]]:
    """Which layers, or modules of a parameter, have each parameter."""
    holders: dict[int, list[str]] = {}
    for row, _ in tree.rows():
        if row.kind != "scope":
            for index in row.weights:
                holders.setdefault(index, []).append(row.ident)
    return {index: idents for index, idents in holders.items() if len(idents) > 1}


def _shared(row: CostRow, holders: Mapping[int, list[str]]) -> list[str]:
    """Who has some of the parameters of a row that is no scope too."""
    if row.kind == "scope" or not holders:
        return []
    others = {ident: None for index in sorted(row.weights) for ident in holders.get(index, ()) if ident != row.ident}
    return list(others)


COSTS = (ApiMethod("mase/costTable", {"path": str, "model?": str}, cost_table, answers.CostTable),)
