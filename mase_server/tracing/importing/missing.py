"""Failed imports in the workspace's own files: placeholders replace packages that are not installed.

Python calls `builtins.__import__` for every import statement, with the importing module's globals; its result is
bound and nothing is put into `sys.modules`, so libraries that look there, or call `find_spec`, see the truth. Code
that expects a missing package (`try: import x`, `contextlib.suppress(ImportError)`) gets the real error.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import importlib
import importlib.util
import inspect
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, TypeGuard
from unittest.mock import patch

from torch import nn

from mase_server.tracing.importing.handlers import is_import_handled, is_plain_read, iterate_frames, walk_file
from mase_server.tracing.importing.importer import owns
from mase_server.tracing.importing.lookups import get_current_lookups, without_recording
from mase_server.tracing.importing.packages import required_for
from mase_server.tracing.importing.placeholders import Absent, MissingPackageError, Placeholder
from mase_server.tracing.importing.source import SKIPPED, parse_file
from mase_server.tracing.importing.standins import stand_in, stand_in_version
from mase_server.tracing.importing.statements import execute_module, plain_code_from
from mase_server.tracing.recording.positions import Position, report_phase, resolve_mark

#: Names that numpy had until releases 1.24 and 2.0 -> the ones that its notes say to use: of Python, or of numpy.
_REMOVED: dict[str, type | str] = {
    "int": int, "float": float, "bool": bool, "complex": complex, "object": object, "str": str, "unicode": str,
    "long": int, "float_": "float64", "complex_": "complex128", "string_": "bytes_", "unicode_": "str_", "NaN": "nan",
    **dict.fromkeys(("Inf", "Infinity", "PINF", "infty"), "inf"), "product": "prod", "cumproduct": "cumprod",
    "alltrue": "all", "sometrue": "any", "in1d": "isin", "trapz": "trapezoid", "row_stack": "vstack",
}  # fmt: skip


class ReplacedError(AttributeError):
    """Something of a package is missing, or not used while a file is traced; the text says how MASE goes on."""


#: Modules -> their functions that build extensions, and the module of these.
_BUILDING = {
    "torch.utils": frozenset({"cpp_extension"}),
    "torch.utils.cpp_extension": frozenset({"load", "load_inline"}),
}

#: What is tolerated now, if anything is.
_tolerated: ContextVar[MissingImports | None] = ContextVar("tolerated", default=None)


@dataclass(frozen=True, slots=True)
class MissingImport:
    """An import statement whose module a placeholder replaces.

    name: the module, up to the part that could not be imported.  own: is it one of the workspace's own packages?
    at: the statement, then the statements and calls of the workspace that led to it.  absent: what stands for it.
    """

    name: str
    own: bool
    error: Exception
    at: tuple[Position, ...]
    absent: Absent


class MissingImports:
    """The modules that could not be imported while `tolerated`, in order, each statement once.

    path: the traced file.
    """

    def __init__(self, folder: str, path: str = "") -> None:
        self.path = path
        self.found: dict[tuple[str, Position], MissingImport] = {}
        self._owns = functools.cache(functools.partial(owns, folder))
        self._homes = Homes(folder)
        self._adapted: set[tuple[type, str]] = set()

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Inside, a failing import statement of the workspace gives a placeholder."""
        executing = patch.object(SourceFileLoader, "exec_module", self._wrap_execution(SourceFileLoader.exec_module))
        numpy = sys.modules.get("numpy")
        removed: AbstractContextManager[Any] = nullcontext()
        if numpy is not None and hasattr(numpy, "__getattr__"):
            removed = patch.object(numpy, "__getattr__", self._wrap_lookup(numpy, numpy.__getattr__))
        called = patch.object(importlib, "import_module", self._wrap_import_module(importlib.import_module))
        token = _tolerated.set(self)
        try:
            with (
                patch.object(builtins, "__import__", self._wrap_import(builtins.__import__)),
                called, executing, removed,
            ):  # fmt: skip
                yield
        finally:
            _tolerated.reset(token)

    def __iter__(self) -> Iterator[MissingImport]:
        return iter(self.found.values())

    def _wrap_execution(self, original: Callable[..., None]) -> Callable[..., None]:
        """Execute plainly loaded files of the workspace past statements that need a missing package."""

        def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
            if type(loader) is not SourceFileLoader or not self._owns(loader.path):
                original(loader, module)
            elif (code := loader.get_code(module.__name__)) is not None:
                execute_module(loader.path, code, vars(module), functools.partial(plain_code_from, loader.path))

        return exec_module

    def _wrap_import(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def importing(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            frame = sys._getframe(1)
            home = frame.f_code.co_filename
            if not self._owns(home) and getattr(sys.modules.get(name), "__file__", None):
                return original(name, globals, locals, fromlist or (), level)  # torch's own, in the midst of a call
            with self._time_import(name, fromlist, level, home):
                try:
                    if not level:
                        self._avoid_namesakes(name.partition(".")[0], home)
                    found = original(name, globals, locals, fromlist or (), level)
                    if not level and self._is_only_a_folder(found):
                        del sys.modules[found.__name__]
                        raise ModuleNotFoundError(f"No module named {found.__name__!r}", name=found.__name__)
                except Exception as error:
                    absolute = _resolve_module_name(name, globals, level)
                    if not self._is_tolerable(error, absolute, frame):
                        raise
                    if not level and self._homes.add(absolute, home):
                        return importing(name, globals, locals, fromlist, level)
                    own = bool(level) or self._is_own(absolute)
                    if fromlist and not own and (moved := _find_moved_module(error, absolute)) is not None:
                        told = ReplacedError(f"{error}, so a run ends here. MASE goes on with `{moved.__name__}`")
                        self._record_missing(absolute, told, frame, own=False)
                        return self._complete_module(moved, fromlist, frame)
                    return self._make_placeholder(error, absolute, fromlist, frame, bool(level))
                return self._complete_module(found, fromlist, frame) if fromlist else found

        return importing

    def _wrap_import_module(self, original: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
        """`importlib.import_module`, which finds the module that an import statement would find."""

        @functools.wraps(original)
        def import_module(name: str, package: str | None = None) -> ModuleType:
            if not name.startswith("."):
                self._avoid_namesakes(name.partition(".")[0], sys._getframe(1).f_code.co_filename)
            return original(name, package)

        return import_module

    def adapt(self, error: BaseException) -> bool:
        """Let code go on without what a library's class of another version lacks; return whether that was new.

        An attribute becomes a placeholder, and an argument that is None is left out.
        """
        lack = find_version_lack(error, self._owns)
        if lack is None or not isinstance(lack.owner, type) or (lack.owner, lack.name) in self._adapted:
            return False
        if lack.is_argument and (lack.value is not None or "__init__" not in vars(lack.owner)):
            return False
        self._adapted.add((lack.owner, lack.name))
        step = "MASE leaves it out, since it is None" if lack.is_argument else "Code that does not need it is analysed"
        told = ReplacedError(f"{lack}. {step}")
        missing = f"{lack.owner.__module__.partition('.')[0]}.{lack.owner.__name__}.{lack.name}"
        absent = replace(self._record_missing(missing, told, lack.frame, own=False), reason=str(lack))
        thing = Placeholder(absent, f"{lack.owner.__name__}.{lack.name}", made=True)
        changed: Any = _without_argument(vars(lack.owner)["__init__"], lack.name) if lack.is_argument else thing
        try:
            setattr(lack.owner, "__init__" if lack.is_argument else lack.name, changed)
        except TypeError:  # a class of C
            return False
        return True

    def _wrap_lookup(self, numpy: ModuleType, original: Callable[[str], Any]) -> Callable[[str], Any]:
        """Give a plain `np.int` of the workspace its successor, and note that the installed numpy has none."""

        def look_up(name: str) -> Any:
            frame = sys._getframe(1)
            if name not in _REMOVED or not self._owns(frame.f_code.co_filename) or not is_plain_read(frame, name):
                return original(name)
            instead = _REMOVED[name]
            called = f"np.{instead}" if isinstance(instead, str) else instead.__name__
            error = ReplacedError(
                f"numpy {numpy.__version__} in {sys.executable} has no `np.{name}`, so a run ends here. MASE goes on "
                f"with `{called}`, which numpy's notes give for it"
            )
            self._record_missing(f"numpy.{name}", error, frame, own=False)
            return getattr(numpy, instead) if isinstance(instead, str) else instead

        return look_up

    def _avoid_namesakes(self, top: str, wanted_by: str) -> None:
        """Load a package that another module of the workspace hides; ModuleNotFoundError if there is none."""
        if top in sys.modules or top in sys.stdlib_module_names or not self._owns(wanted_by):
            return
        namesakes = self._homes.find_namesakes(top, wanted_by)
        if not namesakes:
            return
        spec = PathFinder.find_spec(top, [each for each in sys.path if each not in namesakes])
        if spec is None:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        sys.modules[top] = module = importlib.util.module_from_spec(spec)
        try:
            if spec.loader is not None:  # a folder without an `__init__.py` has none
                spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[top]
            raise

    def _time_import(
        self, name: str, names: Sequence[str] | None, level: int, home: str
    ) -> AbstractContextManager[None]:
        """Report the duration of an import by the workspace's own code, unless the module is loaded already.

        Neither is a part of one of its own packages reported: that is code of the workspace which runs.
        """
        known = getattr(sys.modules.get(name), "__dict__", None)
        there = level or (known is not None and all(each in known for each in names or ())) or self._is_part(name)
        return nullcontext() if there or not self._owns(home) else report_phase("import", name)

    def _is_part(self, name: str) -> bool:
        """Is it a module in a package of the workspace that is loaded?"""
        package, dot, _ = name.partition(".")
        known = getattr(sys.modules.get(package), "__dict__", {}) if dot else {}
        return any(self._owns(f"{place}{os.sep}") for place in known.get("__path__", ()))

    def _is_only_a_folder(self, module: Any) -> bool:
        """Is it a folder of the workspace without any code, such as `wandb` with logged runs?"""
        paths = [] if getattr(module, "__file__", None) else list(getattr(module, "__path__", None) or ())
        return bool(paths) and all(self._owns(f"{path}{os.sep}") and not _has_code(path) for path in paths)

    def _complete_module(self, module: Any, names: Sequence[str], frame: FrameType) -> Any:
        """The module, with placeholders for names that another version of it has."""
        if not self._owns(frame.f_code.co_filename):
            return module
        for name in set(names) & _BUILDING.get(module.__name__, frozenset()):
            module = _graft_name(module, name, self._replace_builder(name, frame))
        # In the file itself a name that resembles another one is a misspelling; elsewhere it runs with another version.
        mine = frame.f_code.co_filename == self.path
        errors = {name: _find_lacking_error(module, name, spelt=mine) for name in names}
        lacking = {name: error for name, error in errors.items() if error is not None}
        if not lacking or self._is_own(module.__name__) or is_import_handled(frame):
            return module
        for name, error in lacking.items():
            known = _find_moved(module, name)
            if known is not None:
                error = ReplacedError(f"{error}, so a run ends here. MASE goes on with `{known.__module__}.{name}`")
            absent = self._record_missing(f"{module.__name__}.{name}", error, frame, own=False)
            known = absent.stand_in(absent.name) if known is None else known
            module = _graft_name(module, name, Placeholder(absent, absent.name) if known is None else known)
        return module

    def _replace_builder(self, name: str, frame: FrameType) -> Any:
        """The stand-in of a function that builds an extension, or of the module with these functions."""
        if name == "cpp_extension":
            module = importlib.import_module("torch.utils.cpp_extension")
            names = _BUILDING[module.__name__]
            return functools.reduce(
                lambda held, each: _graft_name(held, each, self._replace_builder(each, frame)), names, module
            )
        reason = "MASE builds no extension of C++ or CUDA while it traces"
        error = ReplacedError(
            f"{reason}: what `torch.utils.cpp_extension` would load is unknown. Code that does not need it is analysed"
        )
        absent = self._record_missing("torch.utils.cpp_extension", error, frame, own=False)
        return Placeholder(replace(absent, reason=reason), name, made=True)

    def _is_tolerable(self, error: Exception, name: str, frame: FrameType) -> bool:
        if isinstance(error, MissingPackageError) or not self._owns(frame.f_code.co_filename):
            return False
        if not _is_absence(error, name) and (self._is_own(name) or self._passed_through_own(error)):
            return False
        return not is_import_handled(frame)

    def _is_own(self, name: str) -> bool:
        """Is the top package one of the workspace?"""
        top = sys.modules.get(name.partition(".")[0])
        places = [getattr(top, "__file__", None), *(getattr(top, "__path__", None) or ())]
        return any(place is not None and self._owns(f"{place}") for place in places)

    def _passed_through_own(self, error: Exception) -> bool:
        """Did one of the person's own modules raise, or could it not be parsed?"""
        if isinstance(error, SyntaxError) and error.filename is not None and self._owns(error.filename):
            return True
        frames = list(traceback.walk_tb(error.__traceback__))[1:]
        return any(self._owns(frame.f_code.co_filename) for frame, _ in frames)

    def _make_placeholder(
        self, error: Exception, name: str, fromlist: Sequence[str] | None, frame: FrameType, relative: bool
    ) -> Any:
        missing = (error.name if isinstance(error, ModuleNotFoundError) and _is_absence(error, name) else None) or name
        # A relative import that leads above the workspace names a folder there, which is no package's name.
        absent = self._record_missing(missing, error, frame, relative or self._is_own(name))
        if fromlist:
            found = Placeholder(absent, name)
            if "*" in fromlist:
                vars(found)["__all__"] = _list_unexplained_names(frame)
            return found
        top, _, rest = name.partition(".")
        if missing == top or top not in sys.modules:  # a package that breaks while it is imported leaves nothing
            return Placeholder(absent, top)
        inner = rest.partition(".")[0]
        return _graft_name(sys.modules[top], inner, Placeholder(absent, f"{top}.{inner}"))

    def _record_missing(self, missing: str, error: Exception, frame: FrameType, own: bool) -> Absent:
        places = (each for each in iterate_frames(frame) if self._owns(each.f_code.co_filename))
        at = tuple(resolve_mark((each.f_code, each.f_lasti)) for each in places)
        own = own and not _is_misbuilt(error)  # it is there
        reason = (
            f"there is no {missing} in this workspace" if own else f"{missing} cannot be imported in {sys.executable}"
        )
        known = stand_in_version if own else stand_in
        absent = Absent("" if own else missing, known, self._owns, reason, [])
        found = MissingImport(missing, own, error.with_traceback(None), at, absent)
        return self.found.setdefault((missing, at[0]), found).absent


def adapt_to_version(error: BaseException) -> bool:
    """`MissingImports.adapt` of those that are tolerated now."""
    tolerated = _tolerated.get()
    return tolerated is not None and tolerated.adapt(error)


def _without_argument(init: Callable[..., None], name: str) -> Callable[..., None]:
    @functools.wraps(init)
    def construct(*args: Any, **kwargs: Any) -> None:
        if kwargs.get(name, ...) is None:
            del kwargs[name]
        init(*args, **kwargs)

    return construct


@dataclass(frozen=True, slots=True)
class VersionLack:
    """An attribute or an argument of which the code of a workspace expects that a package's class or function has it.

    owner: the class, function or module.  frame: what runs in the workspace.  value: that of the argument.
    """

    owner: Any
    name: str
    frame: FrameType
    is_argument: bool
    value: Any = None

    def __str__(self) -> str:
        top = _find_module_of(self.owner).partition(".")[0]
        version = getattr(sys.modules.get(top), "__version__", "")
        thing = getattr(self.owner, "__name__", top).rpartition(".")[2]
        lacks = f"`{thing}` takes no argument `{self.name}`" if self.is_argument else f"`{thing}` has no `{self.name}`"
        return f"{lacks} in {' '.join(filter(None, (top, str(version))))} of {sys.executable}"


#: Packages whose names are checked: a wrong one is a mistake.
_CHECKED = frozenset({*sys.stdlib_module_names, "__main__", "torch", "mase_server", ""})


def find_version_lack(error: BaseException, owns: Callable[[str], bool]) -> VersionLack | None:
    """The lack of a package, if its version is the probable cause of an error in the workspace, and no misspelling."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    while frames and frames[-1].f_code.co_name == "__getattr__":
        frames.pop()
    if not frames or not owns(frames[-1].f_code.co_filename):
        return None
    found: VersionLack | None = None
    match error:
        case AttributeError(name=str(name), obj=thing) if thing is not None:
            found = VersionLack(thing if isinstance(thing, type | ModuleType) else type(thing), name, frames[-1], False)
        case TypeError():
            found = _find_refused_argument(str(error), frames[-1])
    if found is None or _find_module_of(found.owner).partition(".")[0] in _CHECKED:
        return None
    home = getattr(sys.modules.get(_find_module_of(found.owner)), "__file__", None)
    if home is None or owns(home):
        return None
    try:
        offered = list(inspect.signature(found.owner).parameters) if found.is_argument else dir(found.owner)
    except (TypeError, ValueError):  # a function of C
        return None
    return None if _is_misspelt(found.name, [each for each in offered if not each.startswith("_")]) else found


def find_refusing_base(error: BaseException, owns: Callable[[str], bool]) -> str:
    """The package, with its version, that refuses a class of the workspace which extends one of its own, else "".

    Its code and the class do not fit each other: the class may have been written for another version.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1].f_code is nn.Module.__getattr__.__code__:
        frames.pop()  # it only says that an attribute is not there
    inner = list(itertools.takewhile(lambda frame: not owns(frame.f_code.co_filename), reversed(frames)))
    top = str(frames[-1].f_globals.get("__name__", "")).partition(".")[0] if inner else ""
    kinds = [type(frame.f_locals.get("self")) for frame in inner]
    for kind in kinds if top not in _CHECKED else ():
        homes = [getattr(sys.modules.get(base.__module__), "__file__", None) or "" for base in kind.__mro__]
        tops = [base.__module__.partition(".")[0] for base in kind.__mro__]
        if owns(homes[0]) and top in tops:
            version = getattr(sys.modules.get(top), "__version__", "")
            return " ".join(filter(None, (top, str(version))))
    return ""


def _find_module_of(owner: Any) -> str:
    return str(owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", ""))


def _find_refused_argument(message: str, frame: FrameType) -> VersionLack | None:
    """The argument that a call in a frame gives, and that what it calls does not take."""
    refused = re.search(r"(\w*)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", message)
    at = resolve_mark((frame.f_code, frame.f_lasti))
    calls = (node for node in walk_file(at.file) if isinstance(node, ast.Call) and node.lineno <= at.line)
    for call in calls if refused is not None else ():
        thing, name = refused.groups() if refused is not None else ("", "")
        given = next((each.value for each in call.keywords if each.arg == name), None)
        owner = _look_up(ast.unparse(call.func), frame)
        if ast.unparse(call.func) == "super().__init__":
            bases = type(frame.f_locals.get("self")).__mro__
            owner = next((base for base in bases if base.__name__ == thing), owner)
        if given is not None and at.line <= (call.end_lineno or 0) and callable(owner):
            value = given.value if isinstance(given, ast.Constant) else _look_up(ast.unparse(given), frame)
            return VersionLack(owner, name, frame, True, value)
    return None


def _look_up(dotted: str, frame: FrameType) -> Any:
    """The value of a name or of a name's attribute in a frame; `...` if that is unknown."""
    first, *names = dotted.split(".")
    found = frame.f_locals.get(first, frame.f_globals.get(first, ...))
    for name in names:
        found = inspect.getattr_static(found, name, ...)
    return found


def _is_misspelt(name: str, offered: Iterable[str]) -> bool:
    """Is one of these names probably meant? A misspelling changes a letter or two, in a long name too."""
    return bool(difflib.get_close_matches(name, list(offered), n=1, cutoff=max(0.8, 1 - 2 / len(name))))


def _list_unexplained_names(frame: FrameType) -> list[str]:
    """The names that a module reads and neither binds nor has: those that `from missing import *` has to give."""
    try:
        tree = parse_file(frame.f_code.co_filename)
    except (OSError, SyntaxError, ValueError):
        return []
    read = dict.fromkeys(each.id for each in ast.walk(tree) if isinstance(each, ast.Name))
    known = {*_list_bound_names(tree), *dir(builtins), *frame.f_globals}
    return [name for name in read if name not in known]


def _hides_names(tree: ast.AST) -> bool:
    """May a module have names that its text does not show?"""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]) | ast.Call(func=ast.Name(id="globals" | "exec")):
                return True
            case ast.FunctionDef(name="__getattr__"):
                return True
    return False


def _list_bound_names(tree: ast.AST) -> set[str]:
    """The names that a module binds, at any depth."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {each.asname or each.name.partition(".")[0] for each in aliases}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
    return names


@functools.cache
def _has_code(folder: str) -> bool:
    return any(name.endswith((".py", ".so", ".pyd")) for _, _, names in os.walk(folder) for name in names)


def _find_lacking_error(module: Any, name: str, *, spelt: bool) -> Exception | None:
    """The error of `from module import name` if the name is missing; with `spelt`, None for a probable misspelling."""
    if name == "*" or f"{module.__name__}.{name}" in sys.modules:
        return None
    try:
        getattr(module, name)
    except Exception as error:  # noqa: BLE001 - modules that import lazily raise what they please
        if isinstance(error, AttributeError):
            error = ImportError(f"cannot import name '{name}' from '{module.__name__}'", name=module.__name__)
        # Nobody means a private name and writes a public one.
        meant = [each for each in dir(module) if name.startswith("_") or not each.startswith("_")]
        return None if spelt and _is_misspelt(name, meant) else error
    return None


def _find_moved(module: Any, name: str) -> Any:
    """The class or function of this name in another module of the package, if it is one alone and loaded."""
    top = module.__name__.partition(".")[0]
    found: dict[int, Any] = {}
    for key, other in list(sys.modules.items()):
        held = vars(other).get(name) if key.startswith(f"{top}.") and isinstance(other, ModuleType) else None
        own = isinstance(held, type | FunctionType) and held.__name__ == name
        if own and held.__module__.partition(".")[0] == top:
            found[id(held)] = held
    return next(iter(found.values())) if len(found) == 1 else None


def _find_moved_module(error: Exception, name: str) -> ModuleType | None:
    """The module of an installed package that is called like a missing one of it, if there is one alone and it loads:
    `transformers.models.bert.modeling_bert` for `transformers.modeling_bert`."""
    top, _, rest = name.partition(".")
    if not rest or not isinstance(error, ModuleNotFoundError) or error.name == top:
        return None
    places = _list_module_places(top, rest.rpartition(".")[2])
    if len(places) != 1:
        return None
    try:
        return importlib.import_module(f"{top}.{places[0]}")
    except Exception:  # noqa: BLE001 - what a package raises while it is imported
        return None


@functools.cache
def _list_module_places(top: str, last: str) -> list[str]:
    """The modules of a loaded package with this last name, as paths within it with dots."""
    folders = [Path(each) for each in getattr(sys.modules.get(top), "__path__", ())]
    files = ((file, folder) for folder in folders for file in folder.rglob(f"{last}.py"))
    return [".".join(file.relative_to(folder).with_suffix("").parts) for file, folder in files]


def _graft_name(module: ModuleType, name: str, value: Any) -> ModuleType:
    """The real module with one more name, visible only here."""
    graft = ModuleType(module.__name__, module.__doc__)
    graft.__dict__.update({"__getattr__": functools.partial(getattr, module), name: value})
    return graft


def _resolve_module_name(name: str, namespace: Mapping[str, Any] | None, level: int) -> str:
    if not level:
        return name
    package = (namespace or {}).get("__package__") or ""
    try:
        return importlib.util.resolve_name("." * level + name, package)
    except ImportError:
        return name


def _is_absence(error: Exception, name: str) -> bool:
    """Is the module itself, or a package around it, missing, or built for something else?"""
    if isinstance(error, ModuleNotFoundError):
        return f"{name}.".startswith(f"{error.name}.")
    return _is_misbuilt(error) and name.rpartition(".")[2] in (error.name, Path(f"{error.path}").parent.name)


def _is_misbuilt(error: Exception) -> TypeGuard[ImportError]:
    """Can a compiled module not be loaded, since it was built for another Python, PyTorch or system?"""
    return type(error) is ImportError and f"{error.path}".endswith((*EXTENSION_SUFFIXES, ".so", ".pyd"))


# Finding the workspace's folder of a module that the user's own `sys.path` contains, and ours does not.
#
# A third-party package may have the name of something in the workspace (`ops/triton` in a package that uses Triton), so
# the search reads a module before it takes it for the imported one.

#: The most folders that are searched.
MAX_FOLDERS = 3000
#: The most folders that are searched again when something appears in them.
MAX_FOLLOWED = 32


class Homes:
    """The folders of a workspace, read once, when the first module is missing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._folders: dict[str, frozenset[str]] | None = None
        self._trees: dict[str, ast.Module | None] = {}
        self._added: set[str] = set()

    def add(self, name: str, wanted_by: str) -> bool:
        """Append the folder from which `name` can be imported to `sys.path`; return whether there was a new one.

        Of several, the one nearest to the importing file is used.
        """
        if self._folders is None:
            with without_recording():
                self._folders = dict(_iterate_folders(self._folder))
        parts = name.split(".")
        if (recording := get_current_lookups()) is not None:
            for home in itertools.islice(self._folders, MAX_FOLLOWED):
                recording.note_modules(home, parts[:1])
        homes = [home for home, inside in self._folders.items() if parts[0] in inside and home not in sys.path]
        homes = [home for home in homes if _has_module(home, parts) and self._is_meant(home, parts[0], wanted_by)]
        # `from hydra import initialize` in a `hydra.py` means no other file of the workspace, and surely not itself.
        homes = [home for home in homes if not _is_within(wanted_by, home, parts[0])]
        if not homes:
            return False
        home = max(homes, key=lambda home: (len(os.path.commonpath([home, wanted_by])), -len(home)))
        self._added.add(home)
        sys.path.append(home)
        return True

    def find_namesakes(self, top: str, wanted_by: str) -> list[str]:
        """The folders of `sys.path` with something else under the name of the module `top` that a file imports.

        Only folders that Python itself may not have on its path, such as one inside a package, and folders without
        an `__init__.py` are doubted.
        """
        found: list[str] = []
        while (spec := PathFinder.find_spec(top, [each for each in sys.path if each not in found])) is not None:
            doubtful = [home for home in self._find_doubtful_homes(spec) if not self._is_meant(home, top, wanted_by)]
            if spec.origin == wanted_by:  # no file imports itself
                doubtful = [str(Path(wanted_by).parent)]
            if not doubtful:
                break
            found += doubtful
        return found

    def _find_doubtful_homes(self, spec: ModuleSpec) -> list[str]:
        """The folders of `sys.path` in which a module was found, if it may be another one of the same name."""
        is_plain = not spec.has_location
        places = list(spec.submodule_search_locations or ()) or [str(spec.origin)]
        homes = [str(Path(place).parent) for place in places if owns(self._folder, place)]
        return [home for home in homes if is_plain or home in self._added or os.path.isfile(f"{home}/__init__.py")]  # noqa: PTH113

    def _is_meant(self, home: str, top: str, wanted_by: str) -> bool:
        """Is the module `top` in a folder the one that a file imports, and not a package of the same name?"""
        wanted = _find_wanted_names(self._parse_file(wanted_by), top)
        offered = self._read_offered_names(os.path.join(home, top))  # noqa: PTH118
        required = required_for(top, self._folder) is not None
        there = {
            name
            for name in wanted
            if offered is None or name in offered or (not required and _is_misspelling(name, offered))
        }
        # Imports do not start inside a package, unless it is a folder of scripts too.
        if required or os.path.isfile(f"{home}/__init__.py"):  # noqa: PTH113
            return 2 * len(there) > len(wanted) if wanted else not required and Path(wanted_by).is_relative_to(home)
        return bool(there) or not wanted

    def _read_offered_names(self, module: str) -> frozenset[str] | None:
        """The names of a module, by its path without `.py`; None if its text does not show them."""
        is_package = Path(module).is_dir()
        with without_recording():
            inside = [each.name.removesuffix(".py") for each in Path(module).iterdir()] if is_package else []
        file = f"{module}/__init__.py" if is_package else f"{module}.py"
        tree = self._parse_file(file)
        if tree is None:
            return None if Path(file).is_file() else frozenset(inside)
        return None if _hides_names(tree) else frozenset({*inside, *_list_bound_names(tree)})

    def _parse_file(self, file: str) -> ast.Module | None:
        if file not in self._trees:
            try:
                self._trees[file] = parse_file(file)
            except (OSError, SyntaxError, ValueError):
                self._trees[file] = None
        return self._trees[file]


def _find_wanted_names(tree: ast.Module | None, top: str) -> set[str]:
    """The names that a file imports from a module, submodules among them."""
    found, bound = set[str](), {top}
    nodes = list(ast.walk(tree)) if tree is not None else []
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(name), names=aliases, level=0) if name == top:
                found |= {each.name for each in aliases}
            case ast.ImportFrom(module=str(name), level=0) if name.startswith(f"{top}."):
                found.add(name.split(".")[1])
            case ast.Import(names=aliases):
                found |= {each.name.split(".")[1] for each in aliases if each.name.startswith(f"{top}.")}
                bound |= {each.asname for each in aliases if each.name == top and each.asname}
    imported = any(
        isinstance(node, ast.Import) and any(_is_of(each.name, top) for each in node.names) for node in nodes
    )
    for node in nodes if imported else ():
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in bound:
                found.add(attribute)
    return found - {"*"}


def _is_of(name: str, top: str) -> bool:
    return f"{name}.".startswith(f"{top}.")


def _is_misspelling(name: str, offered: frozenset[str]) -> bool:
    """Is it probably a misspelling?"""
    return bool(difflib.get_close_matches(name, offered, n=1, cutoff=0.8))


def _iterate_folders(top: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The workspace's folders with the names of possible modules in each, the least nested first.

    Hidden and installed ones are skipped.
    """
    waiting = [top]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        here = waiting.pop(0)
        try:
            with os.scandir(here) as entries:
                found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        inner = sorted(name for name, folder in found.items() if folder)
        yield here, frozenset([*inner, *(name[:-3] for name in found if name.endswith(".py"))])
        waiting += [str(Path(here, name)) for name in inner if name not in SKIPPED and not name.startswith(".")]


def _is_within(path: str, home: str, top: str) -> bool:
    """Is a file the module `top` of a folder?"""
    return path == os.path.join(home, f"{top}.py")  # noqa: PTH118 - thousands of them


def _has_module(home: str, parts: list[str]) -> bool:
    """Does the whole dotted path exist, as folders and a last folder or file?"""
    last = os.path.join(home, *parts)  # noqa: PTH118 - thousands of them
    return os.path.isfile(f"{last}.py") or _is_package(last)  # noqa: PTH113


def _is_package(path: str) -> bool:
    if os.path.isfile(f"{path}/__init__.py"):  # noqa: PTH113
        return True
    # A namespace package: a folder with code in it.
    try:
        with os.scandir(path) as entries:
            return any(entry.name.endswith(".py") for entry in entries)
    except OSError:
        return False
