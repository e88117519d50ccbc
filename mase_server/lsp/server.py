"""The language server: its state between requests, and how its answers are made and sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from cattrs import Converter
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams
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
from mase_server.daemon.slots import iterate_in_slices, let_go
from mase_server.daemon.status import FolderSettings
from mase_server.lsp.compiled import Compilations
from mase_server.lsp.contents import Contents, Graphs
from mase_server.lsp.documents import Document, Documents, read_document
from mase_server.lsp.features import COMMANDS, FEATURES, TAKEN_OVER
from mase_server.lsp.framing import is_big, json_pieces
from mase_server.lsp.listener import ClientListener
from mase_server.lsp.live import QUIET, Live
from mase_server.lsp.notebooks import SYNC, Answers, Notebooks, asked_of, of_cells, to_script
from mase_server.lsp.page import Page, range_of
from mase_server.lsp.run_costs import RunCosts
from mase_server.lsp.text import Encoding, choose_encoding
from mase_server.lsp.verilog import Verilog
from mase_server.lsp.workspace import Folders, Settings
from mase_server.paths import canonical_of_absolute
from mase_server.protocol import answers
from mase_server.protocol.records import ModelRecord, SourcePlace
from mase_server.system import is_running
from mase_server.telemetry.metrics import Measured
from mase_server.telemetry.records import path_in_log
from mase_server.visible import reveal, reveal_lines, reveal_prompt

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon
    from mase_server.daemon.graph_snapshot import Transform
    from mase_server.daemon.store import FileView
    from mase_server.lsp.commands import Tools
    from mase_server.telemetry.logs import Logs


# The end of another process.

#: Seconds between two looks if the system does not report the end.
_POLL = 2.0


async def process_end(pid: int) -> None:
    """Return once the process `pid` is gone."""
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            await _pidfd_end(os.pidfd_open(pid))
            return
    while is_running(pid):
        await asyncio.sleep(_POLL)


async def _pidfd_end(descriptor: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


# A refusal, such as an unknown model, is not an error of the server: it gets no traceback in the log.

_PYGLS = logging.getLogger("pygls.protocol.json_rpc")
#: Routine events in editors: they cancel requests that were just answered, and send unsupported notifications.
_ROUTINE = ("Cancel notification for unknown message id", "Ignoring notification for unknown method")


def is_refusal(error: BaseException | None) -> bool:
    """Was a request answered with an error that tells the client what it can do?"""
    return isinstance(error, JsonRpcException) and error.code != lsp.ErrorCodes.InternalError.value


class _Filter(logging.Filter):
    """Drops pygls' log records of refusals, which pygls takes for exceptions, and of routine events."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not is_refusal(error) and not str(record.msg).startswith(_ROUTINE)


_FILTER = _Filter()


def keep_out_of_the_log() -> None:
    """Make pygls log only real faults, from now on in this process."""
    _PYGLS.addFilter(_FILTER)


_LOG = logging.getLogger(__name__)

#: Methods that begin with these are logged as saves.
_SAVES = frozenset({
    lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_SAVE, lsp.NOTEBOOK_DOCUMENT_DID_OPEN,
    lsp.NOTEBOOK_DOCUMENT_DID_SAVE,
})  # fmt: skip
#: The schemes of the documents that this server makes.
SCHEMES = [Graphs.scheme, Verilog.scheme, Compilations.scheme]

#: Elements of a long answer that are freed in one turn of the loop.
_FREED_AT_ONCE = 1000

_JSON_RPC = b"application/vscode-jsonrpc; charset=utf-8"

Reveal = Callable[[str], str]
#: The texts that editors show, by structure, and how they are made visible: all of them pass through `converter`.
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
    """pygls' protocol, but this server keeps the documents, and the cheapest offered position encoding is chosen."""

    def __init__(self, server: Any, converter: Converter) -> None:
        super().__init__(server, converter)
        #: Tasks that write big answers.
        self.sending: set[asyncio.Task[None]] = set()

    @lsp_method(lsp.INITIALIZE)
    def lsp_initialize(self, params: lsp.InitializeParams) -> Generator[Any, Any, lsp.InitializeResult]:
        """Put the chosen encoding first, because pygls takes the first one."""
        general = params.capabilities.general or lsp.GeneralClientCapabilities()
        general.position_encodings = [
            choose_encoding([str(getattr(e, "value", e)) for e in general.position_encodings or ()])
        ]
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
        """Handle a message, and drop pygls' record of it at its end: pygls would keep one for every notification."""
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        if (future := self._request_futures.get(msg_id)) is not None:
            future.add_done_callback(lambda done: self._forget_request(msg_id, done))

    def _forget_request(self, msg_id: str | int, done: Any) -> None:
        if self._request_futures.get(msg_id) is done:
            del self._request_futures[msg_id]

    def _send_response(self, msg_id: str | int, result: Any = None, error: lsp.ResponseError | None = None) -> None:
        """Send an answer; big ones are written piece by piece and sent once they are complete."""
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
            async for piece in iterate_in_slices(json_pieces(result, self._serialize_message)):
                made.append(piece.encode())
        except Exception as failed:  # noqa: BLE001  (the border of a request: the client must learn of its end)
            _LOG.exception("an answer could not be written")
            super()._send_response(msg_id, error=JsonRpcInternalError(str(failed)).to_response_error())
            return
        made.append(b"}")
        head = b"Content-Length: %d\r\nContent-Type: %s\r\n\r\n" % (sum(map(len, made)), _JSON_RPC)
        assert self.writer is not None
        await asyncio.sleep(0)  # joining and sending megabytes gets its own turn of the loop
        self.writer.write(b"".join([head, *made]))
        if isinstance(result, list):
            let_go([result[start : start + _FREED_AT_ONCE] for start in range(0, len(result), _FREED_AT_ONCE)])


class ShownModel(ModelRecord):
    """A traced model, and what its pipeline made of it, if it has one."""

    transform: answers.Transform | None


def _with_transform(model: ModelRecord, transform: Transform | None) -> ShownModel:
    return {**model, "transform": None if transform is None else transform.told}


class Server(LanguageServer):
    """One editor's server: its documents and settings, and the daemon that traces for it."""

    def __init__(
        self,
        *,
        daemon: DaemonFactory,
        cache_dir: Path,
        state_dir: Path,
        trusted: bool = False,
        quiet: float = QUIET,
    ) -> None:
        """quiet: seconds without a key after which problems of unsaved text are shown."""
        super().__init__(
            "mase-server",
            __version__,
            protocol_cls=Protocol,
            converter_factory=make_converter,
            notebook_document_sync=SYNC,
        )
        self.documents = Documents()
        self.notebooks = Notebooks()
        self.encoding = Encoding.UTF16
        self.folders = Folders(self, state_dir=state_dir, trusted=trusted)
        self.listener = ClientListener(self)
        self.live = Live(self, quiet)
        self.daemon = daemon(
            self.listener,
            cache_dir=cache_dir,
            state_dir=state_dir,
            settings_of=self.daemon_settings_of,
            folder_of=self.folders.folder_of,
            trusts=self.folders.trusts,
        )
        #: The server for other tools, if this process has one; set before the editor connects.
        self.tools: Tools | None = None
        #: The logs of this process, if it writes any; set before the editor connects.
        self.logs: Logs | None = None
        self.initialized = False
        #: The commands that Markdown links may run in this client.
        self.links: frozenset[str] = frozenset()
        self.stopped = False
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        #: The URIs of documents with pushed diagnostics.
        self.published: set[str] = set()
        self.cancels: dict[str, Callable[[], object]] = {}
        self.graphs = Graphs(self)
        self.verilog = Verilog(self)
        self.compiled = Compilations(self)
        self.costs = RunCosts(self, state_dir)
        self.contents = Contents(self, cache_dir / "documents", self.graphs, self.verilog, self.compiled)
        self._tasks: set[asyncio.Task[Any]] = set()
        keep_out_of_the_log()
        self._register_handlers()

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Log an error: a user cannot do anything about the server's own mistakes, so the editor shows no message."""
        _LOG.log(logging.INFO if is_refusal(error) else logging.ERROR, "%s: %s", source.__name__, error)

    def text_document_publish_diagnostics(self, params: lsp.PublishDiagnosticsParams) -> None:
        """Publish diagnostics; those of a notebook go to its cells."""
        for each in of_cells(self.notebooks, params):
            super().text_document_publish_diagnostics(each)

    async def window_show_document_async(self, params: lsp.ShowDocumentParams) -> lsp.ShowDocumentResult:
        """Show a document; a place in a notebook becomes one in a cell."""
        return await super().window_show_document_async(Answers(self.notebooks).of(params) or params)

    async def workspace_apply_edit_async(self, params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
        """Apply an edit; an edit of a notebook becomes one of its cells."""
        edit = Answers(self.notebooks).of(params.edit)
        if edit is None:
            return lsp.ApplyWorkspaceEditResult(False, failure_reason="the edit spans two cells of a notebook")
        return await super().workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(edit, params.label))

    async def stop(self) -> None:
        """End every worker, once."""
        if not self.stopped:
            self.stopped = True
            self.live.stop()
            if self.tools is not None:
                await self.tools.stop()
            if self.initialized:
                await self.daemon.shutdown()

    async def sent(self) -> None:
        """Return once the big answers that are being written are sent."""
        assert isinstance(self.protocol, Protocol)
        await asyncio.gather(*self.protocol.sending, return_exceptions=True)

    def end(self, code: int) -> None:
        """Make the process end with this exit status."""
        if not self.ended.done():
            self.ended.set_result(code)

    def watch_client(self, pid: int | None) -> None:
        """End when the editor's process ends, which may happen without a message."""
        if pid is not None:
            self.spawn(self._end_with(pid))

    async def _end_with(self, pid: int) -> None:
        await process_end(pid)
        self.end(1)

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run `work` beside the requests; its failure is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_finished)
        return task

    def about(self, params: Sequence[Any]) -> str:
        """The file that a request is about, for the log; "" if none."""
        document = getattr(params[0], "text_document", None) if params else None
        opened = self.documents.at(getattr(document, "uri", ""))
        return "" if opened is None else path_in_log(opened.path, self.folders.folder_of(opened.path))

    def page(self, uri: str) -> Page | None:
        """The page with the hints of an open document; None if it is not open or was not traced."""
        document = self.document(uri)
        view = None if document is None else self.daemon.store.view(document.path)
        return None if document is None or view is None else self._page_of_view(document, view, view.sha256)

    def problem_page(self, path: str, document: Document | None = None) -> Page | None:
        """The page with the problems of any file; a file that is not open is read from disk.

        document: where to place the problems if several documents of the file are open.
        """
        view = self.daemon.store.view(path)
        return None if view is None else self.page_at(path, view.problems_sha256, document)

    def page_at(self, path: str, sha256: str, document: Document | None = None) -> Page | None:
        """The page of any file by the positions in its text with this hash; None if that text is unknown."""
        view = self.daemon.store.view(path)
        document = document or self.documents.get(path)
        document = document or (read_document(path, self.uri_of(path)) if view else None)
        return None if document is None or view is None else self._page_of_view(document, view, sha256)

    def _page_of_view(self, document: Document, view: FileView, sha256: str) -> Page | None:
        alignment = document.alignment(sha256)
        if alignment is None:
            return None
        others = (path for path in self.documents.paths() if path != document.path and self.documents.edited(path))
        elsewhere = any(self.documents.differ(path, view.texts_of(path)) for path in others)
        busy = self.live.busy
        if busy and (elsewhere or alignment.changes()):
            self.live.withheld.add(document.path)
        return Page(document, view, sha256, alignment, self.encoding, elsewhere, busy)

    def models_of(self, path: str) -> dict[str, ShownModel]:
        """The traced models, by title, that use the file `path`; maps as in `snapshot.MODEL_KEYS`.

        Those with a pipeline also have "transform", as in `snapshot.TRANSFORM_KEYS`.
        """
        snapshots = (snapshot for snapshot in self.daemon.store.snapshots() if path in snapshot.files)
        return {
            title: _with_transform(model, snapshot.transforms.get(index))
            for snapshot in snapshots
            for index, (title, model) in enumerate(zip(snapshot.titles, snapshot.records, strict=True))
        }

    def place_in(self, place: SourcePlace) -> lsp.Range | None:
        """The present range of a place `{file, line, column, end_line, end_column}` of the last trace.

        None if edited since.
        """
        page = self.problem_page(place["file"])
        if page is not None:
            return page.place_of(place)
        document = self.documents.get(place["file"]) or read_document(place["file"], "")
        return None if document is None else range_of(document.text, place, self.encoding)

    @property
    def pulls_diagnostics(self) -> bool:
        """Does the client pull diagnostics, so that none need to be pushed for open files?

        A client that pulls only after edits (Neovim 0.10 and 0.11) would never see what a trace finds later.
        """
        return self.can("text_document", "diagnostic") and self.can("workspace", "diagnostics", "refresh_support")

    @property
    def resolves_edits(self) -> bool:
        """Does the client request the edit of a code action only when the action is chosen?"""
        support = getattr(self.client_capabilities.text_document, "code_action", None)
        resolve = getattr(support, "resolve_support", None)
        return resolve is not None and "edit" in resolve.properties

    @property
    def resolves_locations(self) -> bool:
        """Does the client request the link of an inlay hint's part only when the user points at it?"""
        support = getattr(self.client_capabilities.text_document, "inlay_hint", None)
        resolve = getattr(support, "resolve_support", None)
        return resolve is not None and "label.location" in resolve.properties

    def path_of(self, uri: str) -> str:
        """The path of a URI for all other modules: for an open document, the path it had when it was opened."""
        document = self.documents.at(uri)
        return self.file_of(uri) if document is None else document.path

    @staticmethod
    def file_of(uri: str) -> str:
        """The canonical path that a URI or an absolute path names now; a URI of no file stays as it is.

        JsonRpcInvalidParams if it cannot name anything.
        """
        try:
            path = to_fs_path(uri.replace("file://localhost/", "file:///", 1))
            return uri if path is None and not Path(uri).is_absolute() else canonical_of_absolute(path or uri)
        except ValueError as error:
            raise JsonRpcInvalidParams(f"{uri[:200]!r} names no file: {error}") from None

    def document(self, uri: str) -> Document | None:
        """The open document of this URI or of the file it names, however the URI is written."""
        return self.documents.at(uri) or self.documents.get(self.path_of(uri))

    def uri_of(self, path: str) -> str:
        """The URI of a file as the editor writes it: that of its document, else one below a workspace folder."""
        document = self.documents.get(path)
        return document.uri if document else self.folders.uri_under(path) or from_fs_path(path) or path

    def uris_of(self, path: str) -> list[str]:
        """`uri_of` and all other URIs under which the editor has the file open."""
        return [each.uri for each in self.documents.of(path)] or [self.uri_of(path)]

    def settings_of(self, path: str) -> Settings:
        """The settings of the folder that a file belongs to."""
        return self.folders.settings_of(self.folders.folder_of(path))

    def daemon_settings_of(self, folder: str) -> FolderSettings:
        """The settings of a folder that the daemon needs."""
        return self.folders.settings_of(folder).daemon

    def can(self, *capability: str) -> bool:
        """Did the client announce a capability, e.g. `can("workspace", "inlay_hint", "refresh_support")`?"""
        value: Any = self.client_capabilities
        for name in capability:
            value = getattr(value, name, None)
        return bool(value)

    def knows(self, command: str) -> bool:
        """Can the user run this command: does the server have it, or did the client announce it as its own?

        Clients announce theirs in `capabilities.experimental.commands.commands`, like rust-analyzer's clients.
        """
        if command in COMMANDS:
            return True
        told = self.client_capabilities.experimental
        own = told.get("commands") if isinstance(told, Mapping) else None
        return isinstance(own, Mapping) and command in (own.get("commands") or ())

    def _task_finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a background task failed", exc_info=error)

    def _register_handlers(self) -> None:
        for method in TAKEN_OVER:
            self.protocol.fm.builtin_features.pop(method)
        for method, handler, options in FEATURES:
            self.feature(method, options)(_bind_handler(handler, self, method))
        for name, command in COMMANDS.items():
            self.command(name)(_bind_handler(command, self, name))


def make_converter() -> Converter:
    """pygls' converter, except that parameters and results of messages outside the protocol stay maps.

    In texts that editors show, all characters are made visible.
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


def _bind_handler(handler: Callable[..., Awaitable[Any]], server: Server, method: str) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler so that its calls are counted and logged."""
    inner, kind = _without_cells(handler, server), "s" if method in _SAVES else "l"

    async def bound(*params: Any) -> Any:
        with Measured(server.daemon.metrics, kind, method, partial(server.about, params)):
            return await inner(*params)

    return bound


def _without_cells(handler: Callable[..., Awaitable[Any]], server: Server) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler so that it never sees cells."""

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
