"""Read-only documents of the graphs behind models: `mase-graph:` URIs, whose text follows saves and passes."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from pygls.exceptions import JsonRpcException

from mase_server.lsp.calls import call
from mase_server.lsp.contents import file_name
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

SCHEME = "mase-graph"
#: Most texts that are remembered for when they cannot be had.
_KEPT = 32
_URI = re.compile(rf"{SCHEME}:(?P<file>.*)/(?P<model>[^/]+)\.(?P<which>original|transformed)\.py")


@dataclass(frozen=True, slots=True)
class Graph:
    """One document: the graph of a model, as it was traced or as its passes made it."""

    path: str
    model: str
    original: bool = False


class Graphs:
    """The graphs as documents; see `contents.Source`."""

    scheme = SCHEME

    def __init__(self, server: Server) -> None:
        self._server = server
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

    def path(self, uri: str) -> str | None:
        """The model file of a document."""
        graph = self.graph(uri)
        return None if graph is None else graph.path

    def file(self, uri: str) -> str:
        """The name of a file that holds it."""
        return file_name(unquote(uri.rpartition("/")[2]))

    def state(self, uri: str) -> Any:
        """What decides a document's text: trace and steps."""
        graph = self.graph(uri)
        shown = None if graph is None else self._server.daemon.store.snapshot(graph.path)
        if graph is None or shown is None or graph.model not in shown.titles:
            return None
        transform = shown.transforms.get(shown.titles.index(graph.model))
        steps = transform.told["texts"] if transform is not None and not graph.original else ()
        return shown.sha256, shown.generation, tuple(steps)

    async def text(self, uri: str) -> str:
        """The graph as Python; while that cannot be had, its last text, or a comment that says why."""
        graph = self.graph(uri)
        return f"# {uri} names no graph.\n" if graph is None else await self._text(graph)

    async def show_difference(self, path: str, model: str) -> dict[str, str]:
        """{"uri", "text"} of what the passes changed, as a unified diff; a client that can is made to show it."""
        before, after = [await self._text(Graph(path, model, original)) for original in (True, False)]
        names = (f"{model}, original", f"{model}, transformed")
        lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names)
        text = "".join(lines) or f"The graph of {model} is the original one.\n"
        return await self._server.contents.show_text(f"{model}.diff", text)

    async def _text(self, graph: Graph) -> str:
        asked = {"path": graph.path, "model": graph.model, "original": graph.original}
        try:
            answer = await call(self._server, "mase/transformed", **asked)
        except JsonRpcException as error:
            why = " ".join(str(error).split())
            return self._texts.get(graph) or f"# {reveal(f'There is no graph of {graph.model} now: {why}')}\n"
        self._texts = {**dict(list(self._texts.items())[1 - _KEPT :]), graph: str(answer["text"])}
        return self._texts[graph]
