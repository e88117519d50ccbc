"""Signals that a trace child needs itself: its own alarm, and the questions at which line it is.

Training scripts install handlers for them: an alarm around a download, SIGUSR1 of a batch system that ends the run.
Ours would be gone then, or theirs would run. They are told that their handler is in place; nothing sends them a signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

#: By name, because Windows has none of them.
_OURS = frozenset(
    getattr(signal, name) for name in ("SIGALRM", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)  # fmt: skip


@contextmanager
def signals_kept() -> Iterator[None]:
    """Inside, a program's handlers for our signals, and its timers of that kind, are taken and never used."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(signal, "signal", _installing(signal.signal)))
        if hasattr(signal, "setitimer"):
            stack.enter_context(patch.object(signal, "setitimer", _timing(signal.setitimer)))
            stack.enter_context(patch.object(signal, "alarm", lambda seconds: 0))
        yield


def _installing(original: Callable[..., Any]) -> Callable[..., Any]:
    told: dict[int, Any] = {}

    def install(signalnum: int, handler: Any) -> Any:
        if signalnum not in _OURS:
            return original(signalnum, handler)
        before = told.get(signalnum, signal.SIG_DFL)
        told[signalnum] = handler
        return before

    return install


def _timing(original: Callable[..., Any]) -> Callable[..., Any]:
    def setitimer(which: int, seconds: float, interval: float = 0.0) -> Any:
        return (0.0, 0.0) if which == signal.ITIMER_REAL else original(which, seconds, interval)

    return setitimer
