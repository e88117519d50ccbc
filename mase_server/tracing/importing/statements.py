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
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

from torch import nn

from mase_server.paths import is_library
from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.importing.datasets import replace_absent_data
from mase_server.tracing.importing.handlers import is_import_handled, iterate_frames
from mase_server.tracing.importing.placeholders import Absent, MissingPackageError, Placeholder, find_placeholder_error
from mase_server.tracing.importing.rewrite import (
    GIVEN,
    LOOPS,
    OVER,
    ROUND,
    Start,
    cut_statements_before,
    end_of,
    iterate_code,
    list_blocks,
    list_defaults,
    list_statements_from,
    start_of,
)
from mase_server.tracing.importing.source import Namespace, list_nodes, parse_file, read_source, walk_tree
from mase_server.tracing.recording.positions import get_first_argument, iterate_traceback, resolve_mark
from mase_server.tracing.recording.shadow import ValueDependentError

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


@dataclass(slots=True)
class _Call:
    """A call of a function of the file, or the module, whose statements are executed one after the other.

    path: of the file.  function: None for the module.  names: its variables.  ended: the statement that has raised an
    error, was cut, or has called the next function; at a line of it.  deeper: what ran for it then.
    """

    path: str
    function: ast.FunctionDef | None
    names: Namespace
    ended: ast.stmt = field(default_factory=lambda: ast.Pass(lineno=0, col_offset=0))
    line: int = 0
    deeper: Sequence[FrameType] = ()

    @property
    def body(self) -> list[ast.stmt]:
        """All its statements."""
        return (self.function or parse_file(self.path)).body


@dataclass(frozen=True, slots=True)
class Cuts:
    """How to end statements that run too long without ending the program.

    by: the exceptions that are raised in them; they end the loop around, if there is one.  one: those that end a single
    statement of it.  goes_on: is asked after each whether the next statement may run.  most: statements that may fail.
    """

    by: type[BaseException]
    one: type[BaseException]
    goes_on: Callable[[], bool]
    most: int


class SkippedError(Exception):
    """pytest would skip the file, or let it fail, at this statement."""


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

    The statement that follows is executed: also in a function of the file that was called, if nobody uses its value or
    nothing failed. A function that refuses to give a value has a reason.

    code_from: the code of the same file from a statement on.  goes_past: may an error be passed over?  imported: is it
    another file than the traced one? Then errors about its unknown names say its name, and its functions end.
    """
    first: BaseException | None = None
    calls, undecorated = [_Call(path, None, names)], frozenset[int]()
    left, over = (MAX_FAILURES, {}) if cuts is None else (cuts.most, {OVER: cuts.by})
    while left:
        try:
            start = _return_value(calls, _run_code(code, calls[-1], names, over))
        except RAISED as error:  # the border to the user's code
            left -= 1
            absent = replace_absent_data(error)
            lacking = find_placeholder_error(error)
            follows = isinstance(lacking, MissingPackageError) and not lacking.name  # a statement before it has ended
            first = first or (None if absent or follows else error)
            unknown = cuts is not None and isinstance(error, ValueDependentError | MissingPackageError)
            passed = absent or goes_past(error)
            if not passed or not _follow_calls(path, error, calls, inside=not imported, blameless=unknown):
                if first is None or first is error:
                    raise
                raise first from None
            found = _find_failed_decorators(path, error) - undecorated
            undecorated |= found
            if found:
                error.add_note("The function or class is shown without this decorator, or this default.")
            if found or absent:
                start = Start(*start_of(calls[-1].ended))
            else:
                start = _pass_statement(path, calls, error, imported=imported)
        except BaseException as cut:
            left -= 1
            if cuts is None or type(cut) not in (cuts.by, cuts.one) or not cuts.goes_on():
                raise
            if not _follow_calls(path, cut, calls, blameless=True, loop=type(cut) is cuts.by):
                raise
            start = _pass_statement(path, calls, cut, cut=True)
        if start is None or (len(calls) == 1 and not list_statements_from(calls[0].body, start)):
            return first
        code = code_from(_locate_rest(start, calls[-1], undecorated))
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


def _run_code(code: CodeType, call: _Call, names: Namespace, over: Namespace) -> Any:
    """Execute the code of the module, which may await if it is a notebook's, or the rest of a function's."""
    names.update(over)
    try:
        if call.function is not None:
            return FunctionType(_find_code(code, call.function), names)(**call.names)
        return asyncio.run(eval(code, names)) if code.co_flags & inspect.CO_COROUTINE else exec(code, names)
    except BaseException as error:
        outcomes = sys.modules.get("_pytest.outcomes")
        if outcomes is None or not isinstance(error, outcomes.OutcomeException):
            raise
        # pytest's own are no Exceptions, and would pass the borders to the user's code.
        raise SkippedError(str(error)).with_traceback(error.__traceback__) from None
    finally:
        for name in (GIVEN, ROUND, *over):
            names.pop(name, None)


def _find_code(code: CodeType, function: ast.FunctionDef) -> CodeType:
    """The code of a function without its decorators, inside that of its module."""
    wanted = function.name, function.lineno
    return next(each for each in iterate_code(code) if (each.co_name, each.co_firstlineno) == wanted)


def _follow_calls(
    path: str,
    error: BaseException,
    calls: list[_Call],
    *,
    inside: bool = True,
    blameless: bool = False,
    loop: bool = False,
) -> bool:
    """Add the calls in which the next statement may follow; note in each the statement that ended.

    inside: may it follow in a function?  blameless: has nothing failed but our knowledge of values?  loop: does the
    loop around end?  False if the error came from outside of the code that was executed last.
    """
    name = "<module>" if calls[-1].function is None else calls[-1].function.name
    frames = [
        (trace.tb_frame, resolve_mark((trace.tb_frame.f_code, trace.tb_lasti)))
        for trace in iterate_traceback(error)
        if trace.tb_frame.f_code.co_filename == path
    ]
    names = [frame.f_code.co_name for frame, _ in frames]
    if name not in names:
        return False
    frames = frames[names.index(name) :]
    if calls[-1].function is not None:
        calls[-1].names = dict(frames[0][0].f_locals)
    for (frame, at), inner in zip_longest(frames, frames[1:]):
        call = calls[-1]
        around = _list_statements_at(call.body, (at.line, max(at.column, 0)))
        if not around:
            return False
        loops = [each for each in around if isinstance(each, LOOPS)]
        left = start_of(call.ended)  # the loops and contexts around it are executed one statement after the other
        kinds = (*LOOPS, ast.With)
        whole = (each for each in around if isinstance(each, kinds) and not start_of(each) < left <= end_of(each))
        call.ended, call.line = around[-1] if blameless else next(whole, around[-1]), at.line
        function = _find_function(path, inner[0].f_code) if inside and inner is not None else None
        if function is None or not _continues_inside(call.ended, function.name, blameless=blameless):
            call.ended = loops[-1] if loop and loops else call.ended
            everything = [trace.tb_frame for trace in iterate_traceback(error)]
            call.deeper = everything[everything.index(frame) + 1 :]
            break
        calls.append(_Call(path, function, dict(inner[0].f_locals)))
    return True


def _list_statements_at(body: Sequence[ast.stmt], at: tuple[int, int]) -> list[ast.stmt]:
    """The statements around a line and column, outermost first, as far as the next one inside them may follow."""
    index = bisect.bisect_right(list(map(start_of, body)), at) - 1
    if index < 0:
        return []
    for block in list_blocks(body[index]):
        if block and start_of(block[0]) <= at <= end_of(block[-1]):
            return [body[index], *_list_statements_at(block, at)]
    return [body[index]]


def _find_function(path: str, code: CodeType) -> ast.FunctionDef | None:
    """The function of a file with some code, if its rest can be executed: without variables of another function."""
    if code.co_freevars or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return None
    functions = (each for each in list_nodes(parse_file(path)) if isinstance(each, ast.FunctionDef))
    at = code.co_name, code.co_firstlineno
    return next((each for each in functions if (each.name, start_of(each)[0]) == at), None)


def _continues_inside(statement: ast.stmt, function: str, *, blameless: bool) -> bool:
    """Does the rest of a function that a statement has called follow? Its value must not be used if it failed."""
    called = {getattr(each, "id", "") or getattr(each, "attr", "") for each in walk_tree(statement)}
    if isinstance(statement, ast.Expr):
        return function in called and function != "forward"
    call = _get_given_call(statement)
    return blameless and call is not None and function in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))


def _get_given_call(statement: ast.stmt) -> ast.Call | None:
    """The call whose value a statement binds or returns as it is."""
    match statement:
        case ast.Assign(value=ast.Call() as call) | ast.AnnAssign(value=ast.Call() as call):
            return call
        case ast.Return(value=ast.Call() as call):
            return call
        case _:
            return None


def _return_value(calls: list[_Call], value: Any) -> Start | None:
    """Leave the innermost call. The statement that comes next uses its value, or follows; None after the module."""
    calls.pop()
    if not calls:
        return None
    statement = calls[-1].ended
    call = _get_given_call(statement)
    if call is None:
        return _place_after(statement)
    calls[-1].names[GIVEN] = value
    return Start(*start_of(statement), call=(*start_of(call), *end_of(call)))


def _place_after(statement: ast.stmt) -> Start:
    return Start(*start_of(statement), end_of(statement))


def _pass_statement(
    path: str, calls: list[_Call], error: BaseException, *, imported: bool = False, cut: bool = False
) -> Start | None:
    """Leave what a statement would have bound or changed unknown; the place after it."""
    where = f"line {calls[-1].line} of {Path(path).name}" if imported else f"line {calls[-1].line}"
    said = f"raised {type(error).__name__}: {error}".partition("\n")[0].strip().removesuffix(":")
    reason = f"{where} {'was cut short, so that nothing is trained' if cut else said}"
    if isinstance(error, MissingPackageError):
        reason = error.reason
    absent = Absent("", lambda thing: None, lambda file: file == path, reason)
    functions = {each.name: each for each in parse_file(path).body if isinstance(each, ast.FunctionDef)}
    last, everywhere = calls[-1], {id(each.names): each.names for each in calls}.values()
    found = _find_changed_names(last.ended, functions)
    # Where nothing follows, nothing could be misled.
    goes_on = not (cut and _is_last(calls))
    owners = [_find_owner(each, last.names if each[0] in last.names else calls[0].names) for each in found]
    changed = {id(owner.get(each[-1])) for owner, each in zip(owners, found, strict=True)}
    for names in (*everywhere, *owners) if goes_on else ():
        filled = [name for name, value in names.items() if id(value) in changed and isinstance(value, _GROWING)]
        names.update({name: Placeholder(absent, name, made=True) for name in filled})
    for names in everywhere if not cut else ():
        half_made = [name for name, value in names.items() if any(_is_method_of(value, each) for each in last.deeper)]
        names.update({name: Placeholder(absent, name, made=True) for name in half_made})
    kept = set[str]() if not cut else _find_kept_names(last) if goes_on else set(last.names)
    for name in set(_list_unsure_names(last)) - kept:
        last.names[name] = Placeholder(absent, name, made=True)
    if isinstance(last.ended, ast.Return):
        return _return_value(calls, Placeholder(absent, getattr(last.function, "name", ""), made=True))
    return _place_after(last.ended)


def _find_owner(path: tuple[str, ...], names: Namespace) -> Namespace:
    """Where the last name of a path such as `("self", "losses")` is bound: attributes of an object, or `names`; nowhere
    if a library has it, such as `os.environ`."""
    for name in path[:-1]:
        holder = names.get(name)
        names = {} if isinstance(holder, ModuleType) and _is_of_library(holder) else getattr(holder, "__dict__", {})
    return names


def _is_of_library(module: ModuleType) -> bool:
    """Is a module one of Python's own or of an installed package?"""
    standard = module.__name__.partition(".")[0] in sys.stdlib_module_names and module.__name__ != "__main__"
    return standard or is_library(getattr(module, "__file__", None) or "")


def _is_method_of(value: Any, frame: FrameType) -> bool:
    """Is a frame a call of a method of an object that fills itself? A model only computes."""
    return (
        get_first_argument(frame) is value
        and hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | type | ModuleType)
    )


def _locate_rest(start: Start, call: _Call, undecorated: frozenset[int]) -> Start:
    """The place at which code of a call begins."""
    if call.function is None:
        return start._replace(undecorated=undecorated)
    names = tuple(sorted(call.names))
    return start._replace(undecorated=undecorated, function=start_of(call.function)[0], names=names)


def _is_last(calls: Sequence[_Call]) -> bool:
    """Does no statement follow in the module and the functions?"""
    return not any(list_statements_from(call.body, _place_after(call.ended)) for call in calls)


def _find_failed_decorators(path: str, error: BaseException) -> frozenset[int]:
    """The lines of the decorator that raised an error, and of the others by the same function; else the line of the
    default of a parameter that did; empty if none did."""
    places = (resolve_mark((trace.tb_frame.f_code, trace.tb_lasti)) for trace in iterate_traceback(error))
    lines = {place.line for place in places if place.file == path}
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


def _list_unsure_names(call: _Call) -> list[str]:
    """The names that an ended statement may not have bound as it should."""
    again = isinstance(call.ended, LOOPS)
    return [
        name for name, line in _iterate_bound_names(call.ended) if again or line >= call.line or name not in call.names
    ]


def _find_kept_names(call: _Call) -> set[str]:
    """The names that have the values which they would have at the end of a statement that was cut, but for numbers.

    A tensor or a model that the statement has bound is one, unless it is computed from itself, or from what a loop goes
    over, whose last batch may be a smaller one; a count, a text or a list is none.
    """
    passing = _find_passing_names(call.ended)
    states = (str, bytes, int, float, complex, tuple, *_GROWING)
    return {name for name, value in call.names.items() if name not in passing and not isinstance(value, states)}


def _find_passing_names(statement: ast.stmt) -> set[str]:
    """The names of a statement whose values may change with each round of a loop, and those computed from them."""
    nodes = walk_tree(statement)
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


def _find_changed_names(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> set[tuple[str, ...]]:
    """The names whose lists or dictionaries a statement may change, itself or in functions of its file that it calls;
    an attribute is a path of names.

    functions: those that have not been looked at yet, by their names.
    """
    found = set[tuple[str, ...]]()
    for each in walk_tree(node):
        match each:
            case ast.Call(func=ast.Attribute(value=changed, attr=method)) if method not in _READERS:
                found.add(_read_path(changed))
            case ast.Subscript(value=changed, ctx=ast.Store() | ast.Del()) | ast.AugAssign(target=changed):
                found.add(_read_path(changed))
            case ast.Call(func=ast.Name(id=name), args=given) if name in functions:
                others = {other: function for other, function in functions.items() if other != name}
                inside = _find_changed_names(ast.Module(functions[name].body, []), others)
                pairs = zip(functions[name].args.args, given, strict=False)
                paths = {taken.arg: _read_path(arg) for taken, arg in pairs}
                found |= inside | {(*paths[path[0]], *path[1:]) for path in inside if paths.get(path[0])}
    return found - {()}


def _read_path(node: ast.expr) -> tuple[str, ...]:
    """The names of `a.b.c`; empty for another expression."""
    names = list[str]()
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def _list_names(node: ast.AST, kind: type[ast.expr_context] = ast.Store) -> set[str]:
    """The names that are bound or, with `ast.Load`, read in a node. An augmented assignment does both."""
    names = {each.id for each in walk_tree(node) if isinstance(each, ast.Name) and isinstance(each.ctx, kind)}
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
