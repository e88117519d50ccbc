"""Work-done progress of one trace, shown once it takes longer than a moment."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: Seconds that a trace may take before its progress is shown.
DELAY = 0.3


class Progress:
    """One trace's progress; created when the trace starts, told of its stages, ended with it."""

    def __init__(self, server: Server, path: str) -> None:
        self._server = server
        self._path = path
        self._token: str | None = None
        self._message = ""
        self._ended = False
        if server.can("window", "work_done_progress"):
            server.spawn(self._begin_late())

    def report(self, message: str) -> None:
        """The trace is at this stage."""
        self._message = message
        if self._token is not None:
            self._server.work_done_progress.report(self._token, lsp.WorkDoneProgressReport(message=message))

    def end(self, message: str) -> None:
        """The trace is over."""
        self._ended = True
        if self._token is not None:
            self._server.work_done_progress.end(self._token, lsp.WorkDoneProgressEnd(message=message))
            self._server.progress_paths.pop(self._token)
            self._token = None

    async def _begin_late(self) -> None:
        await asyncio.sleep(DELAY)
        if self._ended:
            return
        token = f"mase-{uuid.uuid4()}"
        await self._server.work_done_progress.create_async(token)
        if not self._ended:
            self._begin(token)

    def _begin(self, token: str) -> None:
        self._token = token
        self._server.progress_paths[token] = self._path
        title = f"Tracing {Path(self._path).name}"
        begin = lsp.WorkDoneProgressBegin(title, cancellable=True, message=self._message)
        self._server.work_done_progress.begin(token, begin)


async def cancel(ls: Server, params: lsp.WorkDoneProgressCancelParams) -> None:
    """window/workDoneProgress/cancel: stop the trace that the progress was of."""
    path = ls.progress_paths.get(str(params.token))
    if path is not None:
        ls.daemon.cancel(path)
