"""Where an exception came from: the frames of its traceback, the files they are in, the operands of the failed call."""

from __future__ import annotations

import ast
import io
import os
from collections.abc import Callable, Iterator, Sequence
from traceback import walk_tb
from types import FrameType
from typing import Any

from torch import nn

from mase_server.reading import is_file
from mase_server.tracing.errors import mends
from mase_server.tracing.errors.failure import Failure
from mase_server.tracing.loading.source import Span, decode, read_source
from mase_server.tracing.positions import Position, is_hidden, resolve

#: Longer texts of operands are no names.
_MAX_NAME = 40


class Scene:
    """The frames of an exception that are not torch's or ours, innermost first, and what stands there."""

    def __init__(self, error: BaseException, failure: Failure | None) -> None:
        self.error, self.failure = error, failure
        found = list(_visible(error))
        #: The innermost visible frame, whose local variables are still as they were.
        self.frame: FrameType | None = found[0][0] if found else None
        self.frames = [position for _, position in found]
        self._files: dict[str, mends.File] = {}

    def file(self, path: str) -> mends.File:
        """The text and tree of a file."""
        if path not in self._files:
            self._files[path] = mends.File(path, _text(path))
        return self._files[path]

    def here(self) -> tuple[mends.File, ast.expr | None] | None:
        """The innermost frame's file and the expression that failed there; None if there is no such file."""
        if not self.frames or not is_file(self.frames[0].file):
            return None
        file = self.file(self.frames[0].file)
        return file, file.at(raw(self.frames[0]))

    def file_read(self, owns: Callable[[str], bool]) -> str:
        """The file that a library was reading for the person's code, as that named it; "" where none is known.

        owns: is a file the person's? Libraries say what is wrong with the bytes, and seldom of which file.
        """
        called: list[FrameType] = []
        for frame, _ in walk_tb(self.error.__traceback__):
            called = [] if owns(frame.f_code.co_filename) else [*called, frame]
        for frame in called:
            values, code = frame.f_locals, frame.f_code
            for name in (*code.co_varnames[: code.co_argcount], *values):
                value = values.get(name)
                if isinstance(value, io.IOBase):
                    value = getattr(value, "name", None)
                elif name not in code.co_varnames[: code.co_argcount]:
                    continue
                if isinstance(value, str | os.PathLike) and is_file(value):
                    return str(value)
        return ""

    def function(self) -> mends.Function | None:
        """The innermost function of the person's around the failed expression."""
        here = self.here()
        return None if here is None else mends.function_at(here[0].tree, self.frames[0].line)

    def span(self, frame: Position) -> Span:
        """A frame's place with columns in code points."""
        if frame.column < 0:
            return frame.line, 0, frame.line, 0
        places = self.file(frame.file).places
        start, end = places.column(frame.line, frame.column), places.column(frame.end_line, frame.end_column)
        return frame.line, start, frame.end_line, end

    def operands(self) -> dict[Any, ast.expr]:
        """The source of the failed torch call's operands by position, (0, 1) being the second of a list in front."""
        here = self.here()
        if here is None or self.failure is None or self._between(self.failure):
            return {}
        found: Sequence[ast.expr] = ()
        match here[1]:
            case ast.BinOp(left=left, right=right):
                reverse = getattr(self.failure.func, "__name__", "").startswith("__r")
                found = (right, left) if reverse else (left, right)
            case ast.Call(func=ast.Attribute(value=value), args=args) if _is_method(self.failure, value):
                found = (value, *args)
            case ast.Call(args=args):
                found = args
            case None:
                found = self._augmented(here[0])
        return dict(_parts(found))

    def _augmented(self, file: mends.File) -> Sequence[ast.expr]:
        """The operands of `x += y`, which is a statement."""
        place = raw(self.frames[0])
        for node in ast.walk(file.tree):
            if isinstance(node, ast.AugAssign) and mends.raw_of(node) == place:
                return node.target, node.value
        return ()

    def _between(self, failure: Failure) -> bool:
        """Did a container of torch's (nn.Sequential) call the leaf, so that its input has no name in the source?"""
        between = False
        for frame, _ in walk_tb(self.error.__traceback__):
            if not is_hidden(frame.f_code):
                between = False
            elif frame.f_code.co_name == "forward":
                receiver = frame.f_locals.get("self")
                between |= isinstance(receiver, nn.Module) and receiver is not failure.module
        return between

    def names(self) -> dict[Any, str]:
        """The short texts among the operands."""
        texts = {at: ast.unparse(node) for at, node in self.operands().items() if not isinstance(node, ast.Starred)}
        return {at: text for at, text in texts.items() if len(text) <= _MAX_NAME}


def raw(frame: Position) -> mends.Raw:
    """A frame's place as the syntax tree counts it."""
    return frame.line, frame.end_line, frame.column, frame.end_column


def _visible(error: BaseException) -> Iterator[tuple[FrameType, Position]]:
    found = []
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if not is_hidden(frame.f_code):
            found.append((frame, resolve((frame.f_code, trace.tb_lasti))))
        trace = trace.tb_next
    yield from reversed(found)


def _parts(operands: Sequence[ast.expr]) -> Iterator[tuple[Any, ast.expr]]:
    for index, operand in enumerate(operands):
        yield index, operand
        if isinstance(operand, ast.List | ast.Tuple):
            yield from (((index, i), part) for i, part in enumerate(operand.elts))


def _is_method(failure: Failure, receiver: ast.expr) -> bool:
    """Is `a.f(b)` a tensor's method and not a function of a module, or a layer?"""
    is_module = isinstance(receiver, ast.Name) and receiver.id in ("torch", "F", "nn", "functional")
    is_module |= ast.unparse(receiver) in ("nn.functional", "torch.nn.functional", "torch.special")
    return failure.module is None and not is_module


def _text(path: str) -> str:
    try:
        return decode(read_source(path))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ""
