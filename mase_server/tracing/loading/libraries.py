"""Making library files report that were imported plainly long ago (a transformers modeling file in the warm parent).

Their functions exist already, in classes, behind decorators, in closures; each gets the instrumented version of its
own code in place, so that nothing has to be imported again and no object changes its identity.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType, MethodType
from typing import Any

from mase_server.tracing.loading.codecache import load_code
from mase_server.tracing.loading.importer import Reporter
from mase_server.tracing.loading.instrument import REPORTER, provide_default

_Identity = tuple[str, int, bytes, bytes]


def reinstrument(paths: Sequence[str], reporter: Reporter, cache: str | None = None) -> None:
    """Exchange the code of every live function that comes from one of these files for code that reports.

    A function whose code is not what the file on disk compiles to (the file changed since) is left as it is.
    Raises as `load_code` for a file that cannot be read or compiled.
    """
    provide_default()
    functions = defaultdict(list)
    wanted = {os.path.realpath(path): path for path in paths}
    for function in _functions(set(wanted)):
        functions[wanted[os.path.realpath(function.__code__.co_filename)]].append(function)
    for path, found in functions.items():
        _exchange(path, found, reporter, cache)


def _exchange(path: str, functions: Iterable[FunctionType], reporter: Reporter, cache: str | None) -> None:
    plain = SourceFileLoader("_", path).get_code("_")
    instrumented = load_code(path, cache)
    if not isinstance(plain, CodeType):
        return
    versions = dict(_pairs(plain, instrumented.code))
    report = reporter(path, instrumented.sites)
    for function in functions:
        new = versions.get(_identity(function.__code__))
        if new is not None and new.co_freevars == function.__code__.co_freevars:
            function.__globals__[REPORTER] = report
            function.__code__ = new.replace(co_filename=function.__code__.co_filename)


def _identity(code: CodeType) -> _Identity:
    # The line table holds columns too, so two lambdas on one line differ.
    return code.co_qualname, code.co_firstlineno, code.co_code, code.co_linetable


def _pairs(plain: CodeType, instrumented: CodeType) -> Iterator[tuple[_Identity, CodeType]]:
    """Each function's plain code with its instrumented code: both compilers meet them in the same order."""
    ours, theirs = _children(instrumented), _children(plain)
    for key, codes in theirs.items():
        if len(codes) != len(ours.get(key, ())):
            continue
        for before, after in zip(codes, ours[key], strict=True):
            yield _identity(before), after
            yield from _pairs(before, after)


def _children(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    children = defaultdict(list)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            children[constant.co_name, constant.co_firstlineno].append(constant)
    return children


def file_of(module: Any) -> str | None:
    """A loaded module's file; does not ask a lazy module, which would import itself to answer."""
    found = getattr(module, "__dict__", {}).get("__file__")
    return found if isinstance(found, str) else None


def _functions(paths: set[str]) -> Iterator[FunctionType]:
    """Every live function from these files: what the collector knows, and what their modules reach.

    Both are needed: objects frozen before a fork are hidden from `gc.get_objects`, and a function kept only in some
    foreign registry is in no module.
    """
    real = functools.cache(os.path.realpath)
    seen: set[int] = set()
    modules = [m for m in list(sys.modules.values()) if real(file_of(m) or "") in paths]
    for thing in (*gc.get_objects(), *_reachable([vars(module) for module in modules], {m.__name__ for m in modules})):
        if type(thing) is FunctionType and id(thing) not in seen and real(thing.__code__.co_filename) in paths:
            seen.add(id(thing))
            yield thing


def _reachable(roots: list[Any], names: set[str]) -> Iterator[FunctionType]:
    pending, seen = list(roots), set()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if type(thing) is FunctionType:
            yield thing
        pending += _inside(thing, names)


def _inside(thing: Any, names: set[str]) -> Iterable[Any]:
    match thing:
        case FunctionType():
            cells = (cell for cell in thing.__closure__ or ())
            return [*vars(thing).values(), *(cell.cell_contents for cell in cells if _filled(cell))]
        case type():
            return list(vars(thing).values()) if thing.__module__ in names else ()
        case property():
            return thing.fget, thing.fset, thing.fdel
        case staticmethod() | classmethod() | MethodType():
            return (thing.__func__,)
        case functools.cached_property() | functools.partial():
            return (thing.func,)
        case dict() | list() | tuple() if len(thing) < 10_000:
            return list(thing.values()) if isinstance(thing, dict) else thing
    return ()


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
