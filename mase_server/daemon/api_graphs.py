"""API functions that read what was traced: graphs, tensors, problems, costs, and how two models differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from weakref import WeakKeyDictionary

from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params
from mase_server.daemon.store import FileView, SiteView
from mase_server.daemon.transform import UNTOUCHED
from mase_server.snapshot import COLUMNS, TRANSFORM_NODES
from mase_server.wire import unpack_blobs

#: Rows that are worked on in one turn of the event loop.
_AT_ONCE = 256
_MOST = 100_000
_SITES = 5_000
_LINES = 32
#: Columns of `mase/graph` as a trace has them, what passes made of them, and what has to be unpacked first.
_TRACED = tuple(name for name in COLUMNS["nodes"] if name not in ("blob", "model"))
_MADE = TRANSFORM_NODES[1:]
_UNPACKED = ("inputs", "details")
_USUAL = (*_TRACED, "inputs")
_KINDS = frozenset({"parameter", "binding", "return"})
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
        told = ", ".join(snapshot.titles)
        raise ApiError("unknown-model", f"{path} has no model {title!r}; it has {told}", {"models": snapshot.titles})
    return snapshot, 0 if title is None else snapshot.titles.index(title)


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
    "format", "sqnr", "max_error", "note" of what passes made; without it all but details and the last four.
    """
    snapshot, model = shown(api, params)
    names = _names(params.get("columns"))
    rows = _rows(snapshot, model, params.get("scope"))
    start, count = params.get("start", 0), min(params.get("count", _MOST), _MOST)
    if start < 0 or count < 1:
        raise ApiError("invalid-params", f"start is {start} and count {count}; they begin at 0 and 1")
    page = rows[start : start + count]
    entry = api.daemon.store.entry(snapshot.path)
    told: dict[str, Any] = {"path": snapshot.path, "model": snapshot.titles[model], "sha256": snapshot.sha256}
    told |= {"generation": snapshot.generation, "stale": entry.stale, "complete": snapshot.complete}
    told |= {"total": len(rows), "start": start, "next": start + len(page) if start + len(page) < len(rows) else None}
    columns: dict[str, Any] = {"row": list(page)}
    for name in names:
        columns[name] = await _column(snapshot, model, name, page)
    return {**told, **await _tables(snapshot, columns), "columns": columns}


def _names(asked: Sequence[Any] | None) -> Sequence[str]:
    known = (*_TRACED, *_UNPACKED, *_MADE)
    if asked is None:
        return _USUAL
    if wrong := [name for name in asked if name not in known]:
        raise ApiError("invalid-params", f"a graph has no column {wrong[0]!r}; it has {', '.join(known)}")
    return [str(name) for name in asked]


def _rows(snapshot: GraphSnapshot, model: int, scope: str | None) -> Sequence[int]:
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
    if name in _MADE:
        transform, place = snapshot.transforms.get(model), _MADE.index(name)
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
    for start in range(0, len(rows), _AT_ONCE):
        for details in unpack_blobs([blobs[row] for row in rows[start : start + _AT_ONCE]]):
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


async def tensors(api: Api, params: Params) -> dict[str, Any]:
    """The tensors of a source file, line by line: {"path", "sha256", "stale", "sites", "next"}.

    A site is {"line", "column", "end_line", "end_column", "name", "kind", "function", "values"}, a value
    {"value", "original", "model", "count"} as in `snapshot`.  first, last: of these lines alone.  all: expressions too.
    next: the line that the rest begins at, or None.
    """
    view = view_of(api, params["path"])
    first, last = params.get("first", 1), params.get("last", 1 << 30)
    last = min(last, _last_line(api, params["path"]))
    kinds, sites = None if params.get("all") else _KINDS, list[dict[str, Any]]()
    while first <= last and len(sites) < _SITES:
        sites += [_site(site) for site in view.sites(first, min(first + _LINES - 1, last), kinds)]
        first += _LINES
        await asyncio.sleep(0)
    told = {"path": view.path, "sha256": view.sha256, "stale": view.stale}
    return {**told, "next": first if first <= last else None, "sites": sites}


def _last_line(api: Api, path: str) -> int:
    """The last line of a file that anything is known of."""
    sites = [snapshot.payload["sites"] for snapshot in api.daemon.store.snapshots() if path in snapshot.files]
    return max((max(each["line"], default=0) for each in sites), default=0)


def _site(site: SiteView) -> dict[str, Any]:
    extent = dict(zip(("line", "column", "end_line", "end_column"), site.extent, strict=True))
    values = [{key: getattr(one, key) for key in ("value", "original", "model", "count")} for one in site.values]
    return {**extent, "name": site.name, "kind": site.kind, "function": site.function, "values": values}


async def problems(api: Api, params: Params) -> list[dict[str, Any]]:
    """The problems in a source file, in all traced files without `path`: `snapshot.Problem` as maps."""
    paths = [params["path"]] if "path" in params else [each.path for each in api.daemon.files()]
    if "path" in params and api.daemon.store.view(params["path"]) is None:
        tracked_of(api, params["path"])
    views = [view for path in paths if (view := api.daemon.store.view(path)) is not None]
    return [asdict(problem) for view in views for problem in view.problems()]


async def costs(api: Api, params: Params) -> dict[str, Any]:
    """What a model costs: {"model", "nodes", "flops", "parameters", "parameter_bytes", "modules", "operators"}.

    modules: {"path", "type", "nodes", "flops"} of each module, with all below it, "" for the whole; operators:
    {"mase_op", "family", "nodes", "flops"}, the dearest first.  flops: of one forward at the sizes it was traced with.
    """
    snapshot, index = shown(api, params)
    nodes, model = snapshot.payload["nodes"], snapshot.payload["models"][index]
    modules: dict[str, list[int]] = {}
    operators: dict[tuple[str, str], list[int]] = {}
    for number, row in enumerate(_rows(snapshot, index, None), 1):
        flops = nodes["flops"][row] or 0
        for key in _above(_module(snapshot, row)):
            _count(modules, key, flops)
        _count(operators, (nodes["mase_op"][row], nodes["family"][row]), flops)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    types = {path: kind for of, path, kind in snapshot.payload["scopes"] if of == index}
    dearest = sorted(operators.items(), key=lambda each: -each[1][1])
    return {
        "model": snapshot.titles[index],
        **{key: model[key] for key in ("nodes", "flops", "parameters", "parameter_bytes")},
        "modules": [{"path": path, "type": types.get(path, ""), **_counted(sums)} for path, sums in modules.items()],
        "operators": [{"mase_op": name, "family": family, **_counted(sums)} for (name, family), sums in dearest],
    }


def _module(snapshot: GraphSnapshot, row: int) -> str:
    """The path of the module that a node calls, or else of the one that it stands in."""
    nodes, scope = snapshot.payload["nodes"], snapshot.payload["nodes"]["scope"][row]
    if nodes["op"][row] == "call_module":
        return str(nodes["target"][row])
    return str(snapshot.payload["scopes"][scope][1]) if scope >= 0 else ""


def _above(path: str) -> Iterator[str]:
    """A module's path, and those of all that hold it."""
    parts = path.split(".") if path else []
    yield from (".".join(parts[:length]) for length in range(len(parts) + 1))


def _count(sums: dict[Any, list[int]], key: Any, flops: int) -> None:
    found = sums.setdefault(key, [0, 0])
    found[0] += 1
    found[1] += flops


def _counted(sums: Sequence[int]) -> Mapping[str, int]:
    return {"nodes": sums[0], "flops": sums[1]}


async def compare(api: Api, params: Params) -> dict[str, Any]:
    """How a model differs from another (`other`: {"path", "model"?}), or, without it, from itself before its passes.

    {"before", "after": {"path", "model", "nodes", "parameters", "parameter_bytes", "flops"}, "changed", "added",
    "removed", "summary"}; nodes are matched by name.  changed: {"name", "before", "after"} of nodes whose operator or
    value differs, and with passes "format", "sqnr" and "max_error"; added and removed: names.
    """
    snapshot, model = shown(api, params)
    if "other" not in params:
        return {**_sides((snapshot, model), (snapshot, model)), **await _passes_made(snapshot, model)}
    other = params["other"]
    if not isinstance(other.get("path"), str):
        raise ApiError("invalid-params", 'other is a map with "path", and "model" where a file has several')
    base = shown(api, other)
    before, after = [await _named(*each) for each in (base, (snapshot, model))]
    changed = []
    for number, name in enumerate(before):
        if name in after and before[name] != after[name]:
            changed.append({"name": name, "before": before[name], "after": after[name]})
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    added, removed = [[name for name in one if name not in two] for one, two in ((after, before), (before, after))]
    return {**_sides(base, (snapshot, model)), "changed": changed, "added": added, "removed": removed, "summary": None}


def _sides(before: tuple[GraphSnapshot, int], after: tuple[GraphSnapshot, int]) -> dict[str, Any]:
    def side(snapshot: GraphSnapshot, model: int) -> dict[str, Any]:
        facts = snapshot.payload["models"][model]
        numbers = {key: facts[key] for key in ("nodes", "parameters", "parameter_bytes", "flops")}
        return {"path": snapshot.path, "model": snapshot.titles[model], **numbers}

    return {"before": side(*before), "after": side(*after)}


async def _named(snapshot: GraphSnapshot, model: int) -> dict[str, Any]:
    """For each node, by its name, what makes it the same as another: its operator and its value."""
    nodes, values = snapshot.payload["nodes"], snapshot.payload["values"]
    found = {}
    for number, row in enumerate(_rows(snapshot, model, None)):
        value = nodes["value"][row]
        found[nodes["name"][row]] = {"mase_op": nodes["mase_op"][row], "value": values[value] if value >= 0 else None}
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def _passes_made(snapshot: GraphSnapshot, model: int) -> dict[str, Any]:
    transform = snapshot.transforms.get(model)
    if transform is None:
        return {"changed": [], "added": [], "removed": [], "summary": None}
    nodes, values = snapshot.payload["nodes"], snapshot.payload["values"]
    changed = []
    for row in sorted(transform.places):
        facts = dict(zip(_MADE, transform.node(row), strict=True))
        value = values[nodes["value"][row]] if nodes["value"][row] >= 0 else None
        side = {"mase_op": nodes["mase_op"][row], "value": value}
        changed.append({"name": nodes["name"][row], "before": side, "after": side, **facts})
    return {"changed": changed, "added": [], "removed": [], "summary": transform.told["summary"]}


_MODEL = {"path": str, "model?": str}

GRAPHS = (
    ApiMethod("mase/graph", {**_MODEL, "scope?": str, "start?": int, "count?": int, "columns?": list}, graph),
    ApiMethod("mase/tensors", {"path": str, "first?": int, "last?": int, "all?": bool}, tensors),
    ApiMethod("mase/problems", {"path?": str}, problems, answer="problems"),
    ApiMethod("mase/costs", _MODEL, costs),
    ApiMethod("mase/compare", {**_MODEL, "other?": dict}, compare),
)
