"""The graph of a model as columns, and what of it other API functions need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mase_server import answers
from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params
from mase_server.daemon.store import FileView
from mase_server.daemon.transform import UNTOUCHED
from mase_server.snapshot import COLUMNS, TRANSFORM_NODES
from mase_server.suggestions import suggest
from mase_server.wire import unpack_blobs

#: Rows that are worked on in one turn of the event loop.
AT_ONCE = 128
_MOST = 100_000
#: Columns of `mase/graph` as a trace has them, what passes made of them, and what has to be unpacked first.
_TRACED = tuple(name for name in COLUMNS["nodes"] if name not in ("blob", "model"))
MADE = TRANSFORM_NODES[1:]
_UNPACKED = ("inputs", "details")
_USUAL = (*_TRACED, "inputs")
_inputs: WeakKeyDictionary[GraphSnapshot, list[list[int]]] = WeakKeyDictionary()


def shown(api: Api, params: Params) -> tuple[GraphSnapshot, int]:
    """The snapshot of the file `path` and the index of its model `model`; ApiError where there is none."""
    path, title = params["path"], params.get("model")
    snapshot = api.daemon.store.snapshot(path)
    if snapshot is None or not snapshot.titles:
        status = tracked_of(api, path).status
        why = f"{status.state}: {status.message}" if status is not None and status.message else "nothing is traced"
        raise ApiError("no-graph", f"{path} has no graph: {why}", {"path": path})
    if title is not None and title not in snapshot.titles:
        told = suggest(title, snapshot.titles, "it has")
        raise ApiError("unknown-model", f"{path} has no model {title!r}{told}", {"models": snapshot.titles})
    return snapshot, 0 if title is None else snapshot.titles.index(title)


def head(api: Api, snapshot: GraphSnapshot, model: int) -> dict[str, Any]:
    """Which model of which trace an answer is of: an `answers.ModelTrace`."""
    return {
        "path": snapshot.path, "model": snapshot.titles[model], "sha256": snapshot.sha256,
        "generation": snapshot.generation, "stale": api.daemon.store.entry(snapshot.path).stale,
        "complete": snapshot.complete,
    }  # fmt: skip


def view_of(api: Api, path: str) -> FileView:
    """What is known about a source file; ApiError where that is nothing."""
    view = api.daemon.store.view(path)
    if view is None:
        tracked_of(api, path)
        raise ApiError("no-graph", f"nothing is traced of {path} yet", {"path": path})
    return view


async def graph(api: Api, params: Params) -> dict[str, Any]:
    """The graph of a model as columns, in order of execution: all of it, of a module (`scope`), or a page of it.

    {"path", "model", "sha256", "generation", "stale", "complete", "total", "start", "next", "columns", "values",
    "scopes", "files"}.  columns: name -> list; "row" is a node's number, and "inputs" are such numbers; "value",
    "scope" and "file" are indices into the lists beside it, -1 for none.  next: where the next page starts, or None.
    columns that are asked for: those of `snapshot.COLUMNS`, "inputs", "details" (maps of `snapshot.NODE_BLOB`), and
    "format", "sqnr", "max_error", "note", "saturated" of what passes made; without it all but details and these.
    """
    snapshot, model = shown(api, params)
    names = _names(params.get("columns"))
    rows = rows_of(snapshot, model, params.get("scope"))
    start, count = params.get("start", 0), min(params.get("count", _MOST), _MOST)
    if start < 0 or count < 1:
        raise ApiError("invalid-params", f"start is {start} and count {count}; they begin at 0 and 1")
    page = rows[start : start + count]
    told = head(api, snapshot, model)
    told |= {"total": len(rows), "start": start, "next": start + len(page) if start + len(page) < len(rows) else None}
    columns: dict[str, Any] = {"row": list(page)}
    for name in names:
        columns[name] = await _column(snapshot, model, name, page)
    return {**told, **await _tables(snapshot, columns), "columns": columns}


def _names(asked: Sequence[Any] | None) -> Sequence[str]:
    known = (*_TRACED, *_UNPACKED, *MADE)
    if asked is None:
        return _USUAL
    if wrong := [name for name in asked if name not in known]:
        raise ApiError("invalid-params", f"a graph has no column {wrong[0]!r}{suggest(wrong[0], known, 'it has')}")
    return [str(name) for name in asked]


def rows_of(snapshot: GraphSnapshot, model: int, scope: str | None) -> Sequence[int]:
    """The nodes of a model, or of one of its modules with all below it."""
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


async def _column(snapshot: GraphSnapshot, model: int, name: str, rows: Sequence[int]) -> list[Any]:
    await asyncio.sleep(0)
    if name == "inputs":
        every = await inputs_of(snapshot)
        return _taken(every, rows)
    if name == "details":
        return [details async for details in _details(snapshot, rows)]
    if name in MADE:
        transform, place = snapshot.transforms.get(model), MADE.index(name)
        return [(UNTOUCHED if transform is None else transform.node(row))[place] for row in rows]
    return _taken(snapshot.payload["nodes"][name], rows)


def _taken(column: list[Any], rows: Sequence[int]) -> list[Any]:
    return column[rows.start : rows.stop] if isinstance(rows, range) else [column[row] for row in rows]


async def inputs_of(snapshot: GraphSnapshot) -> list[list[int]]:
    """For each node of all models the nodes that it takes; unpacked once for each trace."""
    if (known := _inputs.get(snapshot)) is not None:
        return known
    rows = range(len(snapshot.payload["nodes"]["name"]))
    found = [details.get("input_nodes", []) async for details in _details(snapshot, rows)]
    _inputs[snapshot] = found
    return found


async def _details(snapshot: GraphSnapshot, rows: Sequence[int]) -> AsyncIterator[Mapping[str, Any]]:
    blobs = snapshot.payload["nodes"]["blob"]
    for start in range(0, len(rows), AT_ONCE):
        for details in unpack_blobs([blobs[row] for row in rows[start : start + AT_ONCE]]):
            yield details
        await asyncio.sleep(0)


async def _tables(snapshot: GraphSnapshot, columns: dict[str, Any]) -> dict[str, list[Any]]:
    """What the columns refer to, by new indices that leave out what they do not."""
    payload = snapshot.payload
    scopes = [[path, kind] for _, path, kind in payload["scopes"]]
    files = [{key: file[key] for key in ("path", "library")} for file in payload["files"]]
    made = {"values": ("value", payload["values"]), "scopes": ("scope", scopes), "files": ("file", files)}
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
        graph,
        answers.Graph,
    ),
)
