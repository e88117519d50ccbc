"""Requests of pages that show a model: where a place of the traced text is now, and which rows the cursor is on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.daemon.api_costs import row_ids
from mase_server.daemon.api_graphs import rows_of
from mase_server.daemon.slices import Slices
from mase_server.lsp.assumptions import on_lines
from mase_server.lsp.outline import prepare
from mase_server.lsp.targets import meant, parts

if TYPE_CHECKING:
    from mase_server.daemon.store import GraphSnapshot
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

_PLACE = ("line", "column", "end_line", "end_column")
#: Nodes that are looked at before it is looked whether others should get their turn.
_ROWS_AT_ONCE = 2000


async def present_place(ls: Server, params: Any) -> dict[str, Any] | None:
    """mase/presentPlace {path, line, column, end_line, end_column}: {"uri", "range"} of a place of the traced text.

    Lines from 1, columns from 0 in code points, as API functions tell places; "range" is of the present text.  None
    where one of its lines was edited since, or the file cannot be read.
    """
    path, traced = str(params["path"]), {key: int(params[key]) for key in _PLACE}
    view = ls.daemon.store.view(path)
    page = None if view is None else ls.page_at(path, view.sha256)
    place = ls.place_in({"file": path, **traced}) if page is None else page.place_of(traced)
    return None if place is None else {"uri": ls.uri_of(path), "range": place}


async def nodes_at(ls: Server, params: Any) -> dict[str, Any]:
    """mase/nodesAt {uri, position, path, model}: the nodes of a model that the cursor is on, by their "row".

    {"rows", "sha256"}: what the cursor is on is found as it is for passes: a class's modules, a layer, an operation, or
    all of the line.  sha256: of the text that the graph at `path` was traced from, "" where there is none.
    """
    asked, rows = _asked(ls, params), list[int]()
    if asked is None:
        return {"rows": rows, "sha256": ""}
    if asked.page is not None:
        await prepare(asked.page.python)
    target = None if asked.page is None else parts(asked.page, asked.here, asked.snapshot, asked.model)
    own, slices = () if target is None else rows_of(asked.snapshot, asked.model, None), Slices()
    for start in range(0, len(own), _ROWS_AT_ONCE):
        assert target is not None
        rows += meant(asked.snapshot, own[start : start + _ROWS_AT_ONCE], target.only)
        await slices.pause()
    return {"rows": rows, "sha256": asked.snapshot.sha256}


async def cost_rows_at(ls: Server, params: Any) -> dict[str, Any]:
    """mase/costRowsAt {uri, position, path, model}: {"ids", "sha256"} of the rows of `mase/costTable` at the cursor.

    What the cursor is on is found as it is for passes; at the name of the model's class it is the whole model.  sha256:
    of the text that the table is of, "" where there is none.
    """
    asked = _asked(ls, params)
    if asked is None:
        return {"ids": [], "sha256": ""}
    ids = [] if asked.page is None else await _cost_rows(asked, asked.page)
    return {"ids": ids, "sha256": asked.snapshot.sha256}


async def _cost_rows(asked: _Asked, page: Page) -> list[str]:
    whole = asked.snapshot.all_models()[asked.model]
    at = page.range(whole)
    if whole.path == page.document.path and at is not None and on_lines(at, asked.here):
        return [""]
    await prepare(page.python)
    target = parts(page, asked.here, asked.snapshot, asked.model)
    return [] if target is None else await row_ids(asked.snapshot, asked.model, target.only)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A cursor, and a model of which it is asked what it is on. page: None where nothing is known of the text there."""

    snapshot: GraphSnapshot
    model: int
    page: Page | None
    here: lsp.Range


def _asked(ls: Server, params: Any) -> _Asked | None:
    """What {uri, position, path, model} means; None where there is no such model."""
    snapshot, title = ls.daemon.store.snapshot(str(params["path"])), params["model"]
    if snapshot is None or title not in snapshot.titles:
        return None
    path, position = ls.path_of(str(params["uri"])), lsp.Position(**params["position"])
    page = ls.page_at(path, snapshot.sha256_of(path) or "")
    return _Asked(snapshot, snapshot.titles.index(title), page, lsp.Range(position, position))
