"""Executing a file to its end, although a statement at its top level fails: the names it would have bound are unknown.

Python stops a script that needs a GPU, a data set or an argument at import. The code below usually does not depend
on it; if it does, using an unknown value is an error of its own, as for a missing package.
"""

from __future__ import annotations

import ast
import asyncio
import bisect
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.importing.handlers import is_import_handled, iterate_frames
from mase_server.tracing.importing.placeholders import Absent, MissingPackageError, Placeholder
from mase_server.tracing.importing.rewrite import Start, cut_statements_before, list_defaults
from mase_server.tracing.importing.source import Namespace, list_nodes, parse_file, read_source
from mase_server.tracing.recording.positions import Position, resolve_mark

#: Statements that may fail before this is no longer the intended program.
MAX_FAILURES = 20
#: The same for a notebook, whose cells were never meant to be one program.
MAX_OF_NOTEBOOK = 60

#: The errors of imported files that were passed over, where somebody collects them.
_failures: ContextVar[list[BaseException] | None] = ContextVar("failures", default=None)
#: The values that statements change in place. A program that ended early has left too little in them.
_GROWING = (MutableSequence, MutableMapping, MutableSet)
#: The methods of these that change nothing.
_READERS = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
#: A line after every end.
_NEVER = 10**9


@dataclass(frozen=True, slots=True)
class _Failed:
    """A statement at the top level of a file that raised at a line of its own or of a block inside it."""

    statement: ast.stmt
    line: int
    next: Start


@dataclass(frozen=True, slots=True)
class Cuts:
    """How to end statements that run too long without ending the program.

    by: the exceptions that are raised in them.  goes_on: is asked after each whether the next statement may run.
    most: statements that may fail.
    """

    by: type[BaseException]
    goes_on: Callable[[], bool]
    most: int


def execute_to_end(
    path: str,
    code: CodeType,
    names: Namespace,
    code_from: Callable[[Start], CodeType],
    cuts: Cuts | None = None,
    goes_past: Callable[[BaseException], bool] = lambda error: True,
    *,
    imported: bool = False,
) -> BaseException | None:
    """Execute a file's code in `names`; return the first error. Raises one that came from outside of any statement.

    code_from: the code of the same file from a statement on.  goes_past: may an error be passed over?  imported: is it
    another file than the traced one? Then errors about its unknown names say its name.
    """
    first: BaseException | None = None
    start = Start()
    for _ in range(MAX_FAILURES if cuts is None else cuts.most):
        try:
            _run_code(code, names)
            return first
        except RAISED as error:  # the border to the user's code
            first = first or error
            failed = _find_failed_statement(path, error) if goes_past(error) else None
            if failed is None and first is error:
                raise
            if failed is None:
                raise first from None
            if undecorated := _find_failed_decorators(path, error) - start.undecorated:
                start = Start(*_start_of(failed.statement), start.undecorated | undecorated)
                error.add_note("The function or class is shown without this decorator, or this default.")
                code = code_from(start)
                continue
            names.update(_make_unknown_names(path, failed, error, names, imported=imported))
        except BaseException as cut:
            failed = (
                _find_failed_statement(path, cut)
                if cuts is not None and type(cut) is cuts.by and cuts.goes_on()
                else None
            )
            if failed is None:
                raise
            unknown = _make_unknown_names(path, failed, cut, names)
            kept = _find_kept_names(failed, names)
            names.update({name: value for name, value in unknown.items() if name not in kept})
        if failed.next.line == _NEVER:
            return first
        start = failed.next._replace(undecorated=start.undecorated)
        code = code_from(start)
    return first


def execute_module(path: str, code: CodeType, names: Namespace, code_from: Callable[[Start], CodeType]) -> None:
    """Execute an imported file, past statements that need a missing package unless code around expects that.

    While failures are collected, past all that fail: the first one is noted as the error of the import statement that
    it would have been. A missing package is told elsewhere.
    """
    frame, failures = sys._getframe(1), _failures.get()
    passed = MissingPackageError if failures is None else Exception

    def goes_past(error: BaseException) -> bool:
        return isinstance(error, passed) and not is_import_handled(frame)

    error = execute_to_end(path, code, names, code_from, goes_past=goes_past, imported=True)
    if error is not None and failures is not None and not isinstance(error, MissingPackageError):
        for around in iterate_frames(frame):
            error.__traceback__ = TracebackType(error.__traceback__, around, around.f_lasti, around.f_lineno)
        failures.append(error)


@contextlib.contextmanager
def collecting_failures() -> Iterator[list[BaseException]]:
    """Inside, note the error of each imported file of the workspace that was executed past a failing statement."""
    found: list[BaseException] = []
    token = _failures.set(found)
    try:
        yield found
    finally:
        _failures.reset(token)


def plain_code_from(path: str, start: Start) -> CodeType:
    """The code of a file from a statement on, as Python would compile it."""
    tree = cut_statements_before(ast.parse(read_source(path), path), start)
    return compile(tree, path, "exec", dont_inherit=True)


def _run_code(code: CodeType, names: Namespace) -> None:
    """Execute code, which may await at its top level if it is a notebook's."""
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def _find_failed_statement(path: str, error: BaseException) -> _Failed | None:
    at = next(
        (place for place in _iterate_positions(error) if place.file == path and place.function == "<module>"), None
    )
    if at is None:
        return None
    body = parse_file(path).body
    starts = list(map(_start_of, body))
    index = bisect.bisect_right(starts, (at.line, max(at.column, 0))) - 1
    after = starts[index + 1] if index + 1 < len(starts) else (_NEVER, 0)
    return _Failed(body[index], at.line, Start(*after)) if index >= 0 else None


def _find_failed_decorators(path: str, error: BaseException) -> frozenset[int]:
    """The lines of the decorator that raised an error, and of the others by the same function; else the line of the
    default of a parameter that did; empty if none did."""
    lines = {place.line for place in _iterate_positions(error) if place.file == path}
    tree = parse_file(path)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = [each for node in list_nodes(tree) if isinstance(node, kinds) for each in node.decorator_list]
    failed = {_name_decorator(each) for each in found if _stands_in(each, lines)}
    defaults = (each for node in list_nodes(tree) if isinstance(node, ast.arguments) for each in list_defaults(node))
    return frozenset(each.lineno for each in found if _name_decorator(each) in failed) or frozenset(
        each.lineno for each in defaults if isinstance(each, ast.Call) and _stands_in(each, lines)
    )


def _stands_in(node: ast.expr, lines: set[int]) -> bool:
    return not lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1))


def _name_decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _iterate_positions(error: BaseException) -> Iterator[Position]:
    """Where the frames of a traceback were, outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        yield resolve_mark((traceback.tb_frame.f_code, traceback.tb_lasti))
        traceback = traceback.tb_next


def _start_of(statement: ast.stmt) -> tuple[int, int]:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)]), statement.col_offset


def _make_unknown_names(
    path: str, failed: _Failed, error: BaseException, names: Namespace, *, imported: bool = False
) -> Namespace:
    """A placeholder for each name that the statement may not have bound as it should."""
    said = f"{type(error).__name__}: {error}".strip().partition("\n")[0].removesuffix(": ")
    where = f"line {failed.line} of {Path(path).name}" if imported else f"line {failed.line}"
    absent = Absent("", lambda thing: None, lambda file: file == path, f"{where} raised {said}")
    again = isinstance(failed.statement, ast.For | ast.AsyncFor | ast.While)
    bound = [
        name
        for name, line in _iterate_bound_names(failed.statement)
        if again or line >= failed.line or name not in names
    ]
    functions = {each.name: each for each in parse_file(path).body if isinstance(each, ast.FunctionDef)}
    found = _find_changed_names(failed.statement, functions)
    changed = [name for name in found if isinstance(names.get(name), _GROWING)]
    return {name: Placeholder(absent, name, made=True) for name in [*bound, *changed]}


def _find_kept_names(failed: _Failed, names: Namespace) -> set[str]:
    """The names that have the values which they would have at the end of a statement that was cut, but for numbers.

    A tensor or a model that the statement has bound is one, unless it is computed from itself, or from what a loop goes
    over, whose last batch may be a smaller one; a count, a text or a list is none.
    """
    if failed.next.line == _NEVER:
        return set(names)  # nothing follows that could be misled
    passing = _find_passing_names(failed.statement)
    states = (str, bytes, int, float, complex, tuple, *_GROWING)
    return {name for name, value in names.items() if name not in passing and not isinstance(value, states)}


def _find_passing_names(statement: ast.stmt) -> set[str]:
    """The names of a statement whose values may change with each round of a loop, and those computed from them."""
    nodes = list(ast.walk(statement))
    assigned = [
        (_list_names(each, ast.Store), _list_names(each, ast.Load))
        for each in nodes
        if isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign)
    ]
    found = {name for each in nodes if isinstance(each, ast.For | ast.AsyncFor) for name in _list_names(each.target)}
    found |= {name for stored, read in assigned for name in stored & read}
    while more := {name for stored, read in assigned if read & found for name in stored} - found:
        found |= more
    return found


def _find_changed_names(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    """The names whose lists or dictionaries a statement may change, itself or in functions of its file that it calls.

    functions: those that have not been looked at yet, by their names.
    """
    found = set[str]()
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method not in _READERS:
                found.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Call(func=ast.Name(id=name), args=given) if name in functions:
                others = {other: function for other, function in functions.items() if other != name}
                changed = _find_changed_names(ast.Module(functions[name].body, []), others)
                pairs = zip(functions[name].args.args, given, strict=False)
                found |= changed | {
                    arg.id for taken, arg in pairs if taken.arg in changed and isinstance(arg, ast.Name)
                }
    return found


def _list_names(node: ast.AST, kind: type[ast.expr_context] = ast.Store) -> set[str]:
    """The names that are bound or, with `ast.Load`, read in a node. An augmented assignment does both."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, kind)}
    return names | (_list_names(node.target) if isinstance(node, ast.AugAssign) and kind is ast.Load else set())


def _iterate_bound_names(node: ast.AST) -> Iterator[tuple[str, int]]:
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
        yield from _iterate_bound_names(inner)
