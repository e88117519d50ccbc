"""Problems of the search, each with its place and its next step."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterable

from torch import nn

from mase_server.inputs.comments import BadComment
from mase_server.inputs.guard import RefusedError
from mase_server.snapshot import Problem

#: Failures of a program that say nothing about its models.
_CIRCUMSTANCES = (RefusedError, OSError, SystemExit, KeyboardInterrupt, ImportError)


def at_comment(path: str, bad: BadComment) -> Problem:
    """A `# mase:` comment that could not be read."""
    message = f"this comment could not be read: {bad.message}"
    return Problem(path, bad.line, bad.column, bad.line, bad.end_column, "error", "bad-comment", message)


def at_class(path: str, node: ast.ClassDef | None, severity: str, code: str, message: str) -> Problem:
    """A problem at a class's name; at the top of the file where there is no class."""
    if node is None:
        return Problem(path, 1, 0, 1, 0, severity, code, message)
    column = node.col_offset + len("class ")
    return Problem(path, node.lineno, column, node.lineno, column + len(node.name), severity, code, message)


def at_error(path: str, error: BaseException, severity: str, code: str, message: str) -> Problem:
    """A problem at the innermost line of the file that an exception passed through."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        column = max((error.offset or 1) - 1, 0)
        end = max((error.end_offset or 0) - 1, column + 1)
        return Problem(path, error.lineno, column, error.end_lineno or error.lineno, end, severity, code, message)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if not frames:
        return Problem(path, 1, 0, 1, 0, severity, code, message)
    last = frames[-1]
    line, column = last.lineno or 1, last.colno or 0
    return Problem(path, line, column, last.end_lineno or line, last.end_colno or column, severity, code, message)


def in_import(path: str, error: BaseException) -> Problem:
    """The file could not be imported."""
    code = {ImportError: "missing-import", ModuleNotFoundError: "missing-import", SyntaxError: "syntax-error"}.get(
        type(error), "import-error"
    )
    step = ""
    if isinstance(error, ModuleNotFoundError):
        step = f"; install {error.name!r} in this interpreter's environment, or choose another interpreter"
    return at_error(path, error, "error", code, f"{describe(error)}{step}")


def in_main(path: str, error: BaseException) -> Problem:
    """The program ended before it called a model."""
    if constructing(error):
        return at_error(path, error, "error", "constructor-error", describe(error))
    severity = "information" if isinstance(error, _CIRCUMSTANCES) else "warning"
    message = f"running this file ended here, before it called a model: {describe(error)}"
    return at_error(path, error, severity, "main-error", message)


def constructing(error: BaseException) -> bool:
    """Did the exception come out of a model's constructor?"""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module) for frame in frames
    )


def describe(error: BaseException) -> str:
    """An exception as one line: its type and the first line of what it says."""
    text = str(error).strip().partition("\n")[0]
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def tried(attempts: Iterable[str], limit: int = 3) -> str:
    """What was tried, for the end of a message."""
    shown = list(dict.fromkeys(attempts))
    return "; ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")
