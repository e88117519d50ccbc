"""The request that something is done for: a short name that follows it through the server, its workers and its log."""

from __future__ import annotations

import itertools
from contextvars import ContextVar

#: The request that runs now: "l12" of an editor, "r3" of another tool, "s4" a save or a look of the server's own.
REQUEST: ContextVar[str] = ContextVar("mase_request", default="")

_NUMBERS = itertools.count(1)


def named(kind: str) -> str:
    """A name that no other request of this process has."""
    return f"{kind}{next(_NUMBERS)}"


def current(kind: str) -> str:
    """The request that runs now; where none does, a fresh name."""
    return REQUEST.get() or named(kind)
