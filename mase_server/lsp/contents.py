"""Read-only documents that this server makes, of any scheme: it shows them and keeps them up to date.

A shown document is remembered by its URI, with the state that determines its text: the text is requested again only
when that state changes. Clients without such documents get files in the cache folder, which are never traced.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.uris import from_fs_path

from mase_server.lsp.calls import call_api
from mase_server.paths import canonical_path
from mase_server.visible import reveal, shorten_middle

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


#: Maximum number of documents that are kept up to date: no client reports when one is closed.
_FOLLOWED = 32
#: Maximum characters of a file's name: at four bytes each, they fit into the 255 bytes of file systems.
_LONGEST_NAME = 60


class Source(Protocol):
    """The documents of one scheme. In every method, `uri` is the URI of one of them."""

    @property
    def scheme(self) -> str:
        """The scheme of their URIs."""

    def path(self, uri: str) -> str | None:
        """The model file of a document; None if the URI names no document."""

    def state(self, uri: str) -> Any:
        """A value that determines the text: while it stays equal, the text is not requested again."""

    async def text(self, uri: str) -> str:
        """The text of a document. It never fails: if the content is not available, the text says why."""

    def file(self, uri: str) -> str:
        """The name of a file with this content, for clients that cannot request documents."""


class Contents:
    """The documents requested by a client. folder: they are written there for clients that cannot request them."""

    def __init__(self, server: Server, folder: Path, *sources: Source) -> None:
        self._server = server
        self._folder = Path(canonical_path(folder))
        self._sources = {source.scheme: source for source in sources}
        self._seen: dict[str, object] = {}
        self._files: dict[str, str] = {}

    async def text(self, uri: str) -> str:
        """The text of a document that a client shows; the document is kept up to date from now on."""
        source = self._source_of_uri(uri)
        if source is None:
            return f"# This server has no document {uri}.\n"
        self._follow_document(uri, source)
        return await source.text(uri)

    def changed(self, paths: Iterable[str]) -> None:
        """Make the client request the documents of these model files again, if their text has changed."""
        changed = frozenset(paths)
        for uri, before in list(self._seen.items()):
            source = self._source_of_uri(uri)
            if source is not None and source.path(uri) in changed and source.state(uri) != before:
                self._seen[uri] = source.state(uri)
                self._refresh_document(uri, source)

    async def show(self, uri: str, place: lsp.Range | None = None, *, focus: bool = True) -> dict[str, str]:
        """{"uri", "text"} of a document; the client shows it at `place`, if it can."""
        text = await self.text(uri)
        return await self._show_document(await self.place(uri, text), text, place, focus)

    async def place(self, uri: str, text: str | None = None) -> str:
        """The URI that the client can open for a document: its own, or that of a file with its content."""
        source = self._source_of_uri(uri)
        if source is None or self._documents:
            return uri
        self._follow_document(uri, source)
        return await self._write_document(uri, source.file(uri), await source.text(uri) if text is None else text)

    async def show_text(self, name: str, text: str) -> dict[str, str]:
        """`show` for a text that is no document and never changes."""
        return await self._show_document(await self._write_document("", file_name(name), text), text)

    def owns(self, path: str) -> bool:
        """Is this one of these documents, or a file written for one? Such a path is no model file of the user's."""
        return path.partition(":")[0] in self._sources or Path(path).is_relative_to(self._folder)

    def document(self, uri: str) -> str:
        """The document of a URI: itself, or the one that was written to this file."""
        return self._files.get(self._server.path_of(uri), uri)

    @property
    def _documents(self) -> bool:
        return self._server.can("workspace", "text_document_content")

    def _source_of_uri(self, uri: str) -> Source | None:
        source = self._sources.get(uri.partition(":")[0])
        return None if source is None or source.path(uri) is None else source

    def _follow_document(self, uri: str, source: Source) -> None:
        self._seen.pop(uri, None)
        self._seen[uri] = source.state(uri)
        for old in list(self._seen)[:-_FOLLOWED]:
            del self._seen[old]

    def _refresh_document(self, uri: str, source: Source) -> None:
        if self._documents:
            params = lsp.TextDocumentContentRefreshParams(uri)
            self._server.protocol.send_request(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH, params)
        else:
            self._server.spawn(self._write_again(uri, source))

    async def _write_again(self, uri: str, source: Source) -> None:
        await self._write_document(uri, source.file(uri), await source.text(uri))

    async def _write_document(self, uri: str, name: str, text: str) -> str:
        file = self._folder / name
        if uri:
            self._files[str(file)] = uri
        await asyncio.to_thread(_write_text_file, file, text)
        return from_fs_path(str(file)) or ""

    async def _show_document(
        self, uri: str, text: str, place: lsp.Range | None = None, focus: bool = True
    ) -> dict[str, str]:
        if self._server.can("window", "show_document", "support"):
            params = lsp.ShowDocumentParams(uri, take_focus=focus, selection=place)
            await self._server.window_show_document_async(params)
        else:
            told = f"{Path(self._server.path_of(uri)).name} is shown by opening {self._server.path_of(uri)}"
            self._server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, told))
        return {"uri": uri, "text": text}


def file_name(text: str) -> str:
    """The text as a file name: visible characters, no folder, no longer than file systems allow."""
    return shorten_middle(reveal(text).replace("/", "_"), _LONGEST_NAME)


def _write_text_file(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


async def text_document_content(ls: Server, params: lsp.TextDocumentContentParams) -> lsp.TextDocumentContentResult:
    """workspace/textDocumentContent."""
    return lsp.TextDocumentContentResult(await ls.contents.text(params.uri))


# Read-only documents of models' graphs: `mase-graph:` URIs, whose text follows saves and passes.

SCHEME = "mase-graph"
#: Maximum number of remembered texts, shown while the present ones are not available.
_KEPT = 32
_URI = re.compile(rf"{SCHEME}:(?P<file>.*)/(?P<model>[^/]+)\.(?P<which>original|transformed)\.py")


@dataclass(frozen=True, slots=True)
class Graph:
    """One document: the graph of a model, as traced or after its passes."""

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
        """The URI; it ends in .py, so that editors recognise the language."""
        file = self._server.uri_of(graph.path).removeprefix("file:")
        return f"{SCHEME}:{file}/{quote(graph.model, safe='')}.{'original' if graph.original else 'transformed'}.py"

    def graph(self, uri: str) -> Graph | None:
        """The inverse of `uri`, however the client escapes it; None for other URIs."""
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
        """The name of a file with this content."""
        return file_name(unquote(uri.rpartition("/")[2]))

    def state(self, uri: str) -> Any:
        """The trace and the steps that determine a document's text."""
        graph = self.graph(uri)
        shown = None if graph is None else self._server.daemon.store.snapshot(graph.path)
        if graph is None or shown is None or graph.model not in shown.titles:
            return None
        transform = shown.transforms.get(shown.titles.index(graph.model))
        steps = transform.told["texts"] if transform is not None and not graph.original else ()
        return shown.sha256, shown.generation, tuple(steps)

    async def text(self, uri: str) -> str:
        """The graph as Python; if it is not available, its last text, or a comment that says why."""
        graph = self.graph(uri)
        return f"# {uri} is not the address of a graph.\n" if graph is None else await self._fetch_text(graph)

    async def show_difference(self, path: str, model: str) -> dict[str, str]:
        """{"uri", "text"} of the passes' changes as a unified diff; the client shows it, if it can."""
        before, after = [await self._fetch_text(Graph(path, model, original)) for original in (True, False)]
        names = (f"{model}, original", f"{model}, transformed")
        lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names)
        text = "".join(lines) or f"The graph of {model} is the original one.\n"
        return await self._server.contents.show_text(f"{model}.diff", text)

    async def _fetch_text(self, graph: Graph) -> str:
        asked = {"path": graph.path, "model": graph.model, "original": graph.original}
        try:
            answer = await call_api(self._server, "mase/transformed", **asked)
        except JsonRpcException as error:
            why = " ".join(str(error).split())
            return self._texts.get(graph) or f"# {reveal(f'There is no graph of {graph.model} now: {why}')}\n"
        self._texts = {**dict(list(self._texts.items())[1 - _KEPT :]), graph: str(answer["text"])}
        return self._texts[graph]
