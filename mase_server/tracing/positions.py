"""Where in the person's code a torch call stands: cheap to capture, resolved when somebody asks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import CodeType, FrameType

import torch

import mase_server

_TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared with code.co_filename, a plain string
_OURS = os.path.dirname(mase_server.__file__) + os.sep  # noqa: PTH120
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


#: By file: code objects of different files are equal where their code is.
_hidden: dict[str, bool] = {}
_tables: dict[CodeType, list[tuple[int | None, int | None, int | None, int | None]]] = {}


def is_hidden(code: CodeType) -> bool:
    """Is this code torch's, ours or a mere helper's, and so of no interest to the person?"""
    name = code.co_filename
    found = _hidden.get(name)
    if found is None:
        hidden = name.startswith((_TORCH, _OURS)) or name.endswith(_HELPERS)
        found = _hidden[name] = hidden or (name.startswith("<") and not name.startswith("<ipython"))
    return found


def capture(stop: FrameType | None, depth: int = 1) -> Stack:
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


def resolve(mark: Mark) -> Position:
    """The position that a mark stands for."""
    code, last = mark
    table = _tables.get(code)
    if table is None:
        table = _tables[code] = list(code.co_positions())
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
