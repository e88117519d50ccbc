"""Requests of pages that show a model: where a place of the traced text is now, and which rows the cursor is on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.daemon.api_costs import row_ids
from mase_server.lsp.assumptions import on_lines
from mase_server.lsp.targets import parts

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

_PLACE = ("line", "column", "end_line", "end_column")


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


async def cost_rows_at(ls: Server, params: Any) -> dict[str, Any]:
    """mase/costRowsAt {uri, position, path, model}: {"ids", "sha256"} of the rows of `mase/costTable` at the cursor.

    What the cursor is on is found as it is for passes; at the name of the model's class it is the whole model.  sha256:
    of the text that the table is of, "" where there is none.
    """
    snapshot, title = ls.daemon.store.snapshot(str(params["path"])), params["model"]
    if snapshot is None or title not in snapshot.titles:
        return {"ids": [], "sha256": ""}
    path, position = ls.path_of(str(params["uri"])), lsp.Position(**params["position"])
    page, model = ls.page_at(path, snapshot.sha256_of(path) or ""), snapshot.titles.index(title)
    if page is None:
        return {"ids": [], "sha256": snapshot.sha256}
    at, here = page.range(snapshot.all_models()[model]), lsp.Range(position, position)
    if snapshot.all_models()[model].path == path and at is not None and on_lines(at, here):
        return {"ids": [""], "sha256": snapshot.sha256}
    target = parts(page, here, snapshot, model)
    ids = [] if target is None else row_ids(snapshot, model, target.only)
    return {"ids": ids, "sha256": snapshot.sha256}
