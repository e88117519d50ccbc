"""Importing the workspace's own modules instrumented, and everything else as ever.

The importer stands first on `sys.meta_path`, asks the others where a module is, and exchanges only the loader of
source files inside the workspace; so packages, namespace packages, editable installs, reloading and resources work
as they do without it.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mase_server.tracing.loading import lookups
from mase_server.tracing.loading.codecache import is_cached, load_code
from mase_server.tracing.loading.instrument import REPORTER, Instrumented, Site, instrument, provide_default
from mase_server.tracing.loading.source import read_source

__all__ = ["Report", "Reporter", "WorkspaceImporter", "install", "load_code", "owns"]

#: Takes (site index, value), returns the value.
Report = Callable[[int, Any], Any]
#: Makes the `__mase__` of one file from its path and sites.
Reporter = Callable[[str, tuple[Site, ...]], Report]

#: An interpreter may lie inside the workspace (a conda environment, an opened home folder).
_STDLIB = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
#: Folders in a workspace that hold other people's code.
_FOREIGN = frozenset({"site-packages", "dist-packages", ".venv", "node_modules"})


#: Seconds that imported files may take to be rewritten; each takes 10 to 50 milliseconds, once.
MAX_REWRITING = 2.0


class WorkspaceImporter:
    """A meta-path finder whose modules report. `imported`: paths of the modules it loaded, in order, each once."""

    def __init__(self, roots: Sequence[str], cache: str | None, reporter: Reporter) -> None:
        self.imported: list[str] = []
        #: Seconds of a processor that it took so far.
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
        """What the other finders say, with our loader for the workspace's own source files."""
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            spec = None
        if (recording := lookups.current()) is not None:
            recording.note_import(fullname, sys.path if path is None else path, spec)
        return None if spec is None else self._adopt(spec)

    def _adopt(self, spec: ModuleSpec) -> ModuleSpec:
        # Only the plain loader: a subclass (a test runner's, a notebook's) does something of its own with the source.
        if type(spec.loader) is SourceFileLoader and self.owns(spec.loader.path):
            spec.loader = _ReportingLoader(spec.loader.name, spec.loader.path, self)
        return spec

    def prepare(self, path: str, namespace: dict[str, Any]) -> CodeType:
        """The code of a file, ready to be executed in `namespace`, which gets the file's `__mase__`."""
        instrumented = self.load(path)
        namespace[REPORTER] = self._reporter(path, instrumented.sites)
        if path not in self.imported:
            self.imported.append(path)
        return instrumented.code

    def code_from(self, path: str, start: tuple[int, int]) -> CodeType:
        """The code of a prepared file from a statement on, for the same namespace."""
        return instrument(read_source(path), path, start=start).code

    def load(self, path: str) -> Instrumented:
        """The instrumented code of a file, without a reporter. Raises as `load_code`."""
        return load_code(path, self._cache)

    def prepare_or_skip(self, path: str, namespace: dict[str, Any]) -> CodeType | None:
        """As `prepare`; None for one more new file of a big package, which is left for a later trace to rewrite."""
        if is_cached(path, self._cache):
            return self.prepare(path, namespace)
        if self._rewriting > MAX_REWRITING:
            self.imported.append(path)
            return None
        started = time.process_time()
        code = self.prepare(path, namespace)
        self._rewriting += time.process_time() - started
        return code

    def uninstall(self) -> None:
        """Import plainly from now on; modules that are loaded already go on reporting."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


@functools.cache
def _prefixes(root: str) -> tuple[str, ...]:
    return tuple({folder(root).rstrip(os.sep) + os.sep for folder in (os.path.abspath, os.path.realpath)})


def owns(root: str, path: str) -> bool:
    """Is the file one of the workspace's own, and not of an interpreter or of packages that lie inside of it?"""
    return not _is_standard(path) and any(
        path.startswith(prefix) and _FOREIGN.isdisjoint(Path(path).parts[prefix.count(os.sep) :])
        for prefix in _prefixes(root)
    )


def _is_standard(path: str) -> bool:
    """Is the file of the standard library? A folder of installed packages lies in it, but is not of it."""
    return any(path.startswith(home) and not path.startswith(_PACKAGES, len(home)) for home in _STDLIB)


class _ReportingLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, importer: WorkspaceImporter) -> None:
        super().__init__(fullname, path)
        self._importer = importer

    def get_code(self, fullname: str) -> CodeType | None:
        # For runpy and the like, which bring a namespace of their own: `__mase__` is then the silent default.
        return self._importer.load(self.path).code

    def exec_module(self, module: ModuleType) -> None:
        code = self._importer.prepare_or_skip(self.path, module.__dict__) or super().get_code(module.__name__)
        assert code is not None
        exec(code, module.__dict__)


def install(roots: Sequence[str], cache: str | None, reporter: Reporter) -> WorkspaceImporter:
    """Load every module whose file lies under one of `roots` through `instrument`, from now on.

    cache: the folder of rewritten code (None: compile each time).  reporter: makes the `__mase__` of each module.
    """
    provide_default()
    importer = WorkspaceImporter(roots, cache, reporter)
    sys.meta_path.insert(0, importer)
    return importer
