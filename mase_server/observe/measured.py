"""A request from its beginning to its answer: it gets a name, is counted, and is logged where that tells something."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import Token
from types import TracebackType

from mase_server.observe.metrics import Metrics
from mase_server.observe.records import event, wanted
from mase_server.observe.requests import REQUEST, named

#: Seconds from which on an ordinary request is logged as a save is; those that are quicker are for "debug".
LONG = 0.1


class Measured:
    """`with Measured(...):` around what answers one request.

    kind: the first letter of its name.  method: a name of ours, never what a client made up.  path: gives the file that
    it is about, as the log has it; called only where that is logged.
    """

    __slots__ = ("_began", "_kind", "_method", "_metrics", "_path", "_token")

    def __init__(self, metrics: Metrics, kind: str, method: str, path: Callable[[], str]) -> None:
        self._metrics, self._kind, self._method, self._path = metrics, kind, method, path
        self._began = 0.0
        self._token: Token[str] | None = None

    def __enter__(self) -> None:
        self._token = REQUEST.set(named(self._kind))
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        self._metrics.requests.add(self._method, seconds, failed=error is not None)
        level = logging.DEBUG if error is None and seconds < LONG else logging.INFO
        if wanted(level):
            event("request", level, method=self._method, path=self._path(), seconds=seconds, outcome=_outcome(error))
        assert self._token is not None
        REQUEST.reset(self._token)


def _outcome(error: BaseException | None) -> str:
    """Of an error its type: its text may hold what stands in a person's file."""
    if error is None:
        return "answered"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
