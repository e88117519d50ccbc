"""Read-only documents that this server makes, whatever their scheme: shown, kept fresh, and known again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lsprotocol import types as lsp
from pygls.uris import from_fs_path

from mase_server.paths import canonical
from mase_server.visible import reveal, shorten_middle

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: Most documents that are kept fresh: nobody says when one is closed.
_FOLLOWED = 32
#: Characters of a file's name: of four bytes each, they are fewer than the 255 bytes that file systems take.
_LONGEST_NAME = 60


class Source(Protocol):
    """The documents of one scheme. `uri` is that of one of them everywhere."""

    @property
    def scheme(self) -> str:
        """The scheme of their URIs."""

    def path(self, uri: str) -> str | None:
        """The model file that a document is of; None where the URI names no document."""

    def state(self, uri: str) -> Any:
        """What decides its text; while it is equal, nobody asks again."""

    async def text(self, uri: str) -> str:
        """Its text; never an error: what cannot be had is said in it."""

    def file(self, uri: str) -> str:
        """The name of a file that holds it, for clients that cannot ask for documents."""


class Contents:
    """The documents that a client has asked for. folder: where they are written for clients that cannot ask."""

    def __init__(self, server: Server, folder: Path, *sources: Source) -> None:
        self._server = server
        self._folder = Path(canonical(folder))
        self._sources = {source.scheme: source for source in sources}
        self._seen: dict[str, Any] = {}
        self._files: dict[str, str] = {}

    async def text(self, uri: str) -> str:
        """The text of a document that a client shows, and from now on keeps fresh."""
        source = self._source(uri)
        if source is None:
            return f"# {uri} names no document of this server.\n"
        self._follow(uri, source)
        return await source.text(uri)

    def changed(self, paths: Iterable[str]) -> None:
        """Have the documents of these model files asked for again, where their text is another one now."""
        changed = frozenset(paths)
        for uri, before in list(self._seen.items()):
            source = self._source(uri)
            if source is not None and source.path(uri) in changed and source.state(uri) != before:
                self._seen[uri] = source.state(uri)
                self._refresh(uri, source)

    async def show(self, uri: str, place: lsp.Range | None = None, *, focus: bool = True) -> dict[str, str]:
        """{"uri", "text"} of a document; a client that can is made to show it, at `place`."""
        text = await self.text(uri)
        return await self._shown(await self.place(uri, text), text, place, focus)

    async def place(self, uri: str, text: str | None = None) -> str:
        """The URI under which the client can open a document: the document's own, else that of a file with it."""
        source = self._source(uri)
        if source is None or self._documents:
            return uri
        self._follow(uri, source)
        return await self._written(uri, source.file(uri), await source.text(uri) if text is None else text)

    async def show_text(self, name: str, text: str) -> dict[str, str]:
        """`show` for a text that is no document and follows nothing."""
        return await self._shown(await self._written("", file_name(name), text), text)

    def owns(self, path: str) -> bool:
        """Is this one of these documents, or was it written here? It is then no model file of the person's."""
        return path.partition(":")[0] in self._sources or Path(path).is_relative_to(self._folder)

    def document(self, uri: str) -> str:
        """The document that a URI means: itself, or the one that was written to this file."""
        return self._files.get(self._server.path_of(uri), uri)

    @property
    def _documents(self) -> bool:
        return self._server.can("workspace", "text_document_content")

    def _source(self, uri: str) -> Source | None:
        source = self._sources.get(uri.partition(":")[0])
        return None if source is None or source.path(uri) is None else source

    def _follow(self, uri: str, source: Source) -> None:
        self._seen.pop(uri, None)
        self._seen[uri] = source.state(uri)
        for old in list(self._seen)[:-_FOLLOWED]:
            del self._seen[old]

    def _refresh(self, uri: str, source: Source) -> None:
        if self._documents:
            params = lsp.TextDocumentContentRefreshParams(uri)
            self._server.protocol.send_request(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH, params)
        else:
            self._server.spawn(self._write_again(uri, source))

    async def _write_again(self, uri: str, source: Source) -> None:
        await self._written(uri, source.file(uri), await source.text(uri))

    async def _written(self, uri: str, name: str, text: str) -> str:
        file = self._folder / name
        if uri:
            self._files[str(file)] = uri
        await asyncio.to_thread(_write, file, text)
        return from_fs_path(str(file)) or ""

    async def _shown(self, uri: str, text: str, place: lsp.Range | None = None, focus: bool = True) -> dict[str, str]:
        if self._server.can("window", "show_document", "support"):
            params = lsp.ShowDocumentParams(uri, take_focus=focus, selection=place)
            await self._server.window_show_document_async(params)
        else:
            told = f"{Path(self._server.path_of(uri)).name} is shown by opening {self._server.path_of(uri)}"
            self._server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, told))
        return {"uri": uri, "text": text}


def file_name(text: str) -> str:
    """The text as the name of a file: visible, of no folder, and no longer than file systems take."""
    return shorten_middle(reveal(text).replace("/", "_"), _LONGEST_NAME)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


async def content(ls: Server, params: lsp.TextDocumentContentParams) -> lsp.TextDocumentContentResult:
    """workspace/textDocumentContent."""
    return lsp.TextDocumentContentResult(await ls.contents.text(params.uri))
