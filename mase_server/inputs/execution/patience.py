"""How long a program has run by itself: what it waits for a processor, or for a library's import, is not its fault."""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Callable
from types import FrameType

from mase_server.priority import waited
from mase_server.tracing.loading.importer import owns

#: Seconds between two looks.
TICK = 0.5
#: A program that uses less of a processor sleeps, or waits for one; one that uses more is only given too little of it.
_ASLEEP = 0.05
#: The part of its usual time that a program gets which used all of it last time, and has not changed since.
AGAIN = 0.05


def program_of(tree: ast.Module) -> str:
    """A digest of a file without its classes: what stays the same while a model is worked on."""
    program = ast.Module([each for each in tree.body if not isinstance(each, ast.ClassDef)], [])
    return hashlib.sha256(ast.dump(program).encode()).hexdigest()


class OwnTime:
    """How long a program had a processor, or wanted none."""

    def __init__(self) -> None:
        self._wall, self._processor, self._waited = time.monotonic(), time.process_time(), waited()

    def passed(self) -> tuple[float, float]:
        """Since this was asked last: seconds of its own, and by the clock."""
        wall, processor, waits = time.monotonic(), time.process_time(), waited()
        passed, used = wall - self._wall, processor - self._processor
        own = used if used > _ASLEEP * passed else passed
        own = max(0.0, min(own, passed - (waits - self._waited)))
        self._wall, self._processor, self._waited = wall, processor, waits
        return own, passed


class Patience:
    """Counts a program's own seconds, tick by tick. excused: is told of seconds that do not count."""

    def __init__(self, seconds: float, folder: str, excused: Callable[[float], None]) -> None:
        self._left, self._folder, self._excused = seconds, folder, excused
        self._time = OwnTime()

    def is_over(self, frame: FrameType | None) -> bool:
        """Has the program used up its seconds, now that it is at `frame`?"""
        own, passed = self._time.passed()
        if self.imports_library(frame):
            own = 0.0
        self._left -= own
        if passed - own > TICK / 10:
            self._excused(passed - own)
        return self._left <= 0

    def imports_library(self, frame: FrameType | None) -> bool:
        """Is the innermost code of the workspace waiting for an import of something else?"""
        importing = False
        while frame is not None:
            name = frame.f_code.co_filename
            if owns(self._folder, name):
                return importing
            importing = importing or name.startswith("<frozen importlib")
            frame = frame.f_back
        return False
