"""Imports that fail in the workspace's own files: placeholders take the place of what is not installed.

Python calls `builtins.__import__` for every import statement, with the importing module's globals; what it returns is
bound and nothing is put into `sys.modules`, so libraries that look there, or ask `find_spec`, see the truth. Whoever
is prepared for a missing package (`try: import x`, `contextlib.suppress(ImportError)`) gets the real error.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.machinery import PathFinder
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from mase_server.tracing.loading.homes import Homes
from mase_server.tracing.loading.importer import owns
from mase_server.tracing.loading.placeholders import Absent, MissingPackageError, Placeholder
from mase_server.tracing.loading.standins import stand_in
from mase_server.tracing.phases import phase
from mase_server.tracing.positions import Position, is_hidden, resolve

_PREPARED = {"ImportError", "ModuleNotFoundError"}
_PREPARED_FOR_ALL = _PREPARED | {"Exception", "BaseException", ""}


@dataclass(frozen=True, slots=True)
class MissingImport:
    """An import statement for which a placeholder stands.

    name: the module, as far as it could not be imported.  own: is it one of the workspace's own packages?
    at: the statement, then the statements and calls of the workspace that led to it.
    """

    name: str
    own: bool
    error: Exception
    at: tuple[Position, ...]


class MissingImports:
    """What could not be imported while `tolerated`, in order, each statement once."""

    def __init__(self, folder: str) -> None:
        self.found: dict[tuple[str, Position], MissingImport] = {}
        self._owns = functools.partial(owns, folder)
        self._homes = Homes(folder)

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Inside, an import statement of the workspace that fails gives a placeholder."""
        with patch.object(builtins, "__import__", self._importing(builtins.__import__)):
            yield

    def __iter__(self) -> Iterator[MissingImport]:
        return iter(self.found.values())

    def _importing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def importing(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            with self._timed(name, fromlist, level, sys._getframe(1)):
                try:
                    if not level:
                        self._avoid_namesakes(name.partition(".")[0], sys._getframe(1).f_code.co_filename)
                    found = original(name, globals, locals, fromlist or (), level)
                    if not level and self._is_only_a_folder(found):
                        del sys.modules[found.__name__]
                        raise ModuleNotFoundError(f"No module named {found.__name__!r}", name=found.__name__)
                except Exception as error:
                    frame, absolute = sys._getframe(1), _absolute(name, globals, level)
                    if not self._is_tolerable(error, absolute, frame):
                        raise
                    if not level and self._homes.add(absolute, frame.f_code.co_filename):
                        return importing(name, globals, locals, fromlist, level)
                    return self._instead(error, absolute, fromlist, frame, bool(level))
                return self._completed(found, fromlist, sys._getframe(1)) if fromlist else found

        return importing

    def _avoid_namesakes(self, top: str, wanted_by: str) -> None:
        """Load a package that something else in the workspace hides; ModuleNotFoundError where there is none."""
        if top in sys.modules or top in sys.stdlib_module_names or not self._owns(wanted_by):
            return
        namesakes = self._homes.namesakes(top, wanted_by)
        if not namesakes:
            return
        spec = PathFinder.find_spec(top, [each for each in sys.path if each not in namesakes])
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        sys.modules[top] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[top]
            raise

    def _timed(
        self, name: str, names: Sequence[str] | None, level: int, frame: FrameType
    ) -> AbstractContextManager[None]:
        """Tell how long an import takes that the workspace's own code asks for, unless it is there already."""
        known = getattr(sys.modules.get(name), "__dict__", None)
        there = level or (known is not None and all(each in known for each in names or ()))
        return nullcontext() if there or not self._owns(frame.f_code.co_filename) else phase("import", name)

    def _is_only_a_folder(self, module: Any) -> bool:
        """Is it a folder of the workspace without any code, such as `wandb` where runs were logged?"""
        paths = [] if getattr(module, "__file__", None) else list(getattr(module, "__path__", None) or ())
        return bool(paths) and all(self._owns(f"{path}{os.sep}") and not _has_code(path) for path in paths)

    def _completed(self, module: Any, names: Sequence[str], frame: FrameType) -> Any:
        """The module, with placeholders for names that it would have in another version."""
        if not self._owns(frame.f_code.co_filename):
            return module
        lacking = {name: error for name in names if (error := _lacks(module, name)) is not None}
        if not lacking or self._is_own(module.__name__) or any(_is_prepared(*each) for each in _importers(frame)):
            return module
        for name, error in lacking.items():
            absent = self._record(f"{module.__name__}.{name}", error, frame, own=False)
            module = _grafted(module, name, Placeholder(absent, absent.name))
        return module

    def _is_tolerable(self, error: Exception, name: str, frame: FrameType) -> bool:
        if isinstance(error, MissingPackageError) or not self._owns(frame.f_code.co_filename):
            return False
        if not _is_absence(error, name) and (self._is_own(name) or self._passed_through_own(error)):
            return False
        return not any(_is_prepared(*each) for each in _importers(frame))

    def _is_own(self, name: str) -> bool:
        """Is the top package one of the workspace?"""
        top = sys.modules.get(name.partition(".")[0])
        places = [getattr(top, "__file__", None), *(getattr(top, "__path__", None) or ())]
        return any(place is not None and self._owns(f"{place}") for place in places)

    def _passed_through_own(self, error: Exception) -> bool:
        """Did one of the person's own modules raise?"""
        frames = list(traceback.walk_tb(error.__traceback__))[1:]
        return any(self._owns(frame.f_code.co_filename) for frame, _ in frames)

    def _instead(
        self, error: Exception, name: str, fromlist: Sequence[str] | None, frame: FrameType, relative: bool
    ) -> Any:
        missing = (error.name if isinstance(error, ImportError) and _is_absence(error, name) else None) or name
        # A relative import that leads above the workspace names a folder there, which no package is named after.
        absent = self._record(missing, error, frame, relative or self._is_own(name))
        if fromlist:
            return Placeholder(absent, name)
        top, _, rest = name.partition(".")
        if missing == top:
            return Placeholder(absent, top)
        inner = rest.partition(".")[0]
        return _grafted(sys.modules[top], inner, Placeholder(absent, f"{top}.{inner}"))

    def _record(self, missing: str, error: Exception, frame: FrameType, own: bool) -> Absent:
        places = (each for each in _frames(frame) if self._owns(each.f_code.co_filename))
        at = tuple(resolve((each.f_code, each.f_lasti)) for each in places)
        found = MissingImport(missing, own, error.with_traceback(None), at)
        self.found.setdefault((missing, at[0]), found)
        if own:
            return Absent("", stand_in, self._owns, f"there is no {missing} in this workspace")
        return Absent(missing, stand_in, self._owns, f"{missing} cannot be imported in {sys.executable}")


@functools.cache
def _has_code(folder: str) -> bool:
    return any(name.endswith((".py", ".so", ".pyd")) for _, _, names in os.walk(folder) for name in names)


def _lacks(module: Any, name: str) -> Exception | None:
    """The error of `from module import name`, where it is neither there nor likely to be a slip of the pen."""
    if name == "*" or f"{module.__name__}.{name}" in sys.modules:
        return None
    try:
        getattr(module, name)
    except Exception as error:  # noqa: BLE001 - modules that import lazily raise what they please
        if isinstance(error, AttributeError):
            error = ImportError(f"cannot import name '{name}' from '{module.__name__}'", name=module.__name__)
        # A slip of the pen is a letter or two, in a long name too; nobody means a private name and writes a public one.
        cutoff = max(0.8, 1 - 2 / len(name))
        meant = [each for each in dir(module) if name.startswith("_") or not each.startswith("_")]
        return None if difflib.get_close_matches(name, meant, n=1, cutoff=cutoff) else error
    return None


def _grafted(module: ModuleType, name: str, value: Any) -> ModuleType:
    """The real module with one name more, which nobody else sees."""
    graft = ModuleType(module.__name__, module.__doc__)
    graft.__dict__.update({"__getattr__": functools.partial(getattr, module), name: value})
    return graft


def _absolute(name: str, namespace: Mapping[str, Any] | None, level: int) -> str:
    if not level:
        return name
    package = (namespace or {}).get("__package__") or ""
    try:
        return importlib.util.resolve_name("." * level + name, package)
    except ImportError:
        return name


def _is_absence(error: Exception, name: str) -> bool:
    """Is it the module itself, or a package around it, that is not there?"""
    return isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _importers(frame: FrameType) -> Iterator[tuple[Position, bool]]:
    """Where the code outside stands, from the import statement outwards; and does it import by itself?"""
    imports = True
    for each in _frames(frame):
        name = each.f_code.co_filename
        if each.f_globals.get("__name__", "").startswith("mase_server.inputs"):
            return
        if name.startswith("<frozen importlib") or name == importlib.__file__:
            imports = True
        elif not is_hidden(each.f_code):
            yield resolve((each.f_code, each.f_lasti)), imports
            imports = False


@functools.cache
def _is_prepared(at: Position, imports: bool) -> bool:
    """Does the code around a place catch what a missing package raises?"""
    enough = _PREPARED_FOR_ALL if imports else _PREPARED
    return any(first <= at.line <= last and names & enough for first, last, names in _guards(at.file))


@functools.cache
def _guards(file: str) -> tuple[tuple[int, int, frozenset[str]], ...]:
    """Lines inside of `try` and `suppress` in a file, with the names of what they catch ("" for everything)."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(guard for node in ast.walk(tree) for guard in _guard(node))


def _guard(node: ast.AST) -> Iterator[tuple[int, int, frozenset[str]]]:
    match node:
        case ast.Try(body=body, handlers=handlers):
            caught = (handler.type or ast.Name("") for handler in handlers)
            yield _lines(body, frozenset(name for each in caught for name in _names(each)))
        case ast.With(body=body, items=items):
            for item in items:
                match item.context_expr:
                    case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
                        yield _lines(body, frozenset(name for each in args for name in _names(each)))


def _lines(body: Sequence[ast.stmt], names: frozenset[str]) -> tuple[int, int, frozenset[str]]:
    return body[0].lineno, body[-1].end_lineno or body[-1].lineno, names


def _names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Tuple(elts=elements):
            yield from (name for each in elements for name in _names(each))
        case ast.Attribute(attr=name) | ast.Name(id=name):
            yield name
