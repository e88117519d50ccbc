"""The language server: what it holds between requests, and the table of what it answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from cattrs import Converter
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInternalError, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    LanguageServerProtocol,
    default_converter,
    lsp_method,
)
from pygls.uris import from_fs_path, to_fs_path

from mase_server import __version__
from mase_server.daemon.slices import let_go, sliced
from mase_server.daemon.status import FolderSettings
from mase_server.lsp.cells import Answers, asked_of, of_cells, to_script
from mase_server.lsp.contents import Contents
from mase_server.lsp.documents import Document, Documents, read_document
from mase_server.lsp.encoding import Encoding, choose
from mase_server.lsp.features import COMMANDS, FEATURES, TAKEN_OVER
from mase_server.lsp.graphs import Graphs
from mase_server.lsp.listener import ClientListener
from mase_server.lsp.notebooks import SYNC, Notebooks
from mase_server.lsp.page import Page, range_of
from mase_server.lsp.pieces import is_big, pieces
from mase_server.lsp.process_end import process_end
from mase_server.lsp.refusals import is_refusal, keep_out_of_the_log
from mase_server.lsp.settings import Settings
from mase_server.lsp.verilog import Verilog
from mase_server.lsp.workspace import Folders
from mase_server.observe.measured import Measured
from mase_server.observe.records import within
from mase_server.paths import canonical_of_absolute
from mase_server.visible import reveal, reveal_lines, reveal_prompt

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon
    from mase_server.daemon.store import FileView
    from mase_server.lsp.tools import Tools
    from mase_server.observe.logs import Logs

_LOG = logging.getLogger(__name__)

#: What begins with these is named as a save.
_SAVES = frozenset({
    lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_SAVE, lsp.NOTEBOOK_DOCUMENT_DID_OPEN,
    lsp.NOTEBOOK_DOCUMENT_DID_SAVE,
})  # fmt: skip
#: Of the documents that this server makes.
SCHEMES = [Graphs.scheme, Verilog.scheme]

#: Elements of a long answer that are freed in one turn.
_FREED_AT_ONCE = 1000

_JSON_RPC = b"application/vscode-jsonrpc; charset=utf-8"

Reveal = Callable[[str], str]
#: What editors show of the protocol's structures, and how it is made visible: all of it leaves through `converter`.
_SHOWN: Mapping[type, Mapping[str, Reveal]] = {
    lsp.ShowMessageParams: {"message": reveal_prompt},
    lsp.ShowMessageRequestParams: {"message": reveal_prompt},
    lsp.MessageActionItem: {"title": reveal},
    lsp.Diagnostic: {"message": reveal_lines},
    lsp.DiagnosticRelatedInformation: {"message": reveal_lines},
    lsp.InlayHint: {"label": reveal, "tooltip": reveal_lines},
    lsp.InlayHintLabelPart: {"value": reveal, "tooltip": reveal_lines},
    lsp.MarkupContent: {"value": reveal_lines},
    lsp.Command: {"title": reveal},
    lsp.CodeAction: {"title": reveal},
    lsp.CodeActionDisabled: {"reason": reveal},
    lsp.WorkDoneProgressBegin: {"title": reveal, "message": reveal},
    lsp.WorkDoneProgressReport: {"message": reveal},
    lsp.WorkDoneProgressEnd: {"message": reveal},
    lsp.ApplyWorkspaceEditParams: {"label": reveal},
    lsp.TextDocumentContentResult: {"text": reveal_lines},
    lsp.ResponseError: {"message": reveal_prompt},
}

DaemonFactory = Callable[..., "Daemon"]


class Protocol(LanguageServerProtocol):
    """pygls' protocol, which leaves documents to this server and chooses the cheapest position encoding offered."""

    def __init__(self, server: Any, converter: Converter) -> None:
        super().__init__(server, converter)
        #: Big answers that are being written.
        self.sending: set[asyncio.Task[None]] = set()

    @lsp_method(lsp.INITIALIZE)
    def lsp_initialize(self, params: lsp.InitializeParams) -> Generator[Any, Any, lsp.InitializeResult]:
        """Put the chosen encoding first, where pygls takes it from."""
        general = params.capabilities.general or lsp.GeneralClientCapabilities()
        general.position_encodings = [choose([str(getattr(e, "value", e)) for e in general.position_encodings or ()])]
        params.capabilities.general = general
        result = yield from super().lsp_initialize(params)
        assert result.capabilities.workspace is not None
        result.capabilities.workspace.text_document_content = lsp.TextDocumentContentOptions(SCHEMES)
        assert isinstance(self._server, Server)
        if not self._server.pulls_diagnostics:
            result.capabilities.diagnostic_provider = None
        return result

    def _execute_handler(
        self,
        msg_id: str | int,
        handler: Callable[..., Any],
        callback: Callable[[Any], None],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """What pygls keeps of a message that is worked on goes with its end: it would keep every notification's."""
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        if (future := self._request_futures.get(msg_id)) is not None:
            future.add_done_callback(lambda done: self._forget(msg_id, done))

    def _forget(self, msg_id: str | int, done: Any) -> None:
        if self._request_futures.get(msg_id) is done:
            del self._request_futures[msg_id]

    def _send_response(self, msg_id: str | int, result: Any = None, error: lsp.ResponseError | None = None) -> None:
        """Big answers are written a little at a time, and sent when they are whole."""
        if error is not None or not is_big(result):
            super()._send_response(msg_id, result, error)
            return
        self._result_types.pop(msg_id, None)
        task = asyncio.get_running_loop().create_task(self._send_in_pieces(msg_id, result))
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    async def _send_in_pieces(self, msg_id: str | int, result: Any) -> None:
        made = [f'{{"id": {json.dumps(msg_id)}, "jsonrpc": "2.0", "result": '.encode()]
        try:
            async for piece in sliced(pieces(result, self._serialize_message)):
                made.append(piece.encode())
        except Exception as failed:  # noqa: BLE001  (the border of a request: whoever asked must hear of an end)
            _LOG.exception("an answer could not be written")
            super()._send_response(msg_id, error=JsonRpcInternalError(str(failed)).to_response_error())
            return
        made.append(b"}")
        head = b"Content-Length: %d\r\nContent-Type: %s\r\n\r\n" % (sum(map(len, made)), _JSON_RPC)
        assert self.writer is not None
        await asyncio.sleep(0)  # megabytes are put together and handed over in a turn of their own
        self.writer.write(b"".join([head, *made]))
        if isinstance(result, list):
            let_go([result[start : start + _FREED_AT_ONCE] for start in range(0, len(result), _FREED_AT_ONCE)])


class Server(LanguageServer):
    """One editor's server: its documents and settings, and the daemon that traces for it."""

    def __init__(self, *, daemon: DaemonFactory, cache_dir: Path, state_dir: Path, trusted: bool = False) -> None:
        super().__init__(
            "mase-server",
            __version__,
            protocol_cls=Protocol,
            converter_factory=converter,
            notebook_document_sync=SYNC,
        )
        self.documents = Documents()
        self.notebooks = Notebooks()
        self.encoding = Encoding.UTF16
        self.folders = Folders(self, state_dir=state_dir, trusted=trusted)
        self.listener = ClientListener(self)
        self.daemon = daemon(
            self.listener,
            cache_dir=cache_dir,
            state_dir=state_dir,
            settings_of=self.daemon_settings_of,
            folder_of=self.folders.folder_of,
            trusts=self.folders.trusts,
        )
        #: What serves other tools, where this process does; set before the editor speaks.
        self.tools: Tools | None = None
        #: What this process writes, where it does; set as the tools are.
        self.logs: Logs | None = None
        self.initialized = False
        #: The commands that links in Markdown may run in this client.
        self.links: frozenset[str] = frozenset()
        self.stopped = False
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        #: The URIs that diagnostics were pushed for, with their files.
        self.published: dict[str, str] = {}
        self.cancels: dict[str, Callable[[], object]] = {}
        self.graphs = Graphs(self)
        self.verilog = Verilog(self)
        self.contents = Contents(self, cache_dir / "documents", self.graphs, self.verilog)
        self._tasks: set[asyncio.Task[Any]] = set()
        keep_out_of_the_log()
        self._register()

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Into the log: a person whose editor pops up our mistakes cannot do anything about them."""
        _LOG.log(logging.INFO if is_refusal(error) else logging.ERROR, "%s: %s", source.__name__, error)

    def text_document_publish_diagnostics(self, params: lsp.PublishDiagnosticsParams) -> None:
        """Those of a notebook go to its cells."""
        for each in of_cells(self.notebooks, params):
            super().text_document_publish_diagnostics(each)

    async def window_show_document_async(self, params: lsp.ShowDocumentParams) -> lsp.ShowDocumentResult:
        """A place in a notebook is one in a cell."""
        return await super().window_show_document_async(Answers(self.notebooks).of(params) or params)

    async def workspace_apply_edit_async(self, params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
        """An edit of a notebook is one of its cells."""
        edit = Answers(self.notebooks).of(params.edit)
        if edit is None:
            return lsp.ApplyWorkspaceEditResult(False, failure_reason="the edit spans two cells of a notebook")
        return await super().workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(edit, params.label))

    async def stop(self) -> None:
        """End every worker, once."""
        if not self.stopped:
            self.stopped = True
            if self.tools is not None:
                await self.tools.stop()
            if self.initialized:
                await self.daemon.shutdown()

    async def sent(self) -> None:
        """Return once the big answers that are being written are on their way."""
        assert isinstance(self.protocol, Protocol)
        await asyncio.gather(*self.protocol.sending, return_exceptions=True)

    def end(self, code: int) -> None:
        """Have the process end with this exit status."""
        if not self.ended.done():
            self.ended.set_result(code)

    def watch_client(self, pid: int | None) -> None:
        """End with the editor's process, which may die without a word."""
        if pid is not None:
            self.spawn(self._end_with(pid))

    async def _end_with(self, pid: int) -> None:
        await process_end(pid)
        self.end(1)

    def spawn(self, work: Awaitable[Any]) -> None:
        """Run `work` beside the requests; its failure is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def about(self, params: Sequence[Any]) -> str:
        """The file that a request is about, as the log has it; "" for none."""
        document = getattr(params[0], "text_document", None) if params else None
        opened = self.documents.at(getattr(document, "uri", ""))
        return "" if opened is None else within(opened.path, self.folders.folder_of(opened.path))

    def page(self, uri: str) -> Page | None:
        """What is known about the hints of an open document; None if it is not open or was not traced."""
        document = self.document(uri)
        view = None if document is None else self.daemon.store.view(document.path)
        return None if document is None or view is None else self._page(document, view, view.sha256)

    def problem_page(self, path: str, document: Document | None = None) -> Page | None:
        """What is known about the problems of any file; one that is not open is taken as it is on disk.

        document: where they shall stand, where several of the file are open.
        """
        view = self.daemon.store.view(path)
        return None if view is None else self.page_at(path, view.problems_sha256, document)

    def page_at(self, path: str, sha256: str, document: Document | None = None) -> Page | None:
        """What is known about any file, by the positions of its text with this hash; None where that is not known."""
        view = self.daemon.store.view(path)
        document = document or self.documents.get(path)
        document = document or (read_document(path, self.uri_of(path)) if view else None)
        return None if document is None or view is None else self._page(document, view, sha256)

    def _page(self, document: Document, view: FileView, sha256: str) -> Page | None:
        alignment = document.alignment(sha256)
        return None if alignment is None else Page(document, view, sha256, alignment, self.encoding)

    def models_of(self, path: str) -> dict[str, dict[str, Any]]:
        """The traced models, by title, that the file `path` is part of; maps as `snapshot.MODEL_KEYS` says.

        Those with a pipeline have "transform" too, as `snapshot.TRANSFORM_KEYS` says.
        """
        snapshots = (snapshot for snapshot in self.daemon.store.snapshots() if path in snapshot.files)
        return {
            title: {**model, "transform": snapshot.transforms[index].told} if index in snapshot.transforms else model
            for snapshot in snapshots
            for index, (title, model) in enumerate(zip(snapshot.titles, snapshot.payload["models"], strict=True))
        }

    def place_in(self, place: dict[str, Any]) -> lsp.Range | None:
        """Where a place `{file, line, column, end_line, end_column}` of the last trace is now; None if edited since."""
        page = self.problem_page(place["file"])
        if page is not None:
            return page.place_of(place)
        document = self.documents.get(place["file"]) or read_document(place["file"], "")
        return None if document is None else range_of(document.text, place, self.encoding)

    @property
    def pulls_diagnostics(self) -> bool:
        """Does the client ask for diagnostics, so that none need be pushed for open files?

        One that asks only when a text was edited (Neovim 0.10 and 0.11) would never see what a trace finds afterwards.
        """
        return self.can("text_document", "diagnostic") and self.can("workspace", "diagnostics", "refresh_support")

    @property
    def resolves_edits(self) -> bool:
        """Does the client ask for the edit of a code action only when it is chosen?"""
        support = getattr(self.client_capabilities.text_document, "code_action", None)
        resolve = getattr(support, "resolve_support", None)
        return resolve is not None and "edit" in resolve.properties

    @property
    def resolves_locations(self) -> bool:
        """Does the client ask where a part of an inlay hint leads to only when a person points at it?"""
        support = getattr(self.client_capabilities.text_document, "inlay_hint", None)
        resolve = getattr(support, "resolve_support", None)
        return resolve is not None and "label.location" in resolve.properties

    def path_of(self, uri: str) -> str:
        """The path by which all else knows the file of a URI: of an open document, what it was when it was opened."""
        document = self.documents.at(uri)
        return self.file_of(uri) if document is None else document.path

    @staticmethod
    def file_of(uri: str) -> str:
        """The canonical path of what a URI, or an absolute path, names now; what is no file keeps its URI as its name.

        JsonRpcInvalidParams where it can be the name of nothing.
        """
        try:
            path = to_fs_path(uri.replace("file://localhost/", "file:///", 1))
            return uri if path is None and not Path(uri).is_absolute() else canonical_of_absolute(path or uri)
        except ValueError as error:
            raise JsonRpcInvalidParams(f"{uri[:200]!r} names no file: {error}") from None

    def document(self, uri: str) -> Document | None:
        """The open document of this URI, or of the file that it names, however it is spelled."""
        return self.documents.at(uri) or self.documents.get(self.path_of(uri))

    def uri_of(self, path: str) -> str:
        """The URI of a file as the editor spells it: that of its document, else one below a workspace folder."""
        document = self.documents.get(path)
        return document.uri if document else self.folders.uri_under(path) or from_fs_path(path) or path

    def uris_of(self, path: str) -> list[str]:
        """`uri_of`, and all URIs under which the editor has the file open."""
        return [each.uri for each in self.documents.of(path)] or [self.uri_of(path)]

    def settings_of(self, path: str) -> Settings:
        """The settings of the folder that a file belongs to."""
        return self.folders.settings_of(self.folders.folder_of(path))

    def daemon_settings_of(self, folder: str) -> FolderSettings:
        """What the daemon asks for."""
        return self.folders.settings_of(folder).daemon

    def can(self, *capability: str) -> bool:
        """Did the client announce a capability, e.g. `can("workspace", "inlay_hint", "refresh_support")`?"""
        value: Any = self.client_capabilities
        for name in capability:
            value = getattr(value, name, None)
        return bool(value)

    def knows(self, command: str) -> bool:
        """Can the person run this command: is it the server's, or did the client announce it as one of its own?

        Announced in `capabilities.experimental.commands.commands`, as rust-analyzer's clients do.
        """
        if command in COMMANDS:
            return True
        told = self.client_capabilities.experimental
        own = told.get("commands") if isinstance(told, Mapping) else None
        return isinstance(own, Mapping) and command in (own.get("commands") or ())

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a background task failed", exc_info=error)

    def _register(self) -> None:
        for method in TAKEN_OVER:
            self.protocol.fm.builtin_features.pop(method)
        for method, handler, options in FEATURES:
            self.feature(method, options)(_bound(handler, self, method))
        for name, command in COMMANDS.items():
            self.command(name)(_bound(command, self, name))


def converter() -> Converter:
    """pygls' converter, but parameters and results of messages that the protocol does not define stay maps.

    What it writes of texts that editors show is visible.
    """
    made: Converter = default_converter()  # type: ignore[no-untyped-call]
    for message in (JsonRPCRequestMessage, JsonRPCNotification, JsonRPCResponseMessage):
        made.register_structure_hook(message, lambda data, kind: kind(**data))
    for kind, fields in _SHOWN.items():
        made.register_unstructure_hook(kind, partial(_unstructure_shown, made.get_unstructure_hook(kind), fields))
    return made


def _unstructure_shown(unstructure: Callable[[Any], Any], fields: Mapping[str, Reveal], value: Any) -> Any:
    texts = {name: shown(text) for name, shown in fields.items() if isinstance(text := getattr(value, name), str)}
    return unstructure(attrs.evolve(value, **texts))


def _bound(handler: Callable[..., Awaitable[Any]], server: Server, method: str) -> Callable[..., Awaitable[Any]]:
    """The handler, counted and logged."""
    inner, kind = _without_cells(handler, server), "s" if method in _SAVES else "l"

    async def bound(*params: Any) -> Any:
        with Measured(server.daemon.metrics, kind, method, partial(server.about, params)):
            return await inner(*params)

    return bound


def _without_cells(handler: Callable[..., Awaitable[Any]], server: Server) -> Callable[..., Awaitable[Any]]:
    """The handler, for which there are no cells."""

    async def bound(*params: Any) -> Any:
        notebooks = server.notebooks
        if not notebooks:
            return await handler(server, *params)
        cells = [asked_of(notebooks, each) for each in params]
        given = [to_script(each, cell) if cell else each for each, cell in zip(params, cells, strict=True)]
        answer = await handler(server, *given)
        # Cells may have moved meanwhile.
        return Answers(notebooks, asked_of(notebooks, params[0]) if params else None).of(answer)

    return bound
