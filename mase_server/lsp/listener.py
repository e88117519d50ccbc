"""What the daemon tells, passed on to the editor: fresh views, states, progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.daemon import slowness
from mase_server.daemon.status import Status
from mase_server.lsp import diagnostics
from mase_server.lsp.calls import models_of
from mase_server.lsp.progress import Progress
from mase_server.visible import reveal, reveal_lines

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: The notification that tells where the trace of a file stands.
STATUS = "mase/status"
#: The notification that tells which passes lie over the models of a file.
PIPELINES = "mase/pipelines"
#: The notification that something else is known of files: hints, graphs, costs, what passes made.
VIEWS = "mase/viewsChanged"
#: The notification that says why the trace of a file takes long, while it does, and once more when it is over.
SLOW = "mase/slow"
#: A client that has this command shows what is slow in a place of its own.
_STATUS_ITEM = "mase.showActions"
#: What has progress of its own beside traces.
_PASS, _VERILOG = "pass", "verilog"
_LOG = logging.getLogger(__name__)


class ClientListener:
    """The daemon's listener that speaks to one editor."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._refresher = Refresher(server)
        self._progress: dict[str, Progress] = {}
        self._work: dict[tuple[str, str, str], Progress] = {}
        self._pipelines: dict[str, dict[str, list[str]]] = {}

    def views_changed(self, paths: frozenset[str]) -> None:
        """Have hints, lenses and pulled diagnostics asked for again, and push the diagnostics nobody pulls."""
        if not self._server.initialized:
            return
        self._refresher.refresh()
        diagnostics.publish(self._server, paths)
        self._server.contents.changed(paths)
        self.tell_pipelines(paths)
        self._server.protocol.notify(
            VIEWS, {"uris": sorted(uri for path in paths for uri in self._server.uris_of(path))}
        )

    def tell_pipelines(self, paths: Iterable[str]) -> None:
        """Tell which passes lie over the models of open files, where that is news."""
        for path in paths:
            if self._server.documents.get(path) is None:
                continue
            models = models_of(self._server, path)
            found = {model.title: model.transform["texts"] for model in models if model.transform}
            if found != self._pipelines.get(path, {}):
                self._pipelines[path] = found
                for uri in self._server.uris_of(path):
                    self._server.protocol.notify(PIPELINES, {"uri": uri, "pipelines": found})

    def refresh(self) -> None:
        """Have everything asked for again."""
        self._refresher.refresh()

    def status_changed(self, status: Status) -> None:
        """Tell the editor; begin and end the work-done progress of the file."""
        if not self._server.initialized:
            return
        if status.ended:
            self._end_progress(status)
        elif status.path not in self._progress:
            cancel = partial(self._server.daemon.cancel, status.path)
            self._progress[status.path] = Progress(self._server, f"Tracing {Path(status.path).name}", cancel)
        message = {**asdict(status), "message": reveal_lines(status.message)}
        for uri in self._server.uris_of(message.pop("path")):
            self._server.protocol.notify(STATUS, {**message, "uri": uri})

    def progress(self, path: str, stage: str, message: str) -> None:
        """What the trace of a file is at."""
        if stage == slowness.STAGE:
            if not self._server.initialized:
                return
            for uri in self._server.uris_of(path):
                self._server.protocol.notify(SLOW, {"uri": uri, "text": reveal(message)})
            if self._server.knows(_STATUS_ITEM):
                return  # it stands there already
            message = message.removeprefix(f"{Path(path).name}: ")
        if path in self._progress:
            self._progress[path].report(message or stage)

    def pass_begins(self, path: str, model: str, title: str, cancel: Callable[[], object]) -> None:
        """A pass that the person chose begins; they may cancel it."""
        self._begin(_PASS, path, model, title, cancel)

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """What the pass that runs on a model is at, or the measuring of its errors behind a save."""
        if (_PASS, path, model) not in self._work:
            self._begin(_PASS, path, model, f"Passes on {model}")
        self._work[_PASS, path, model].report(message, fraction)

    def pass_ended(self, path: str, model: str) -> None:
        """No pass runs on that model any longer."""
        self._end(_PASS, path, model)

    def verilog_begins(self, path: str, model: str, title: str, cancel: Callable[[], object]) -> None:
        """Hardware of a model is made or simulated because the person asked; they may cancel it."""
        self._begin(_VERILOG, path, model, title, cancel)

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """What that is at. What follows a save makes no noise."""
        if (progress := self._work.get((_VERILOG, path, model))) is not None:
            progress.report(message, fraction)

    def verilog_ended(self, path: str, model: str) -> None:
        """That is over."""
        self._end(_VERILOG, path, model)

    def verilog_changed(self, path: str, model: str) -> None:
        """What is told of a model's hardware changed: its documents are asked for again."""
        if self._server.initialized:
            self._server.contents.changed([path])
            self._refresher.refresh()

    def warned(self, text: str) -> None:
        """A message, since no file's diagnostics are the place for it."""
        self._server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, text))

    def _begin(self, kind: str, path: str, model: str, title: str, cancel: Callable[[], object] | None = None) -> None:
        self._end(kind, path, model)
        self._work[kind, path, model] = Progress(self._server, title, cancel)

    def _end(self, kind: str, path: str, model: str) -> None:
        if (progress := self._work.pop((kind, path, model), None)) is not None:
            progress.end()

    def _end_progress(self, status: Status) -> None:
        progress = self._progress.pop(status.path, None)
        if progress is not None:
            progress.end(status.message)


class Refresher:
    """Asks the client to ask again; one question of a kind at a time, the latest never lost."""

    METHODS = (
        (lsp.WORKSPACE_INLAY_HINT_REFRESH, "inlay_hint"),
        (lsp.WORKSPACE_CODE_LENS_REFRESH, "code_lens"),
        (lsp.WORKSPACE_DIAGNOSTIC_REFRESH, "diagnostics"),
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._asked: set[str] = set()
        self._again: set[str] = set()

    def refresh(self) -> None:
        """Ask for everything that the client lets itself be asked for."""
        for method, capability in self.METHODS:
            if self._server.can("workspace", capability, "refresh_support"):
                self._ask(method)

    def _ask(self, method: str) -> None:
        if method in self._asked:
            self._again.add(method)
            return
        self._asked.add(method)
        answer: Future[Any] = self._server.protocol.send_request(method)
        loop = asyncio.get_running_loop()
        answer.add_done_callback(lambda done: loop.call_soon_threadsafe(self._answered, method, done))

    def _answered(self, method: str, answer: Future[Any]) -> None:
        self._asked.discard(method)
        if not answer.cancelled() and (error := answer.exception()) is not None:
            _LOG.warning("the client refused %s: %s", method, error)
        if method in self._again:
            self._again.discard(method)
            self._ask(method)
