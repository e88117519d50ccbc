"""Requests of a page that shows a graph: what of it the cursor is on, as far as it is of the text that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.targets import meant, parts

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


async def nodes_at(ls: Server, params: Any) -> dict[str, Any]:
    """mase/nodesAt {uri, position, path, model}: the nodes of a model that the cursor is on, by their "row".

    {"rows", "sha256"}: what the cursor is on is found as it is for passes: a class's modules, a layer, an operation, or
    all of the line.  sha256: of the text that the graph at `path` was traced from, "" where there is none.
    """
    snapshot = ls.daemon.store.snapshot(str(params["path"]))
    if snapshot is None or params["model"] not in snapshot.titles:
        return {"rows": [], "sha256": ""}
    told, path, position = (
        {"sha256": snapshot.sha256},
        ls.path_of(str(params["uri"])),
        lsp.Position(**params["position"]),
    )
    page = ls.page_at(path, snapshot.sha256_of(path) or "")
    model = snapshot.titles.index(params["model"])
    target = None if page is None else parts(page, lsp.Range(position, position), snapshot, model)
    if target is None:
        return {"rows": [], **told}
    own = (row for row, of in enumerate(snapshot.payload["nodes"]["model"]) if of == model)
    return {"rows": list(meant(snapshot, own, target.only)), **told}
