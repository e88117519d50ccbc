"""An API function for who shows a whole model file: all that its own trace tells of it, in one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from mase_server import answers
from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.graph_snapshot import GraphSnapshot, SiteView, ValueView
from mase_server.daemon.methods import Api, ApiMethod, Params
from mase_server.daemon.store import Entry, FileView

_SITES = 5_000
_LINES = 32
_EXTENT = ("line", "column", "end_line", "end_column")
_NAMED = frozenset({"parameter", "binding", "return"})


async def traced(api: Api, params: Params) -> dict[str, Any]:
    """What the trace of the newest text of the model file `path` tells of that file; other files' traces add nothing.

    {"path", "sha256", "status", "interpreter", "python", "torch", "seconds", "models", "problems", "sites", "next"}:
    what `mase-server shapes` shows. Models have "title" and "path" besides `snapshot.MODEL_KEYS`; sites are as
    `mase/tensors` has them, their values with "scopes". Nothing is shown of an older text.
    all: expressions too.  passes: as the passes of its models made it.  first: the line that the sites begin at.
    """
    path = params["path"]
    tracked, entry = tracked_of(api, path), api.daemon.store.entry(path)
    snapshot = None if entry.stale else entry.shown
    passes = params.get("passes", False)
    sites, following = await _sites(entry, params) if snapshot is not None else ([], None)
    payload = {} if snapshot is None else snapshot.payload
    return {
        "path": path,
        "sha256": entry.sha256 or tracked.source.sha256,
        "status": tracked.status and asdict(tracked.status),
        "interpreter": tracked.interpreter,
        **{key: payload.get(key) for key in ("python", "torch", "seconds")},
        "models": [] if snapshot is None else list(_models(snapshot)),
        "problems": [asdict(problem) for problem in (entry.told if passes else entry.problems)],
        "sites": sites,
        "next": following,
    }


def _models(snapshot: GraphSnapshot) -> Iterator[dict[str, Any]]:
    files = snapshot.payload["files"]
    for model, title in zip(snapshot.payload["models"], snapshot.titles, strict=True):
        yield {**model, "title": title, "path": files[model["file_index"]]["path"]}


async def _sites(entry: Entry, params: Params) -> tuple[list[dict[str, Any]], int | None]:
    """The sites of a page, and the line that the next one begins at."""
    assert entry.shown is not None
    view = FileView(entry.path, entry.shown.sha256, entry.shown.sha256, [entry])
    kinds = None if params.get("all") else _NAMED
    # Steps are of lines that there are: a client may say any number.
    line, last, found = max(1, params.get("first", 1)), _last_line(entry.shown), list[dict[str, Any]]()
    while line <= last and len(found) < _SITES:
        sites = view.sites(line, line + _LINES - 1, kinds)
        found += [_site(site, params.get("passes", False)) for site in sites]
        line += _LINES
        await asyncio.sleep(0)
    return found, line if line <= last else None


def _last_line(snapshot: GraphSnapshot) -> int:
    return max(snapshot.payload["sites"]["line"], default=0)


def _site(site: SiteView, passes: bool) -> dict[str, Any]:
    place = {key: getattr(site, key) for key in (*_EXTENT, "name", "kind", "function")}
    return {**place, "values": [_value(value, passes) for value in site.values]}


def _value(value: ValueView, passes: bool) -> dict[str, Any]:
    before = value.value if passes or value.original is None else value.original
    scopes = [path for path, _ in value.scopes]
    return {"value": before, "model": value.model, "count": value.count, "scopes": scopes}


TRACED = (
    ApiMethod("mase/traced", {"path": str, "all?": bool, "passes?": bool, "first?": int}, traced, answers.Traced),
)
