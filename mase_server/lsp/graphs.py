"""Read-only documents of the graphs behind models: `mase-graph:` URIs, whose text follows saves and passes."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.uris import from_fs_path

from mase_server.lsp.calls import call

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

SCHEME = "mase-graph"
#: Most documents that are kept fresh: nobody says when one is closed.
_FOLLOWED = 32
_URI = re.compile(rf"{SCHEME}:(?P<file>.*)/(?P<model>[^/]+)\.(?P<which>original|transformed)\.py")


@dataclass(frozen=True, slots=True)
class Graph:
    """One document: the graph of a model, as it was traced or as its passes made it."""

    path: str
    model: str
    original: bool = False


class Graphs:
    """The documents that a client has asked for. folder: where they are written for clients that cannot ask."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._seen: dict[str, Any] = {}
        self._texts: dict[Graph, str] = {}

    def uri(self, graph: Graph) -> str:
        """Its URI; it ends in .py, so that editors know its language."""
        file = self._server.uri_of(graph.path).removeprefix("file:")
        return f"{SCHEME}:{file}/{quote(graph.model, safe='')}.{'original' if graph.original else 'transformed'}.py"

    def graph(self, uri: str) -> Graph | None:
        """The inverse of `uri`, whatever a client escapes; None for another URI."""
        found = _URI.fullmatch(uri)
        if found is None:
            return None
        path = self._server.path_of(f"file:{found['file']}")
        return Graph(path, unquote(found["model"]), found["which"] == "original")

    async def text(self, graph: Graph) -> str:
        """The graph as Python; while that cannot be had, its last text, or a comment that says why."""
        try:
            answer = await call(
                self._server, "mase/transformed", path=graph.path, model=graph.model, original=graph.original
            )
        except JsonRpcException as error:
            return (
                self._texts.get(graph) or f"# There is no graph of {graph.model} now: {' '.join(str(error).split())}\n"
            )
        self._texts = {**dict(list(self._texts.items())[1 - _FOLLOWED :]), graph: str(answer["text"])}
        return self._texts[graph]

    def asked(self, uri: str, graph: Graph) -> None:
        """A client shows this document: keep it fresh."""
        self._seen.pop(uri, None)
        self._seen[uri] = self._state(graph)
        for old in list(self._seen)[:-_FOLLOWED]:
            del self._seen[old]

    def views_changed(self, paths: Iterable[str]) -> None:
        """Have the documents of these files asked for again, where their graph is another one now."""
        changed = frozenset(paths)
        for uri, before in list(self._seen.items()):
            graph = self.graph(uri)
            if graph is not None and graph.path in changed and self._state(graph) != before:
                self._seen[uri] = self._state(graph)
                params = lsp.TextDocumentContentRefreshParams(uri)
                self._server.protocol.send_request(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH, params)

    def _state(self, graph: Graph) -> Any:
        """What decides a document's text."""
        shown = self._server.daemon.store.snapshot(graph.path)
        if shown is None or graph.model not in shown.titles:
            return None
        transform = shown.transforms.get(shown.titles.index(graph.model))
        steps = transform.told["texts"] if transform is not None and not graph.original else ()
        return shown.sha256, shown.generation, tuple(steps)

    async def show(self, graph: Graph) -> dict[str, str]:
        """{"uri", "text"}; a client that can is made to show it."""
        text = await self.text(graph)
        if self._server.can("workspace", "text_document_content"):
            return await self._shown(self.uri(graph), text)
        name = self.uri(graph).rpartition("/")[2]
        return await self._shown(await asyncio.to_thread(self._written, unquote(name), text), text)

    async def show_difference(self, path: str, model: str) -> dict[str, str]:
        """{"uri", "text"} of what the passes changed, as a unified diff; a client that can is made to show it."""
        before, after = [await self.text(Graph(path, model, original)) for original in (True, False)]
        names = (f"{model}, original", f"{model}, transformed")
        lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names)
        text = "".join(lines) or f"The graph of {model} is the original one.\n"
        return await self._shown(await asyncio.to_thread(self._written, f"{model}.diff", text), text)

    def owns(self, path: str) -> bool:
        """Is this one of these documents, or was it written here? It is then no model file of the person's."""
        return path.startswith(f"{SCHEME}:") or Path(path).parent == self._folder

    def _written(self, name: str, text: str) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / name
        file.write_text(text, encoding="utf-8")
        return from_fs_path(str(file)) or ""

    async def _shown(self, uri: str, text: str) -> dict[str, str]:
        if self._server.can("window", "show_document", "support"):
            await self._server.window_show_document_async(lsp.ShowDocumentParams(uri, take_focus=True))
        return {"uri": uri, "text": text}


async def content(ls: Server, params: lsp.TextDocumentContentParams) -> lsp.TextDocumentContentResult:
    """workspace/textDocumentContent."""
    graph = ls.graphs.graph(params.uri)
    if graph is None:
        return lsp.TextDocumentContentResult(f"# {params.uri} names no graph.\n")
    ls.graphs.asked(params.uri, graph)
    return lsp.TextDocumentContentResult(await ls.graphs.text(graph))
