"""API functions that read what was traced: tensors, problems, costs, and how two models differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mase_server import answers
from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.api_graphs import MADE, rows_of, shown, view_of
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.slices import sliced
from mase_server.daemon.store import SiteView
from mase_server.paths import canonical_of_absolute

_SITES = 5_000
_LINES = 32
_KINDS = frozenset({"parameter", "binding", "return"})


async def tensors(api: Api, params: Params) -> dict[str, Any]:
    """The tensors of a source file, line by line: {"path", "sha256", "stale", "sites", "next"}.

    A site is {"line", "column", "end_line", "end_column", "name", "kind", "function", "values"}, a value
    {"value", "original", "model", "count"} as in `snapshot`.  first, last: of these lines alone.  all: expressions too.
    next: the line that the rest begins at, or None.
    """
    view = view_of(api, params["path"])
    # Steps are of lines that there are: a client may say any number.
    first, last = max(1, params.get("first", 1)), params.get("last", 1 << 30)
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
    return [asdict(problem) async for problem in sliced(problem for view in views for problem in view.problems())]


async def costs(api: Api, params: Params) -> dict[str, Any]:
    """What a model costs: {"model", "nodes", "flops", "parameters", "parameter_bytes", "modules", "operators"}.

    modules: {"path", "type", "nodes", "flops"} of each module, with all below it, "" for the whole; operators:
    {"mase_op", "family", "nodes", "flops"}, the dearest first.  flops: of one forward at the sizes it was traced with.
    """
    snapshot, index = shown(api, params)
    nodes, model = snapshot.payload["nodes"], snapshot.payload["models"][index]
    modules: dict[str, list[int]] = {}
    operators: dict[tuple[str, str], list[int]] = {}
    async for row in sliced(rows_of(snapshot, index, None)):
        flops = nodes["flops"][row] or 0
        for key in _above(_module(snapshot, row)):
            _count(modules, key, flops)
        _count(operators, (nodes["mase_op"][row], nodes["family"][row]), flops)
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
    value differs, and with passes "format", "sqnr", "max_error", "saturated"; added and removed: names.
    """
    snapshot, model = shown(api, params)
    if "other" not in params:
        return {**_sides((snapshot, model), (snapshot, model)), **await _passes_made(snapshot, model)}
    other = params["other"]
    if not isinstance(other.get("path"), str):
        raise ApiError("invalid-params", 'other is a map with "path", and "model" where a file has several')
    base = shown(api, {**other, "path": canonical_of_absolute(other["path"])})
    before, after = [await _named(*each) for each in (base, (snapshot, model))]
    changed = []
    async for name in sliced(before):
        if name in after and before[name] != after[name]:
            changed.append({"name": name, "before": before[name], "after": after[name]})
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
    async for row in sliced(rows_of(snapshot, model, None)):
        value = nodes["value"][row]
        found[nodes["name"][row]] = {"mase_op": nodes["mase_op"][row], "value": values[value] if value >= 0 else None}
    return found


async def _passes_made(snapshot: GraphSnapshot, model: int) -> dict[str, Any]:
    transform = snapshot.transforms.get(model)
    if transform is None:
        return {"changed": [], "added": [], "removed": [], "summary": None}
    nodes, values = snapshot.payload["nodes"], snapshot.payload["values"]
    changed = []
    async for row in sliced(sorted(transform.places)):
        facts = dict(zip(MADE, transform.node(row), strict=True))
        value = values[nodes["value"][row]] if nodes["value"][row] >= 0 else None
        side = {"mase_op": nodes["mase_op"][row], "value": value}
        changed.append({"name": nodes["name"][row], "before": side, "after": side, **facts})
    return {"changed": changed, "added": [], "removed": [], "summary": transform.told["summary"]}


READINGS = (
    ApiMethod("mase/tensors", {"path": str, "first?": int, "last?": int, "all?": bool}, tensors, answers.Tensors),
    ApiMethod("mase/problems", {"path?": str}, problems, list[answers.Problem], answer="problems"),
    ApiMethod("mase/costs", MODEL, costs, answers.Costs),
    ApiMethod("mase/compare", {**MODEL, "other?": dict}, compare, answers.Comparison),
)
