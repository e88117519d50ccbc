"""The API function for a model's graph as columns, and helpers on graphs for other API functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.graph_snapshot import UNTOUCHED, GraphSnapshot
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params
from mase_server.daemon.slots import iterate_in_slices
from mase_server.daemon.store import FileView
from mase_server.dtypes import tensor_bytes
from mase_server.protocol import answers
from mase_server.protocol.records import InsertedNode
from mase_server.protocol.snapshot import COLUMNS, TRANSFORM_NODES, iterate_tensor_values
from mase_server.protocol.wire import unpack_blobs
from mase_server.suggestions import suggest

#: Rows that are processed in one turn of the event loop.
AT_ONCE = 128
_MOST = 100_000
#: Columns of `mase/graph` as a trace has them, then the results of passes, then those that must be unpacked first.
_TRACED = tuple(name for name in COLUMNS["nodes"] if name not in ("blob", "model"))
MADE = TRANSFORM_NODES[1:]
_UNPACKED = ("inputs", "details")
#: Columns that are computed from others.
_OF_A_RUN = ("seconds", "moved", "bound")
_COMPUTED = ("parameters", "bytes", "kernel", *_OF_A_RUN)
#: Nodes that compute something.
_CALLS = frozenset({"call_function", "call_method", "call_module"})
_USUAL = (*_TRACED, "inputs")
_inputs: WeakKeyDictionary[GraphSnapshot, list[list[int]]] = WeakKeyDictionary()
_parameters: WeakKeyDictionary[GraphSnapshot, dict[int, Mapping[str, int]]] = WeakKeyDictionary()


def find_shown_model(api: Api, params: Params) -> tuple[GraphSnapshot, int]:
    """The snapshot of the file `path` and the index of its model `model`; ApiError if there is none."""
    path, title = params["path"], params.get("model")
    snapshot = api.daemon.store.snapshot(path)
    if snapshot is None or not snapshot.titles:
        status = tracked_of(api, path).status
        why = status.message if status is not None and status.message else "nothing of it is traced"
        raise ApiError("no-graph", f"{path} has no graph: {why}", {"path": path})
    if title is not None and title not in snapshot.titles:
        told = suggest(title, snapshot.titles, "it has")
        raise ApiError("unknown-model", f"{path} has no model {title!r}{told}", {"models": snapshot.titles})
    return snapshot, 0 if title is None else snapshot.titles.index(title)


def describe_model_trace(api: Api, snapshot: GraphSnapshot, model: int) -> answers.ModelTrace:
    """The model and the trace that an answer belongs to: an `answers.ModelTrace`."""
    return {
        "path": snapshot.path, "model": snapshot.titles[model], "sha256": snapshot.sha256,
        "generation": snapshot.generation, "stale": api.daemon.store.entry(snapshot.path).stale,
        "complete": snapshot.complete, "failed": not snapshot.payload["models"][model].get("complete", True),
    }  # fmt: skip


def view_of(api: Api, path: str) -> FileView:
    """The view of a source file; ApiError if nothing is known about it."""
    view = api.daemon.store.view(path)
    if view is None:
        tracked_of(api, path)
        raise ApiError("no-graph", f"nothing is traced of {path} yet", {"path": path})
    return view


def find_kernels(kernels: Iterable[answers.Kernel], snapshot: GraphSnapshot, row: int) -> list[answers.Kernel]:
    """The kernels that compute a node: those with an operation of its line and name, else those with one of its line.

    Several calls of one name on one line have the same.
    """
    nodes = snapshot.payload["nodes"]
    if nodes["op"][row] not in _CALLS or nodes["file"][row] < 0:
        return []
    place = snapshot.payload["files"][nodes["file"][row]]["path"], nodes["line"][row]
    here = [each for each in kernels if any((file, line) == place for file, line, _ in each["operations"])]
    named = [
        each for each in here if any(is_same_operation(one, place, nodes["mase_op"][row]) for one in each["operations"])
    ]
    return named or here


def is_same_operation(told: Sequence[Any], place: tuple[str, int], operator: str) -> bool:
    """Is an operation of a kernel one of this line and operator? Python's in-place operators begin with i."""
    file, line, name = told
    return (file, line) == place and (name == f"i{operator}" or (bool(name) and str(operator).startswith(name)))


async def read_graph_columns(api: Api, params: Params) -> answers.Graph:
    """The graph of a model as columns, in order of execution: the whole graph, one module (`scope`), or a page.

    columns: the names of those that are wanted, without it `row` to `inputs`.  next: the start of the next page, or
    None.
    Operations that passes inserted have the numbers after the last traced node, and no place in a file.
    """
    snapshot, model = find_shown_model(api, params)
    names = _choose_columns(params.get("columns"))
    rows = _with_inserted(snapshot, model, rows_of(snapshot, model, params.get("scope")))
    start, count = params.get("start", 0), min(params.get("count", _MOST), _MOST)
    if start < 0 or count < 1:
        raise ApiError("invalid-params", f"start is {start} and count {count}; they begin at 0 and 1")
    page = rows[start : start + count]
    columns: dict[str, list[Any]] = {"row": list(page)}
    for name in names:
        columns[name] = (
            _read_kernels(api, snapshot, model, page)
            if name == "kernel"
            else _read_run(api, snapshot, model, name, page)
            if name in _OF_A_RUN
            else await _read_column(snapshot, model, name, page)
        )
    tables = await _build_tables(snapshot, model, columns)
    return {
        **describe_model_trace(api, snapshot, model),
        "total": len(rows),
        "start": start,
        "next": start + len(page) if start + len(page) < len(rows) else None,
        "values": tables["values"],
        "scopes": tables["scopes"],
        "files": tables["files"],
        "columns": cast("answers.GraphColumns", columns),
    }


def _choose_columns(asked: Sequence[Any] | None) -> Sequence[str]:
    known = (*_TRACED, *_UNPACKED, *MADE, *_COMPUTED)
    if asked is None:
        return _USUAL
    if wrong := [name for name in asked if name not in known]:
        raise ApiError("invalid-params", f"a graph has no column {wrong[0]!r}{suggest(wrong[0], known, 'it has')}")
    return [str(name) for name in asked]


def rows_of(snapshot: GraphSnapshot, model: int, scope: str | None) -> Sequence[int]:
    """The nodes of a model, or of one of its modules including everything below it."""
    nodes, scopes = snapshot.payload["nodes"], snapshot.payload["scopes"]
    own: Sequence[int] = [row for row, of in enumerate(nodes["model"]) if of == model]
    if own and len(own) == own[-1] - own[0] + 1:
        own = range(own[0], own[-1] + 1)
    if not scope:
        return own
    inside = {index for index, (of, path, _) in enumerate(scopes) if of == model and f"{path}.".startswith(f"{scope}.")}
    if not inside:
        raise ApiError("unknown-scope", f"{snapshot.titles[model]} has no module {scope[:200]!r}")
    return [row for row in own if nodes["scope"][row] in inside]


def _with_inserted(snapshot: GraphSnapshot, model: int, rows: Sequence[int]) -> Sequence[int]:
    """The rows with those that passes inserted, each behind the row that it comes after."""
    if model not in snapshot.transforms or not (inserted := snapshot.transforms[model].inserted):
        return rows
    count, after = len(snapshot.payload["nodes"]["name"]), dict[int, list[int]]()
    for number, node in enumerate(inserted):
        after.setdefault(node["after"], []).append(count + number)
    return [each for row in rows for each in (row, *after.get(row, ()))]


def _read_kernels(api: Api, snapshot: GraphSnapshot, model: int, rows: Sequence[int]) -> list[str | None]:
    kernels, count = api.daemon.kernels(snapshot, snapshot.titles[model]), len(snapshot.payload["nodes"]["name"])
    if kernels is None:
        return [None] * len(rows)
    found = ([each["name"] for each in find_kernels(kernels, snapshot, row)] if row < count else [] for row in rows)
    return [", ".join(names) or None for names in found]


def _read_run(api: Api, snapshot: GraphSnapshot, model: int, name: str, rows: Sequence[int]) -> list[Any]:
    run = api.daemon.run_costs(snapshot, snapshot.titles[model])
    return [getattr(run.nodes[row], name) if run is not None and row in run.nodes else None for row in rows]


async def _read_column(snapshot: GraphSnapshot, model: int, name: str, rows: Sequence[int]) -> list[Any]:
    count, transform = len(snapshot.payload["nodes"]["name"]), snapshot.transforms.get(model)
    if transform is None or not transform.inserted:
        return await _read_traced(snapshot, model, name, rows)
    traced = [row for row in rows if row < count]
    cells = dict(zip(traced, await _read_traced(snapshot, model, name, traced), strict=True))
    for row in rows:
        if row >= count:
            cells[row] = _read_inserted(snapshot, transform.inserted[row - count], row - count, name)
        inputs = transform.inserted[row - count]["inputs"] if row >= count else transform.rewired.get(row)
        if name == "inputs" and inputs is not None:
            cells[row] = [each if each >= 0 else count - 1 - each for each in inputs]
    return [cells[row] for row in rows]


def _read_inserted(snapshot: GraphSnapshot, node: InsertedNode, number: int, name: str) -> Any:
    cells: Mapping[str, Any] = {
        **node, "scope": snapshot.payload["nodes"]["scope"][node["after"]], "file": -1,
        "value": -1 if node["value"] is None else len(snapshot.payload["values"]) + number,
        **dict.fromkeys(("line", "column", "end_line", "end_column"), 0), "details": {},
        "note": f"inserted by {node['inserted_by']}", "parameters": 0, "bytes": _count_bytes(node["value"]),
    }  # fmt: skip
    return cells.get(name)


async def _read_traced(snapshot: GraphSnapshot, model: int, name: str, rows: Sequence[int]) -> list[Any]:
    await asyncio.sleep(0)
    if name == "inputs":
        every = await inputs_of(snapshot)
        return _take_rows(every, rows)
    if name == "details":
        return [details async for details in _iterate_details(snapshot, rows)]
    if name == "parameters":
        return await _count_parameters(snapshot, model, rows)
    if name == "bytes":
        column, values = _take_rows(snapshot.payload["nodes"]["value"], rows), snapshot.payload["values"]
        sizes = {value: _count_bytes(values[value]) for value in set(column) if value >= 0}
        return [sizes.get(value, 0) for value in column]
    if name in MADE:
        transform, place = snapshot.transforms.get(model), MADE.index(name)
        return [(UNTOUCHED if transform is None else transform.node(row))[place] for row in rows]
    return _take_rows(snapshot.payload["nodes"][name], rows)


async def _count_parameters(snapshot: GraphSnapshot, model: int, rows: Sequence[int]) -> list[int]:
    """The elements of the parameters in each layer, or of the parameter that a node reads; a shared one counts once."""
    nodes, totals = snapshot.payload["nodes"], await _sum_parameters(snapshot, model)
    return [
        totals.get(nodes["target"][row], 0) if nodes["op"][row] in ("call_module", "get_attr") else 0 for row in rows
    ]


async def _sum_parameters(snapshot: GraphSnapshot, model: int) -> Mapping[str, int]:
    """The elements of each parameter, and of all in each module, by path; summed once per trace."""
    known = _parameters.setdefault(snapshot, {})
    if model not in known:
        found: dict[str, dict[int, int]] = {}
        weights = (snapshot.payload.get("weights") or [])[model : model + 1]
        columns = ((each["name"], each["elements"], each["same"]) for each in weights)
        async for path, elements, same in iterate_in_slices(
            [row for each in columns for row in zip(*each, strict=True)]
        ):
            while path:
                found.setdefault(path, {})[same] = elements
                path = path.rpartition(".")[0]
        known[model] = {path: sum(elements.values()) for path, elements in found.items()}
    return known[model]


def _count_bytes(value: Any) -> int:
    return round(sum(map(tensor_bytes, iterate_tensor_values(value))))


def _take_rows(column: list[Any], rows: Sequence[int]) -> list[Any]:
    return column[rows.start : rows.stop] if isinstance(rows, range) else [column[row] for row in rows]


async def inputs_of(snapshot: GraphSnapshot) -> list[list[int]]:
    """For each node of all models, the nodes that it takes as inputs; unpacked once per trace."""
    if (known := _inputs.get(snapshot)) is not None:
        return known
    rows = range(len(snapshot.payload["nodes"]["name"]))
    found = [details.get("input_nodes", []) async for details in _iterate_details(snapshot, rows)]
    _inputs[snapshot] = found
    return found


async def _iterate_details(snapshot: GraphSnapshot, rows: Sequence[int]) -> AsyncIterator[Mapping[str, Any]]:
    blobs = snapshot.payload["nodes"]["blob"]
    for start in range(0, len(rows), AT_ONCE):
        for details in unpack_blobs([blobs[row] for row in rows[start : start + AT_ONCE]]):
            yield details
        await asyncio.sleep(0)


async def _build_tables(snapshot: GraphSnapshot, model: int, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The tables that the columns refer to, with entries that are not referred to removed; renumbers the columns."""
    payload = snapshot.payload
    scopes = [[path, kind] for _, path, kind in payload["scopes"]]
    files: list[answers.GraphFile] = [{"path": file["path"], "library": file["library"]} for file in payload["files"]]
    transform = snapshot.transforms.get(model)
    values: Sequence[Any] = payload["values"]
    if transform is not None and transform.inserted:
        values = [*values, *(node["value"] for node in transform.inserted)]
    made: Mapping[str, tuple[str, Sequence[Any]]]
    made = {"values": ("value", values), "scopes": ("scope", scopes), "files": ("file", files)}
    tables: dict[str, list[Any]] = {}
    for table, (name, every) in made.items():
        await asyncio.sleep(0)
        used = dict.fromkeys(columns.get(name, ()))
        used.pop(-1, None)
        new = {-1: -1} | {index: number for number, index in enumerate(used)}
        tables[table] = [every[index] for index in used]
        if name in columns:
            columns[name] = [new[index] for index in columns[name]]
    return tables


GRAPHS = (
    ApiMethod(
        "mase/graph",
        {"path": str, "model?": str, "scope?": str, "start?": int, "count?": int, "columns?": list[str]},
        read_graph_columns,
        answers.Graph,
    ),
)
