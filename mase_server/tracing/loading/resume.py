"""Executing a file to its end, although a statement at its top fails: the names it would have bound are unknown.

A script that wants a GPU, a data set or an argument at import stops Python there. What stands below does not depend on
it as a rule; where it does, asking for an unknown value is an error of its own, as for a package that is missing.
"""

from __future__ import annotations

import ast
import asyncio
import bisect
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.loading.placeholders import Absent, Placeholder
from mase_server.tracing.loading.source import decode, read_source
from mase_server.tracing.positions import Position, resolve

#: Statements that may fail before this is no longer the program that was meant.
MAX_FAILURES = 20
#: The same for a notebook, whose cells were never meant to be one program.
MAX_OF_NOTEBOOK = 60

#: A line behind every end.
_NEVER = 10**9
#: The position (line, column) of the statement that code begins with.
Start = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Failed:
    """A statement at the top of a file that raised at a line of its own or of a block inside of it."""

    statement: ast.stmt
    line: int
    next: Start


@dataclass(frozen=True, slots=True)
class Cuts:
    """How statements may be ended that ran for long enough, without ending the program: those of a notebook.

    by: what is raised in them.  goes_on: asked after each; may the next statement run?
    """

    by: type[BaseException]
    goes_on: Callable[[], bool]


def execute_to_end(
    path: str, code: CodeType, names: dict[str, Any], code_from: Callable[[Start], CodeType], cuts: Cuts | None = None
) -> BaseException | None:
    """Execute a file's code in `names`; gives the first error. Raises one that came from outside of any statement.

    code_from: the code of the same file from a statement on.
    """
    first: BaseException | None = None
    for _ in range(MAX_FAILURES if cuts is None else MAX_OF_NOTEBOOK):
        try:
            _run(code, names)
            return first
        except RAISED as error:  # the border to the person's code
            first = first or error
            failed = _failed(path, error)
            if failed is None:
                raise first from None
            names.update(_unknown(path, failed, error, names))
        except BaseException as cut:
            failed = _failed(path, cut) if cuts is not None and type(cut) is cuts.by and cuts.goes_on() else None
            if failed is None:
                raise
            # What it had bound by then it would have bound, if to other values.
            unknown = _unknown(path, failed, cut, names)
            names.update({name: value for name, value in unknown.items() if name not in names})
        code = code_from(failed.next)
    return first


def _run(code: CodeType, names: dict[str, Any]) -> None:
    """Execute code, which awaits at its top if it is a notebook's."""
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def _failed(path: str, error: BaseException) -> _Failed | None:
    at = next((place for place in _places(error) if place.file == path and place.function == "<module>"), None)
    if at is None:
        return None
    body = ast.parse(decode(read_source(path))).body
    starts = [(_first_line(statement), statement.col_offset) for statement in body]
    index = bisect.bisect_right(starts, (at.line, max(at.column, 0))) - 1
    after = starts[index + 1] if index + 1 < len(starts) else (_NEVER, 0)
    return _Failed(body[index], at.line, after) if index >= 0 else None


def _places(error: BaseException) -> Iterator[Position]:
    """Where the frames of a traceback were, outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        yield resolve((traceback.tb_frame.f_code, traceback.tb_lasti))
        traceback = traceback.tb_next


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _unknown(path: str, failed: _Failed, error: BaseException, names: dict[str, Any]) -> dict[str, Any]:
    """A placeholder for each name that the statement may not have bound as it should."""
    said = f"{type(error).__name__}: {error}".strip().partition("\n")[0].removesuffix(": ")
    absent = Absent("", lambda thing: None, lambda file: file == path, f"line {failed.line} raised {said}")
    again = isinstance(failed.statement, ast.For | ast.AsyncFor | ast.While)
    return {
        name: Placeholder(absent, name, made=True)
        for name, line in _bound(failed.statement)
        if again or line >= failed.line or name not in names
    }


def _bound(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a statement binds in the module, and where."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node.end_lineno or node.lineno
            return
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return
        case ast.Name(id=name, ctx=ast.Store()):
            yield name, node.end_lineno or node.lineno
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((each.asname or each.name.partition(".")[0], node.lineno) for each in aliases)
        case ast.ExceptHandler(name=str(name)):
            yield name, node.lineno
    for inner in ast.iter_child_nodes(node):
        yield from _bound(inner)
