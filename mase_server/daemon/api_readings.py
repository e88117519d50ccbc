"""API functions that read a trace: tensors, problems, costs, and the difference between two models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.api_graphs import find_shown_model, rows_of, view_of
from mase_server.daemon.graph_snapshot import GraphSnapshot, SiteView, ValueView
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.slots import iterate_in_slices
from mase_server.daemon.store import Entry, FileView
from mase_server.paths import canonical_of_absolute
from mase_server.protocol import answers

_SITES = 5_000
_LINES = 32
_KINDS = frozenset({"parameter", "binding", "return"})


async def read_tensor_sites(api: Api, params: Params) -> answers.Tensors:
    """The tensors of a source file, line by line: {"path", "sha256", "stale", "sites", "next"}.

    A site is {"line", "column", "end_line", "end_column", "name", "kind", "function", "values"}, a value {"value",
    "original", "model", "count"} as in `snapshot`.  first, last: the range of lines.  all: include expressions. next:
    the line at which the rest begins, or None.
    """
    view = view_of(api, params["path"])
    # Bound the loop by the lines that exist: a client may send any number.
    first, last = max(1, params.get("first", 1)), params.get("last", 1 << 30)
    last = min(last, _last_line(api, params["path"]))
    kinds, sites = None if params.get("all") else _KINDS, list[answers.Site]()
    while first <= last and len(sites) < _SITES:
        sites += [_site_to_map(site) for site in view.sites(first, min(first + _LINES - 1, last), kinds)]
        first += _LINES
        await asyncio.sleep(0)
    following = first if first <= last else None
    return {"path": view.path, "sha256": view.sha256, "stale": view.stale, "next": following, "sites": sites}


def _last_line(api: Api, path: str) -> int:
    """The last line of a file about which anything is known."""
    sites = [snapshot.payload["sites"] for snapshot in api.daemon.store.snapshots() if path in snapshot.files]
    return max((max(each["line"], default=0) for each in sites), default=0)


def _site_to_map(site: SiteView) -> answers.Site:
    return {
        "line": site.line, "column": site.column, "end_line": site.end_line, "end_column": site.end_column,
        "name": site.name, "kind": site.kind, "function": site.function,
        "values": [
            {"value": one.value, "original": one.original, "model": one.model, "count": one.count}
            for one in site.values
        ],
    }  # fmt: skip


async def list_problems(api: Api, params: Params) -> list[answers.Problem]:
    """The problems in a source file, or in all traced files without `path`."""
    paths = [params["path"]] if "path" in params else [each.path for each in api.daemon.files()]
    if "path" in params and api.daemon.store.view(params["path"]) is None:
        tracked_of(api, params["path"])
    views = [view for path in paths if (view := api.daemon.store.view(path)) is not None]
    return [
        {**problem.to_wire()}
        async for problem in iterate_in_slices(problem for view in views for problem in view.problems())
    ]


async def sum_costs(api: Api, params: Params) -> answers.Costs:
    """The cost of a model: {"model", "nodes", "flops", "parameters", "parameter_bytes", "complete", "modules",
    "operators"}.

    modules: {"path", "type", "nodes", "flops"} of each module including everything below it, "" for the whole model.
    operators: {"mase_op", "family", "nodes", "flops"}, the most expensive first.  flops: of one forward at the traced
    sizes.
    """
    snapshot, index = find_shown_model(api, params)
    nodes, model = snapshot.payload["nodes"], snapshot.payload["models"][index]
    modules: dict[str, list[int]] = {}
    operators: dict[tuple[str, str], list[int]] = {}
    async for row in iterate_in_slices(rows_of(snapshot, index, None)):
        flops = nodes["flops"][row] or 0
        for key in _iterate_module_paths(_get_module_path(snapshot, row)):
            _add_to_sums(modules, key, flops)
        _add_to_sums(operators, (nodes["mase_op"][row], nodes["family"][row]), flops)
    types = {path: kind for of, path, kind in snapshot.payload["scopes"] if of == index}
    dearest = sorted(operators.items(), key=lambda each: -each[1][1])
    return {
        "model": snapshot.titles[index],
        "nodes": model["nodes"],
        "flops": model["flops"],
        "parameters": model["parameters"],
        "parameter_bytes": model["parameter_bytes"],
        "complete": snapshot.complete and model.get("complete", True),
        "modules": [
            {"path": path, "type": types.get(path, ""), "nodes": count, "flops": flops}
            for path, (count, flops) in modules.items()
        ],
        "operators": [
            {"mase_op": name, "family": family, "nodes": count, "flops": flops}
            for (name, family), (count, flops) in dearest
        ],
    }


def _get_module_path(snapshot: GraphSnapshot, row: int) -> str:
    """The path of the module that a node calls, or else of the one that contains it."""
    nodes, scope = snapshot.payload["nodes"], snapshot.payload["nodes"]["scope"][row]
    if nodes["op"][row] == "call_module":
        return str(nodes["target"][row])
    return str(snapshot.payload["scopes"][scope][1]) if scope >= 0 else ""


def _iterate_module_paths(path: str) -> Iterator[str]:
    """A module's path, and the paths of all modules that hold it."""
    parts = path.split(".") if path else []
    yield from (".".join(parts[:length]) for length in range(len(parts) + 1))


def _add_to_sums(sums: dict[Any, list[int]], key: Any, flops: int) -> None:
    found = sums.setdefault(key, [0, 0])
    found[0] += 1
    found[1] += flops


async def compare_models(api: Api, params: Params) -> answers.Comparison:
    """Compare a model with another (`other`: {"path", "model"?}) or, without it, with itself before its passes.

    {"before", "after": {"path", "model", "nodes", "parameters", "parameter_bytes", "flops"}, "changed", "added",
    "removed", "summary"}; nodes are matched by name.  changed: {"name", "before", "after"} of nodes whose operator or
    value differs, with passes also "format", "sqnr", "max_error", "saturated"; added and removed: names.
    """
    snapshot, model = find_shown_model(api, params)
    if "other" not in params:
        return await _compare_with_traced(snapshot, model)
    other = params["other"]
    if not isinstance(other.get("path"), str):
        raise ApiError("invalid-params", 'other is a map with "path", and "model" where a file has several')
    base = find_shown_model(api, {**other, "path": canonical_of_absolute(other["path"])})
    before, after = [await _index_nodes_by_name(*each) for each in (base, (snapshot, model))]
    changed: list[answers.Changed] = []
    async for name in iterate_in_slices(before):
        if name in after and before[name] != after[name]:
            changed.append({"name": name, "before": before[name], "after": after[name]})
    added, removed = [[name for name in one if name not in two] for one, two in ((after, before), (before, after))]
    return {
        "before": _describe_side(*base),
        "after": _describe_side(snapshot, model),
        "changed": changed,
        "added": added,
        "removed": removed,
        "summary": None,
    }


def _describe_side(snapshot: GraphSnapshot, model: int) -> answers.Side:
    facts = snapshot.payload["models"][model]
    return {
        "path": snapshot.path,
        "model": snapshot.titles[model],
        "nodes": facts["nodes"],
        "parameters": facts["parameters"],
        "parameter_bytes": facts["parameter_bytes"],
        "flops": facts["flops"],
    }


async def _index_nodes_by_name(snapshot: GraphSnapshot, model: int) -> dict[str, answers.NodeSide]:
    """For each node, by name, the facts that are compared: its operator and its value."""
    nodes, values = snapshot.payload["nodes"], snapshot.payload["values"]
    found: dict[str, answers.NodeSide] = {}
    async for row in iterate_in_slices(rows_of(snapshot, model, None)):
        value = nodes["value"][row]
        found[nodes["name"][row]] = {"mase_op": nodes["mase_op"][row], "value": values[value] if value >= 0 else None}
    return found


async def _compare_with_traced(snapshot: GraphSnapshot, model: int) -> answers.Comparison:
    """The changes that the passes on a model made."""
    both, transform = _describe_side(snapshot, model), snapshot.transforms.get(model)
    changed: list[answers.Changed] = []
    if transform is None:
        return {"before": both, "after": both, "changed": changed, "added": [], "removed": [], "summary": None}
    nodes, values = snapshot.payload["nodes"], snapshot.payload["values"]
    async for row in iterate_in_slices(sorted(transform.places)):
        format, sqnr, max_error, note, saturated = transform.node(row)
        value = values[nodes["value"][row]] if nodes["value"][row] >= 0 else None
        side: answers.NodeSide = {"mase_op": nodes["mase_op"][row], "value": value}
        changed.append({
            "name": nodes["name"][row], "before": side, "after": side,
            "format": format, "sqnr": sqnr, "max_error": max_error, "note": note, "saturated": saturated,
        })  # fmt: skip
    summary = transform.told["summary"]
    return {"before": both, "after": both, "changed": changed, "added": [], "removed": [], "summary": summary}


READINGS = (
    ApiMethod(
        "mase/tensors", {"path": str, "first?": int, "last?": int, "all?": bool}, read_tensor_sites, answers.Tensors
    ),
    ApiMethod("mase/problems", {"path?": str}, list_problems, list[answers.Problem], answer="problems"),
    ApiMethod("mase/costs", MODEL, sum_costs, answers.Costs),
    ApiMethod("mase/compare", {**MODEL, "other?": dict}, compare_models, answers.Comparison),
)


# The API function for clients that show a whole model file: everything that its own trace found, in one answer.

_NAMED = frozenset({"parameter", "binding", "return"})


async def read_traced_file(api: Api, params: Params) -> answers.Traced:
    """Return the results of the trace of the model file `path` for that file itself, without other files' traces.

    It has the content of `mase-server shapes`. Results of an older text are never returned. all: include expressions.
    passes: as the passes of its models changed it.  first: the line at which the sites begin.
    """
    path = params["path"]
    tracked, entry = tracked_of(api, path), api.daemon.store.entry(path)
    snapshot = None if entry.stale else entry.shown
    passes = params.get("passes", False)
    sites, following = await _read_sites(entry, params) if snapshot is not None else ([], None)
    return {
        "path": path,
        "sha256": entry.sha256 or tracked.source.sha256,
        "status": None if tracked.status is None else tracked.status.to_wire(),
        "interpreter": tracked.interpreter,
        "python": None if snapshot is None else snapshot.payload["python"],
        "torch": None if snapshot is None else snapshot.payload["torch"],
        "seconds": None if snapshot is None else snapshot.payload["seconds"],
        "models": [] if snapshot is None else list(_iterate_models(snapshot)),
        "problems": [{**problem.to_wire()} for problem in (entry.told if passes else entry.problems)],
        "sites": sites,
        "next": following,
    }


def _iterate_models(snapshot: GraphSnapshot) -> Iterator[answers.ModelFacts]:
    files = snapshot.payload["files"]
    for model, title in zip(snapshot.records, snapshot.titles, strict=True):
        yield {**model, "title": title, "path": files[model["file_index"]]["path"]}


async def _read_sites(entry: Entry, params: Params) -> tuple[list[answers.TracedSite], int | None]:
    """The sites of a page, and the line at which the next page begins."""
    assert entry.shown is not None
    view = FileView(entry.path, entry.shown.sha256, entry.shown.sha256, [entry])
    kinds = None if params.get("all") else _NAMED
    # Bound the loop by the lines that exist: a client may send any number.
    line, last, found = max(1, params.get("first", 1)), _find_last_line(entry.shown), list[answers.TracedSite]()
    while line <= last and len(found) < _SITES:
        sites = view.sites(line, line + _LINES - 1, kinds)
        found += [_traced_site_to_map(site, params.get("passes", False)) for site in sites]
        line += _LINES
        await asyncio.sleep(0)
    return found, line if line <= last else None


def _find_last_line(snapshot: GraphSnapshot) -> int:
    return max(snapshot.payload["sites"]["line"], default=0)


def _traced_site_to_map(site: SiteView, passes: bool) -> answers.TracedSite:
    return {
        "line": site.line, "column": site.column, "end_line": site.end_line, "end_column": site.end_column,
        "name": site.name, "kind": site.kind, "function": site.function,
        "values": [_traced_value_to_map(value, passes) for value in site.values],
    }  # fmt: skip


def _traced_value_to_map(value: ValueView, passes: bool) -> answers.TracedValue:
    before = value.value if passes or value.original is None else value.original
    scopes = [path for path, _ in value.scopes]
    return {"value": before, "model": value.model, "count": value.count, "scopes": scopes}


TRACED = (
    ApiMethod(
        "mase/traced", {"path": str, "all?": bool, "passes?": bool, "first?": int}, read_traced_file, answers.Traced
    ),
)
