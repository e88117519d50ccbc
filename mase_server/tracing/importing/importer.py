"""Importing the workspace's own modules instrumented, and everything else unchanged.

The importer is first on `sys.meta_path`, asks the other finders for a module, and replaces only the loader of
source files inside the workspace; so packages, namespace packages, editable installs, reloading and resources work
as they do without it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import hashlib
import importlib.util
import inspect
import marshal
import os
import sys
import sysconfig
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from mase_server.private import own_folder, read_own
from mase_server.tracing.importing import lookups
from mase_server.tracing.importing.lookups import note_source, without_recording
from mase_server.tracing.importing.rewrite import (
    BEGINNING,
    EXPRESSION,
    REPORTER,
    VERSION,
    Instrumented,
    Order,
    Site,
    Start,
    cut_statements_before,
    instrument,
    instrument_functions,
    iterate_code,
    provide_default,
    start_of,
)
from mase_server.tracing.importing.segments import MARKS, NOTHING, Segment, merge_marks, order_exchanged, unmarshal
from mase_server.tracing.importing.source import Names, Namespace, decode_source, is_pinned, is_typed, read_source

__all__ = ["Report", "Reporter", "WorkspaceImporter", "install", "load_code", "owns"]

#: Takes (site index, value), returns the value.
Report = Callable[[int, Any], Any]
#: Makes the `__mase__` of one file from its path and sites.
Reporter = Callable[[str, tuple[Site, ...]], Report]

#: An interpreter may be inside the workspace (a conda environment, an opened home folder).
_STDLIB = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
#: Folders in a workspace that hold other people's code.
_FOREIGN = frozenset({"site-packages", "dist-packages", ".venv", "node_modules"})


#: Seconds that imported files may take to be rewritten; each takes 10 to 50 milliseconds, once.
MAX_REWRITING = 2.0


#: The indices that the code of a file uses whose functions the newest importer has exchanged.
_ORDERS: dict[str, Order] = {}


class WorkspaceImporter:
    """A meta-path finder whose modules report. `imported`: paths of the modules it loaded, in order, each once.

    segments, ran: of each rewritten file, with a mark for each segment that ran. A file that was loaded with two texts
    has no segments.
    """

    def __init__(self, roots: Sequence[str], cache: str | None, reporter: Reporter) -> None:
        self.imported: list[str] = []
        self.segments: dict[str, tuple[Segment, ...]] = {}
        self.ran: dict[str, bytearray] = {}
        #: The rewritten code of each file, as it was last prepared.
        self._prepared: dict[str, Instrumented] = {}
        #: Seconds of processor time that it has used so far.
        self._rewriting = 0.0
        self._cache = cache
        self._reporter = reporter
        self._roots = tuple(roots)

    def owns(self, path: str) -> bool:
        """Is the file one of the workspace's own?"""
        return any(owns(root, path) for root in self._roots)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The other finders' result, with our loader for the workspace's own source files."""
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            spec = None
        if (recording := lookups.get_current_lookups()) is not None:
            recording.note_import(fullname, sys.path if path is None else path, spec)
        return None if spec is None else self._adopt_spec(spec)

    def _adopt_spec(self, spec: ModuleSpec) -> ModuleSpec:
        # Only the plain loader is replaced: a subclass (a test runner's, a notebook's) does more with the source.
        if type(spec.loader) is SourceFileLoader and self.owns(spec.loader.path):
            spec.loader = _ReportingLoader(spec.loader.name, spec.loader.path, self)
        return spec

    def prepare(self, path: str, namespace: Namespace) -> CodeType:
        """The code of a file, ready to be executed in `namespace`, which gets the file's `__mase__` and its marks."""
        if path in _ORDERS:
            instrumented = replace(self._prepared[path], code=self.code_from(path, BEGINNING))
        else:
            instrumented = self._prepared[path] = self.load(path)
        namespace[REPORTER] = self._reporter(path, instrumented.sites)
        segments = instrumented.segments
        if self.segments.setdefault(path, segments) == segments:
            namespace[MARKS] = self.ran.setdefault(path, bytearray(len(segments)))
        else:
            self.segments[path], namespace[MARKS] = (), bytearray(len(segments))
        if path not in self.imported:
            self.imported.append(path)
        return instrumented.code

    def exchange(self, path: str, text: str, names: Names, functions: Mapping[range, Sequence[FunctionType]]) -> None:
        """Give live functions, which have never run, the code that they have in another text of their file.

        functions: by their lines in the text before, from the first decorator on; in the new one they begin there, too.
        Raises ValueError where a function cannot take the place of another, as `instrument_functions` otherwise.
        """
        before, marks = self._prepared[path], self.ran[path]
        if not any(site.kind == EXPRESSION for site in before.sites):
            raise ValueError("the file is nested too deeply to report expressions")
        new = instrument_functions(text, path, names, {lines.start for lines in functions}, before)
        codes = {(each.co_qualname, each.co_firstlineno): each for each in iterate_code(new.code)}
        found = [(each, lines.start) for lines, same in functions.items() for each in same]
        pairs = [(each, codes.get((each.__code__.co_qualname, line))) for each, line in found]
        spaces = {id(each.__globals__): each.__globals__ for each, _ in pairs}.values()
        if any(space.get(MARKS) is not marks for space in spaces):
            raise ValueError("the file was loaded twice")
        if any(code is None or not _can_replace(each.__code__, code) for each, code in pairs):
            raise ValueError("a function has become another kind of function")
        report = self._reporter(path, new.sites[len(before.sites) :])
        for space in spaces:
            space[REPORTER] = _join_reports(space[REPORTER], report, len(before.sites))
        ranges = sorted(functions, key=lambda lines: lines.start)
        order = Order(
            order_exchanged(before.sites, new.sites, ranges), order_exchanged(before.segments, new.segments, ranges)
        )
        left = set(order.segments)
        segments = tuple(each if index in left else NOTHING for index, each in enumerate(new.segments))
        marks.extend(bytes(len(segments) - len(marks)))
        self._prepared[path] = replace(before, sites=new.sites, segments=segments)
        self.segments[path], _ORDERS[path] = segments, order
        for each, code in pairs:
            each.__code__ = code  # type: ignore[assignment]

    def code_from(self, path: str, start: Start) -> CodeType:
        """The code of a prepared file from a statement on, for the same namespace."""
        return instrument(read_source(path), path, start=start, order=_ORDERS.get(path)).code

    def load(self, path: str) -> Instrumented:
        """The instrumented code of a file, without a reporter. Raises as `load_code`."""
        return load_code(path, self._cache, self._rewrite)

    def _rewrite(self, source: bytes, path: str) -> Instrumented:
        started = time.process_time()
        try:
            return instrument(source, path)
        finally:
            self._rewriting += time.process_time() - started

    def prepare_or_skip(self, path: str, namespace: Namespace) -> CodeType | None:
        """Prepare as `prepare`; None for a further new file of a big package, which a later trace rewrites."""
        if self._rewriting > MAX_REWRITING and not is_cached(path, self._cache) and not is_pinned(path):
            self.imported.append(path)
            return None
        return self.prepare(path, namespace)

    @contextlib.contextmanager
    def marking(self) -> Iterator[dict[str, bytes]]:
        """Afterwards, the mapping that it gives holds the marks of what ran inside, by file."""
        before = {path: bytes(marks) for path, marks in self.ran.items()}
        found: dict[str, bytes] = {}
        for marks in self.ran.values():
            marks[:] = bytes(len(marks))
        try:
            yield found
        finally:
            for path, marks in self.ran.items():
                found[path] = bytes(marks)
                marks[:] = merge_marks(len(marks), [found[path], before.get(path, found[path])])

    @contextlib.contextmanager
    def unmarked(self) -> Iterator[None]:
        """Afterwards, the marks are those of before: what ran inside does not count."""
        before = {path: bytes(marks) for path, marks in self.ran.items()}
        try:
            yield
        finally:
            for path, marks in self.ran.items():
                marks[:] = before.get(path, bytes(len(marks)))

    def add_marks(self, ran: Mapping[str, bytes]) -> None:
        """Let marks that `marking` gave count, though they were taken back."""
        for path, found in ran.items():
            marks = self.ran[path]
            marks[:] = merge_marks(len(marks), [found, bytes(marks)])

    def uninstall(self) -> None:
        """Stop instrumenting imports; already loaded modules continue to report."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _can_replace(before: CodeType, now: CodeType) -> bool:
    """Does a function stay of one kind with another code: with the same parameters, variables around and purpose?"""
    kinds = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return not (before.co_flags | now.co_flags) & kinds and before.co_freevars == now.co_freevars


def _join_reports(before: Report, after: Report, count: int) -> Report:
    """The report of a file whose sites after the first `count` were added later."""

    def report(index: int, value: Any) -> Any:
        return before(index, value) if index < count else after(index - count, value)

    return report


@functools.cache
def _get_root_prefixes(root: str) -> tuple[str, ...]:
    return tuple({folder(root).rstrip(os.sep) + os.sep for folder in (os.path.abspath, os.path.realpath)})


@functools.cache
def owns(root: str, path: str) -> bool:
    """Is the file one of the workspace's own, and not of an interpreter or of packages inside it?"""
    return not _is_standard(path) and any(
        path.startswith(prefix) and _FOREIGN.isdisjoint(path[len(prefix) :].split(os.sep))  # noqa: PTH206 - as below
        for prefix in _get_root_prefixes(root)
    )


def _is_standard(path: str) -> bool:
    """Is the file of the standard library? A folder of installed packages is inside it, but does not belong to it."""
    return any(path.startswith(home) and not path.startswith(_PACKAGES, len(home)) for home in _STDLIB)


class _ReportingLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, importer: WorkspaceImporter) -> None:
        super().__init__(fullname, path)
        self._importer = importer

    def get_code(self, fullname: str) -> CodeType | None:
        # For runpy and the like, which use a namespace of their own: `__mase__` is then the silent default.
        return self._importer.load(self.path).code

    def exec_module(self, module: ModuleType) -> None:
        code = self._importer.prepare_or_skip(self.path, module.__dict__) or super().get_code(module.__name__)
        assert code is not None
        # Lazy, because it imports torch, and a warm parent loads this module before that.
        from mase_server.tracing.importing.statements import execute_module

        execute_module(self.path, code, module.__dict__, functools.partial(self._importer.code_from, self.path))


def install(roots: Sequence[str], cache: str | None, reporter: Reporter) -> WorkspaceImporter:
    """Load every module whose file lies under one of `roots` through `instrument`, from now on.

    cache: the folder of rewritten code (None: compile each time).  reporter: makes the `__mase__` of each module.
    """
    provide_default()
    _ORDERS.clear()
    importer = WorkspaceImporter(roots, cache, reporter)
    sys.meta_path.insert(0, importer)
    return importer


# Rewritten code on disk, so that a retrace does not compile unchanged files again.
#
# There is one entry for each source path, replaced when the content, the Python version or the rewriting changes. An
# entry that cannot be read counts as absent. Entries are executed, so the folder and each entry must be this user's
# own.

_MAGIC = b"mase%d-%b-%x" % (VERSION, importlib.util.MAGIC_NUMBER.hex().encode(), sys.hexversion)
_CHECK = 4


def load_code(
    path: str, cache: str | None, rewrite: Callable[[bytes, str], Instrumented] | None = None
) -> Instrumented:
    """The instrumented code of a file, from the cache folder if there is a valid entry.

    rewrite: makes it where there is none, `instrument` by default.

    Raises OSError for a file that cannot be read, and whatever `compile` raises for one with errors.
    """
    rewrite = rewrite or instrument
    with without_recording():  # except for the source itself
        source = read_source(path)
        digest = hashlib.sha256(source).digest()
        note_source(path, source, digest.hex())
        if cache is None:
            return rewrite(source, path)
        entry = _get_entry_path(path, cache)
        found = _read_entry(entry, digest)
        if found is None:
            found = rewrite(source, path)
            if not is_typed(path):  # the next key changes it again
                _write_entry(entry, digest, found)
        return found


def prepare_cache_folder(cache: str) -> str | None:
    """The cache folder, created if necessary; None if another user can write to it, or for ""."""
    try:
        return str(own_folder(Path(cache))) if cache else None
    except OSError:
        return None


def is_cached(path: str, cache: str | None) -> bool:
    """Is there an entry for the file, valid or not?"""
    return cache is not None and os.path.exists(_get_entry_path(path, cache))  # noqa: PTH110 - pathlib costs more


def _get_entry_path(path: str, cache: str) -> str:
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:40]
    return os.path.join(cache, f"{name}.{sys.implementation.cache_tag}")  # noqa: PTH118 - pathlib costs 10 us a module


def _read_entry(entry: str, digest: bytes) -> Instrumented | None:
    try:
        data = read_own(entry)
    except OSError:
        return None
    head = _MAGIC + digest
    if not data.startswith(head):
        return None
    body = memoryview(data)[len(head) + _CHECK :]
    if zlib.crc32(body).to_bytes(_CHECK, "big") != data[len(head) : len(head) + _CHECK]:
        return None
    try:
        code, rows, segments = marshal.loads(body)
        if not isinstance(code, CodeType):
            return None
        return Instrumented(code, tuple(map(Site._make, rows)), tuple(map(unmarshal, segments)))
    except (ValueError, TypeError, EOFError):
        return None


def _write_entry(entry: str, digest: bytes, found: Instrumented) -> None:
    segments = [(*each[:-2], *(None if part is None else tuple(part) for part in each[-2:])) for each in found.segments]
    body = marshal.dumps((found.code, [tuple(site) for site in found.sites], segments))
    folder = Path(entry).parent
    temporary = ""
    # A cache that cannot be written costs time, but never a trace.
    with contextlib.suppress(OSError):
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"".join((_MAGIC, digest, zlib.crc32(body).to_bytes(_CHECK, "big"), body)))
        Path(temporary).replace(entry)
        temporary = ""
    if temporary:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()


# Making already imported library files report (a transformers modeling file in the warm parent).
#
# Their functions already exist in classes, behind decorators, in closures; each gets the instrumented version of its
# own code in place, so nothing has to be imported again and no object changes its identity.

_Identity = tuple[str, int, bytes, bytes]


def reinstrument_libraries(paths: Sequence[str], reporter: Reporter, cache: str | None = None) -> None:
    """Replace the code of every live function from these files by code that reports.

    A function whose code differs from the compiled file on disk (the file changed since) is left as it is.
    Raises as `load_code` for a file that cannot be read or compiled.
    """
    provide_default()
    functions = defaultdict(list)
    wanted = {os.path.realpath(path): path for path in paths}
    for function in _iterate_live_functions(set(wanted)):
        functions[wanted[os.path.realpath(function.__code__.co_filename)]].append(function)
    for path, found in functions.items():
        _exchange_code(path, found, reporter, cache)


def _exchange_code(path: str, functions: Iterable[FunctionType], reporter: Reporter, cache: str | None) -> None:
    plain = SourceFileLoader("_", path).get_code("_")
    instrumented = load_code(path, cache)
    if not isinstance(plain, CodeType):
        return
    versions = dict(_pair_code_objects(plain, instrumented.code))
    report = reporter(path, instrumented.sites)
    for function in functions:
        new = versions.get(_identify_code(function.__code__))
        if new is not None and new.co_freevars == function.__code__.co_freevars:
            function.__globals__[REPORTER] = report
            function.__code__ = new.replace(co_filename=function.__code__.co_filename)


def restore_plain_code(program: str, namespaces: Iterable[Namespace]) -> None:
    """Give every live function that reports the code of its source back, as compilers have to see it.

    program: the file that ran, whose module is none of the imported ones.  namespaces: of the functions in question.
    """
    files = map(_reporting_file, list(sys.modules.values()))
    paths = {os.path.realpath(file) for file in (program, *files) if file is not None}
    functions = defaultdict(list)
    for function in _iterate_live_functions(paths, namespaces):
        functions[function.__code__.co_filename].append(function)
    for path, reporting in functions.items():
        text = decode_source(read_source(path))
        left = _exchange_for_plain_code(path, text, reporting, BEGINNING)
        # Python compiles nothing that stands below a `raise`, or an endless loop, of the module's own.
        starts = [Start(*start_of(each)) for each in ast.parse(text, path).body]
        above = {max((s for s in starts if s.line <= one.__code__.co_firstlineno), default=BEGINNING) for one in left}
        for start in sorted(above - {BEGINNING}):
            left = _exchange_for_plain_code(path, text, left, start)


def _exchange_for_plain_code(
    path: str, text: str, functions: Sequence[FunctionType], start: Start
) -> list[FunctionType]:
    """Give functions the code of the source from a statement on; return those that it does not have."""
    plain = compile(cut_statements_before(ast.parse(text, path), start), path, "exec", dont_inherit=True)
    reporting = instrument(text, path, start=start, order=_ORDERS.get(path)).code
    versions = dict(_pair_code_objects(reporting, plain))
    left = []
    for function in functions:
        new = versions.get(_identify_code(function.__code__))
        if new is not None and new.co_freevars == function.__code__.co_freevars:
            function.__code__ = new
        else:
            left.append(function)
    return left


def find_functions(path: str, namespaces: Iterable[Namespace]) -> list[FunctionType]:
    """The live functions of a file. namespaces: where to look for them, beside the loaded modules."""
    return list(_iterate_live_functions({os.path.realpath(path)}, namespaces))


def _reporting_file(module: Any) -> str | None:
    return file_of(module) if REPORTER in getattr(module, "__dict__", {}) else None


def _identify_code(code: CodeType) -> _Identity:
    # The line table includes columns, so two lambdas on one line differ.
    return code.co_qualname, code.co_firstlineno, code.co_code, code.co_linetable


def _pair_code_objects(plain: CodeType, instrumented: CodeType) -> Iterator[tuple[_Identity, CodeType]]:
    """Each function's plain code with its instrumented code: both compilers meet them in the same order."""
    ours, theirs = _group_nested_code(instrumented), _group_nested_code(plain)
    for key, codes in theirs.items():
        if len(codes) != len(ours.get(key, ())):
            continue
        for before, after in zip(codes, ours[key], strict=True):
            yield _identify_code(before), after
            yield from _pair_code_objects(before, after)


def _group_nested_code(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    children = defaultdict(list)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            children[constant.co_name, constant.co_firstlineno].append(constant)
    return children


def file_of(module: Any) -> str | None:
    """A loaded module's file; does not ask a lazy module, which would import itself to answer."""
    found = getattr(module, "__dict__", {}).get("__file__")
    return found if isinstance(found, str) else None


def _iterate_live_functions(paths: set[str], namespaces: Iterable[Namespace] = ()) -> Iterator[FunctionType]:
    """Every live function from these files: what the collector knows, and what their modules and `namespaces` reach.

    Both are needed: objects frozen before a fork are hidden from `gc.get_objects`, and a function kept only in some
    foreign registry is in no module.
    """
    real_folder = functools.cache(os.path.realpath)

    @functools.cache
    def real(path: str) -> str:  # thousands of modules are in a few hundred folders
        folder, name = os.path.split(path)
        whole = f"{real_folder(folder)}/{name}"
        return os.path.realpath(whole) if not name or Path(whole).is_symlink() else whole

    seen: set[int] = set()
    modules = [m for m in list(sys.modules.values()) if real(file_of(m) or "") in paths]
    roots = [*map(vars, modules), *namespaces]
    names = {name for root in roots if isinstance(name := root.get("__name__"), str)}
    for thing in (*gc.get_objects(), *_iterate_reachable_functions(roots, names)):
        if type(thing) is FunctionType and id(thing) not in seen and real(thing.__code__.co_filename) in paths:
            seen.add(id(thing))
            yield thing


def _iterate_reachable_functions(roots: list[Any], names: set[str]) -> Iterator[FunctionType]:
    pending, seen = list(roots), set()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if type(thing) is FunctionType:
            yield thing
        pending += _list_contents(thing, names)


def _list_contents(thing: Any, names: set[str]) -> Iterable[Any]:
    match thing:
        case FunctionType():
            cells = (cell for cell in thing.__closure__ or ())
            return [*vars(thing).values(), *(cell.cell_contents for cell in cells if _is_filled_cell(cell))]
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


def _is_filled_cell(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
