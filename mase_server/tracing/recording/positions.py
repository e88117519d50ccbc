"""The position of a torch call in the user's code: cheap to capture, resolved only when needed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

from mase_server.ops.paths import identity
from mase_server.protocol.wire import Message

_TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared with code.co_filename, a plain string
_OURS = str(Path(__file__).parents[2]) + os.sep
_HELPERS = ("functools.py", "contextlib.py", "runpy.py")

#: (code object, index of the last instruction) of one frame.
Mark = tuple[CodeType, int]
Stack = tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """One frame of a call chain: lines from 1, columns from 0 in UTF-8 bytes as Python counts them; -1: unknown."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str


#: By file: code objects of different files are equal if their code is.
_hidden: dict[str, bool] = {}
#: By identity, since the hash of a code object takes longer than all else: the object, and its positions.
_tables: dict[int, tuple[CodeType, list[tuple[int | None, int | None, int | None, int | None]]]] = {}
_resolved: dict[tuple[int, int], Position] = {}


def is_hidden(code: CodeType) -> bool:
    """Is this code torch's, ours or a mere helper's, and so irrelevant to the user?"""
    name = code.co_filename
    found = _hidden.get(name)
    if found is None:
        hidden = name.startswith((_TORCH, _OURS)) or name.endswith(_HELPERS)
        found = _hidden[name] = hidden or (name.startswith("<") and not name.startswith("<ipython"))
    return found


def capture_stack(stop: FrameType | None, depth: int = 1) -> Stack:
    """The frames above the caller up to `stop`, innermost first, without torch's and our own."""
    marks = []
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and frame is not stop:
        code = frame.f_code
        hidden = _hidden.get(code.co_filename)
        if hidden is None:
            hidden = is_hidden(code)
        if not hidden:
            marks.append((code, frame.f_lasti))
        frame = frame.f_back
    return tuple(marks)


def iterate_traceback(error: BaseException) -> Iterator[TracebackType]:
    """The parts of an error's traceback, one a frame, outermost first."""
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def iterate_unmade(error: BaseException) -> Iterator[object]:
    """The objects whose constructors an error has ended, outermost first."""
    for trace in iterate_traceback(error):
        if trace.tb_frame.f_code.co_name == "__init__":
            yield trace.tb_frame.f_locals.get("self")


def get_first_argument(frame: FrameType) -> Any:
    """The first argument of a running function, the object whose method it is; None if it has none."""
    return frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))


def resolve_mark(mark: Mark) -> Position:
    """The position that a mark refers to."""
    code, last = mark
    key = identity(code), last
    found = _resolved.get(key)
    if found is None:
        found = _resolved[key] = _read_position(code, last)
    return found


def _read_position(code: CodeType, last: int) -> Position:
    if identity(code) not in _tables:
        _tables[identity(code)] = code, list(code.co_positions())
    table = _tables[identity(code)][1]
    line, end_line, column, end_column = table[last // 2] if last >= 0 else (code.co_firstlineno, None, None, None)
    first = code.co_firstlineno if line is None else line
    start = -1 if column is None else column
    return Position(
        code.co_filename,
        first,
        start,
        first if end_line is None else end_line,
        start if end_column is None else end_column,
        getattr(code, "co_qualname", code.co_name),
    )


# The phases of a trace, reported to the server as they begin and end, so that it can explain a slow trace.
#
# One trace reports at a time, from the thread and the process that it runs in: a fork, or a thread of the user's code,
# must not write to its wire.

Report = Callable[[Message], None]

_reporter: tuple[Report, int, int] | None = None


@contextmanager
def report_phases_to(report: Report) -> Iterator[None]:
    """Inside, `report` is called for each phase."""
    global _reporter
    before, _reporter = _reporter, (report, os.getpid(), threading.get_ident())
    try:
        yield
    finally:
        _reporter = before


@contextmanager
def report_phase(kind: str, of: str = "") -> Iterator[None]:
    """Inside, the phase is of this kind, and about this module or model; phases may be nested."""
    _send_phase({"event": "phase", "kind": kind, "of": of, "at": time.monotonic()})
    try:
        yield
    finally:
        _send_phase({"event": "phase", "kind": "", "of": "", "at": time.monotonic()})


def _send_phase(message: Message) -> None:
    if _reporter is not None and _reporter[1:] == (os.getpid(), threading.get_ident()):
        _reporter[0](message)
