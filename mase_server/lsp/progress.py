"""Work-done progress of a trace or of a pass, shown once it takes longer than a moment."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: Seconds that something may take before its progress is shown.
DELAY = 0.3


class Progress:
    """The progress of one thing; created when it starts, told of its stages, ended with it.

    cancel: stops it, when the person asks for that; without it there is no such button.
    """

    def __init__(self, server: Server, title: str, cancel: Callable[[], object] | None = None) -> None:
        self._server = server
        self._title = title
        self._cancel = cancel
        self._token: str | None = None
        self._message = ""
        self._percentage: int | None = None
        self._ended = False
        if server.can("window", "work_done_progress"):
            server.spawn(self._begin_late())

    def report(self, message: str, fraction: float | None = None) -> None:
        """It is at this stage. fraction: how much of it is done, 0 to 1, where that is known."""
        self._message = message
        self._percentage = None if fraction is None else round(100 * max(0.0, min(1.0, fraction)))
        if self._token is not None:
            report = lsp.WorkDoneProgressReport(message=message, percentage=self._percentage)
            self._server.work_done_progress.report(self._token, report)

    def end(self, message: str = "") -> None:
        """It is over."""
        self._ended = True
        if self._token is not None:
            self._server.work_done_progress.end(self._token, lsp.WorkDoneProgressEnd(message=message or None))
            self._server.work_done_progress.tokens.pop(self._token, None)
            self._server.cancels.pop(self._token, None)
            self._token = None

    async def _begin_late(self) -> None:
        await asyncio.sleep(DELAY)
        if self._ended:
            return
        token = f"mase-{uuid.uuid4()}"
        await self._server.work_done_progress.create_async(token)
        del self._server.work_done_progress.tokens[token]  # pygls would keep it for ever, and `cancels` does the same
        if not self._ended:
            self._begin(token)

    def _begin(self, token: str) -> None:
        self._token = token
        if self._cancel is not None:
            self._server.cancels[token] = self._cancel
        begin = lsp.WorkDoneProgressBegin(
            self._title, cancellable=self._cancel is not None, message=self._message, percentage=self._percentage
        )
        self._server.work_done_progress.begin(token, begin)


async def cancel(ls: Server, params: lsp.WorkDoneProgressCancelParams) -> None:
    """window/workDoneProgress/cancel: stop what the progress was of."""
    stop = ls.cancels.get(str(params.token))
    if stop is not None:
        stop()
