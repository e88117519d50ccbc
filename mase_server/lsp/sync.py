"""Open, change, save and close documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp import diagnostics
from mase_server.lsp.documents import Document
from mase_server.lsp.text import from_units

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


async def did_open(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    """textDocument/didOpen."""
    item = params.text_document
    path = ls.path_of(item.uri)
    if ls.contents.owns(path):
        return
    await follow_opened_document(ls, ls.documents.open(item.uri, path, item.version, item.text))


async def follow_opened_document(ls: Server, document: Document) -> None:
    """Show what is known about an opened document, and have it traced once the folder's settings are known."""
    path = document.path
    diagnostics.publish_diagnostics(ls, [path])
    ls.listener.tell_pipelines([path])
    await ls.folders.ready()
    if ls.documents.at(document.uri) is document:
        ls.daemon.opened(path)
        document.asked.set()
        ls.live.opened(document)
        ls.spawn(ls.folders.ask_for_trust(path))
        if ls.tools is not None and ls.folders.folder_of(path) not in ls.folders.paths():
            ls.spawn(ls.tools.follow())


async def did_change(ls: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    """Edit the text, and move all shown results with it."""
    document = ls.document(params.text_document.uri)
    if document is None:
        return
    for change in params.content_changes:
        _apply_change(ls, document, change)
    document.version = params.text_document.version
    _tell_other_documents(ls, document)
    ls.live.edited(document)


def _tell_other_documents(ls: Server, document: Document) -> None:
    """Have the hints of other documents asked for again once this one begins or ceases to differ from its file."""
    if document.note_edit() and len(ls.documents.paths()) > 1:
        ls.listener.refresh_hints()


def _apply_change(ls: Server, document: Document, change: lsp.TextDocumentContentChangeEvent) -> None:
    if isinstance(change, lsp.TextDocumentContentChangePartial):
        start, end = (_point_in_text(ls, document, at) for at in (change.range.start, change.range.end))
        document.apply(document.text.replace(start, end, change.text))
    else:
        document.apply(document.text.replace_all(change.text))


def _point_in_text(ls: Server, document: Document, position: lsp.Position) -> tuple[int, int]:
    return position.line, from_units(document.text.line(position.line), position.character, ls.encoding)


async def did_save(ls: Server, params: lsp.DidSaveTextDocumentParams) -> None:
    """textDocument/didSave: the present text is traced next."""
    uri = params.text_document.uri
    path, document = ls.file_of(uri), ls.document(uri)
    if document is not None and path != document.path:
        # A link leads elsewhere now, or the editor replaced it by a file.
        _close_document(ls, document.uri)
        return await follow_opened_document(
            ls, ls.documents.open(document.uri, path, document.version, str(document.text))
        )
    if document is not None:
        view = ls.daemon.store.view(path)
        document.remember_text(view.sha256 if view else "")
        document.edited = False
        ls.live.saved(document)
    ls.daemon.saved(path)


async def did_close(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    """Forget the document, and clear its pushed diagnostics."""
    _close_document(ls, params.text_document.uri)


def _close_document(ls: Server, uri: str) -> None:
    document = ls.documents.close(uri)
    if document is not None:
        ls.live.closed(document)
    if document is not None and ls.documents.get(document.path) is None:
        ls.daemon.closed(document.path)
    diagnostics.clear_diagnostics(ls, uri)
