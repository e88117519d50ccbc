"""What a trace spends its time on, told to the server as it begins and ends: so that a slow one can say why.

One trace reports at a time, from the thread and the process that it runs in: a fork, or a thread of the person's code,
must not write to its wire.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[[dict[str, Any]], None]

_reporter: tuple[Report, int, int] | None = None


@contextmanager
def reported(report: Report) -> Iterator[None]:
    """Inside, `report` is told of phases."""
    global _reporter
    before, _reporter = _reporter, (report, os.getpid(), threading.get_ident())
    try:
        yield
    finally:
        _reporter = before


@contextmanager
def phase(kind: str, of: str = "") -> Iterator[None]:
    """What runs inside is of this kind, and about this module or model; phases may lie in one another."""
    _tell({"event": "phase", "kind": kind, "of": of, "at": time.monotonic()})
    try:
        yield
    finally:
        _tell({"event": "phase", "kind": "", "of": "", "at": time.monotonic()})


def _tell(message: dict[str, Any]) -> None:
    if _reporter is not None and _reporter[1:] == (os.getpid(), threading.get_ident()):
        _reporter[0](message)
