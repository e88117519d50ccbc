"""Documents opened, changed, saved and closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp import diagnostics
from mase_server.lsp.documents import Document
from mase_server.lsp.encoding import from_units

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


async def did_open(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    """textDocument/didOpen."""
    item = params.text_document
    path = ls.path_of(item.uri)
    if ls.contents.owns(path):
        return
    await follow(ls, ls.documents.open(item.uri, path, item.version, item.text))


async def follow(ls: Server, document: Document) -> None:
    """Show what is known of a document that was opened, and have it traced once the folder's settings are known."""
    path = document.path
    diagnostics.publish(ls, [path])
    ls.listener.tell_pipelines([path])
    await ls.folders.ready()
    if ls.documents.at(document.uri) is document:
        ls.daemon.opened(path)
        document.asked.set()
        ls.spawn(ls.folders.ask_for_trust(path))


async def did_change(ls: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    """Edit the text, and move everything that is shown along with it."""
    document = ls.document(params.text_document.uri)
    if document is None:
        return
    for change in params.content_changes:
        _apply(ls, document, change)
    document.version = params.text_document.version


def _apply(ls: Server, document: Document, change: lsp.TextDocumentContentChangeEvent) -> None:
    if isinstance(change, lsp.TextDocumentContentChangePartial):
        start, end = (_point(ls, document, at) for at in (change.range.start, change.range.end))
        document.apply(document.text.replace(start, end, change.text))
    else:
        document.apply(document.text.replace_all(change.text))


def _point(ls: Server, document: Document, position: lsp.Position) -> tuple[int, int]:
    return position.line, from_units(document.text.line(position.line), position.character, ls.encoding)


async def did_save(ls: Server, params: lsp.DidSaveTextDocumentParams) -> None:
    """The text of now is what will be traced."""
    uri = params.text_document.uri
    path, document = ls.file_of(uri), ls.document(uri)
    if document is not None and path != document.path:
        # A link leads elsewhere now, or the editor wrote a file in its place.
        _close(ls, document.uri)
        return await follow(ls, ls.documents.open(document.uri, path, document.version, str(document.text)))
    if document is not None:
        view = ls.daemon.store.view(path)
        document.remember(view.sha256 if view else "")
    ls.daemon.saved(path)


async def did_close(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    """Forget the document and clear what was pushed for it."""
    _close(ls, params.text_document.uri)
    diagnostics.take_back(ls)


def _close(ls: Server, uri: str) -> None:
    document = ls.documents.close(uri)
    if document is not None and ls.documents.get(document.path) is None:
        ls.daemon.closed(document.path)
    diagnostics.clear(ls, uri)
