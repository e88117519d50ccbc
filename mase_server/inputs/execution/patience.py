"""How long a program has run by itself: what it waits for a processor, or for a library's import, is not its fault."""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Callable
from types import FrameType

from mase_server.tracing.loading.importer import owns

#: Seconds between two looks.
TICK = 0.5
#: A program that uses less of a processor sleeps; one that uses more is only given too little of it.
_ASLEEP = 0.05
#: The part of its usual time that a program gets which used all of it last time, and has not changed since.
AGAIN = 0.05


def program_of(tree: ast.Module) -> str:
    """A digest of a file without its classes: what stays the same while a model is worked on."""
    program = ast.Module([each for each in tree.body if not isinstance(each, ast.ClassDef)], [])
    return hashlib.sha256(ast.dump(program).encode()).hexdigest()


class Patience:
    """Counts a program's own seconds, tick by tick. excused: is told of seconds that do not count."""

    def __init__(self, seconds: float, folder: str, excused: Callable[[float], None]) -> None:
        self._left, self._folder, self._excused = seconds, folder, excused
        self._wall, self._processor = time.monotonic(), time.process_time()

    def is_over(self, frame: FrameType | None) -> bool:
        """Has the program used up its seconds, now that it is at `frame`?"""
        wall, processor = time.monotonic(), time.process_time()
        passed, used = wall - self._wall, processor - self._processor
        self._wall, self._processor = wall, processor
        own = 0.0 if self.imports_library(frame) else (used if used > _ASLEEP * passed else passed)
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
