"""What the daemon tells, passed on to the editor: fresh views, states, progress."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.daemon.status import Status
from mase_server.lsp import diagnostics
from mase_server.lsp.progress import Progress

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: The notification that tells where the trace of a file stands.
STATUS = "mase/status"
_LOG = logging.getLogger(__name__)


class ClientListener:
    """The daemon's listener that speaks to one editor."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._refresher = Refresher(server)
        self._progress: dict[str, Progress] = {}

    def views_changed(self, paths: frozenset[str]) -> None:
        """Have hints, lenses and pulled diagnostics asked for again, and push the diagnostics nobody pulls."""
        if not self._server.initialized:
            return
        self._refresher.refresh()
        diagnostics.publish(self._server, paths)

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
            self._progress[status.path] = Progress(self._server, status.path)
        message = asdict(status)
        message["uri"] = self._server.uri_of(message.pop("path"))
        self._server.protocol.notify(STATUS, message)

    def progress(self, path: str, stage: str, message: str) -> None:
        """What the trace of a file is at."""
        if path in self._progress:
            self._progress[path].report(message or stage)

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
