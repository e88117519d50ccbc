"""As you type: the text in the editor is traced after a short silence, without a save.

A key ends the trace of the text before it. The daemon decides whether a text can be traced now or waits for the save
(`Daemon.typed`); until then the hints of the last traced text stay on the lines that were not touched.

While keys follow each other, nothing flickers: problems of unsaved text appear, and hints are marked as doubtful, only
after a longer silence. A problem that is gone disappears at once. A save ends all waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import tokenize
from io import BytesIO
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server import notebooks
from mase_server.lsp import diagnostics
from mase_server.lsp.text import from_units

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from mase_server.lsp.documents import Document
    from mase_server.lsp.server import Server
    from mase_server.protocol.snapshot import Problem

#: Seconds without a key after which problems and doubts of unsaved text are shown.
QUIET = 0.5

#: Keys within so many seconds are a flow: a pause ends it only if it is `LONGER` times as long as the last one. A trace
#: between two keys of a flow would be ended by the next key. This is why `mase.updateDelay` can be short.
FLOW, LONGER = 0.3, 1.5

ON_TYPE = "onType"


class Live:
    """Follows the keys of one editor. quiet: see `QUIET`; 0 shows everything at once."""

    def __init__(self, server: Server, quiet: float = QUIET) -> None:
        self._server = server
        self._quiet = quiet
        #: The task that waits for a document's silence, or asks the daemon, by URI.
        self._tasks: dict[str, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: When the last key came, by URI.
        self._keys: dict[str, float] = {}
        #: The problems that were shown last, by path.
        self._told: dict[str, set[tuple[str, str]]] = {}
        #: Files with something that is held back until the keys pause.
        self.withheld: set[str] = set()

    @property
    def busy(self) -> bool:
        """Do keys follow each other?"""
        return self._timer is not None

    def opened(self, document: Document) -> None:
        """A document was opened: an editor may bring back a text that was never saved."""
        if self._server.settings_of(document.path).update == ON_TYPE:
            self._start(self._trace_restored(document), document)

    def edited(self, document: Document) -> None:
        """A key was pressed."""
        if self._server.settings_of(document.path).update != ON_TYPE:
            return
        self._server.daemon.typing(document.path)
        if self._timer is not None:
            self._timer.cancel()
        if self._quiet > 0:
            self._timer = asyncio.get_running_loop().call_later(self._quiet, self._show_withheld)
        self._start(self._trace_after_silence(document, self._choose_silence(document)), document)

    def _choose_silence(self, document: Document) -> float:
        """The seconds without a further key after which the text is traced."""
        now = asyncio.get_running_loop().time()
        since = now - self._keys.get(document.uri, -FLOW)
        self._keys[document.uri] = now
        delay = self._server.settings_of(document.path).update_delay / 1000
        return max(delay, LONGER * since) if since < FLOW else delay

    def saved(self, document: Document) -> None:
        """The text was saved: nothing of it waits any longer."""
        self._stop(document.uri)
        self._server.daemon.forget_text(document.path)
        if self._timer is not None:
            self._timer.cancel()
            self._show_withheld()

    def closed(self, document: Document) -> None:
        """A document was closed."""
        self._stop(document.uri)
        self._keys.pop(document.uri, None)
        if self._server.documents.get(document.path) is None:
            self._told.pop(document.path, None)
            self.withheld.discard(document.path)

    def stop(self) -> None:
        """The server ends."""
        for uri in list(self._tasks):
            self._stop(uri)
        if self._timer is not None:
            self._timer.cancel()

    async def settled(self, document: Document) -> None:
        """Return once the daemon was asked to trace the document's present text, if it will be."""
        while (task := self._tasks.get(document.uri)) is not None and not task.done():
            await asyncio.wait((task,))

    def choose_problems(self, path: str, problems: list[Problem], *, unsaved: bool) -> list[Problem]:
        """The problems of a file to show now. unsaved: do they belong to a text that is not saved?"""
        if not (unsaved and self.busy):
            self._told[path] = {(each.code, each.message) for each in problems}
            return problems
        told = self._told.get(path, set())
        shown = [each for each in problems if (each.code, each.message) in told]
        self._told[path] = {(each.code, each.message) for each in shown}
        if len(shown) < len(problems):
            self.withheld.add(path)
        return shown

    def _start(self, work: Coroutine[Any, Any, None], document: Document) -> None:
        self._stop(document.uri)
        self._tasks[document.uri] = self._server.spawn(work)

    def _stop(self, uri: str) -> None:
        if (task := self._tasks.pop(uri, None)) is not None:
            task.cancel()

    async def _trace_restored(self, document: Document) -> None:
        """Trace the text of a document that was opened, if it is not that of its file."""
        await document.asked.wait()
        tracked = self._server.daemon.file(document.path)
        if await self._trace(document) and tracked is not None and tracked.source.unsaved:
            document.saved = None  # what was taken for the saved text is not

    async def _trace_after_silence(self, document: Document, silence: float) -> None:
        """Trace the text that was typed, or let the file speak again if it is the saved one."""
        await asyncio.sleep(silence)
        await document.asked.wait()
        if document.is_as_saved:
            # Not compared with the disk: another program may have written the file a moment ago.
            self._server.daemon.forget_text(document.path)
            self._server.daemon.saved(document.path)
        else:
            await self._trace(document)

    async def _trace(self, document: Document) -> bool:
        """Have the present text traced, if its code is not that of the newest trace; False if it is not traced."""
        settings = self._server.settings_of(document.path)
        tracked, text = self._server.daemon.file(document.path), encode_text(document)
        if text is None or (tracked is not None and document.has_code_of(tracked.source.sha256)):
            return False
        if not await self._server.daemon.typed(document.path, text, runs_module=settings.update_runs_module):
            return False
        view = self._server.daemon.store.view(document.path)
        document.follow_unsaved(text, view.sha256 if view else "")
        return True

    def _show_withheld(self) -> None:
        """The keys have paused: show what was held back."""
        self._timer = None
        paths, self.withheld = self.withheld, set()
        if paths:
            self._server.listener.refresh()
            diagnostics.publish_diagnostics(self._server, self._list_open(paths))

    def _list_open(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if self._server.documents.get(path) is not None]


def encode_text(document: Document) -> bytes | None:
    """The bytes that a save would write; None if the encoding that the text names lacks a character of it."""
    text = str(document.text)
    data = text.encode("utf-8", "replace")
    if notebooks.is_notebook(document.path):
        return data
    with contextlib.suppress(SyntaxError, LookupError):  # the discovery tells of a wrong name
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        try:
            return text.encode(encoding if encoding != "utf-8-sig" else "utf-8")
        except UnicodeEncodeError:
            return None
    return data


# The documents that the editor opens, changes, saves and closes.


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
