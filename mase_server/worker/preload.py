"""Imports, ahead of any fork, the third-party modules that this folder's files needed before.

A module that starts a thread, raises torch's thread count or runs a backward at import would make children hang, and
one that fails halfway leaves modules behind that its package would not have loaded alone: it is reported as harmful,
and the server replaces this process by one that never imports it.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from mase_server import system
from mase_server.protocol.wire import Message
from mase_server.tracing.importing.lookups import read_path_files


class Surveyed:
    """The modules of this process, listed before it forks: a child that looked at each would copy their memory pages.

    places: of top-level modules that are not Python's own, the folder that each was found in.  learned: those of
    them that were imported ahead of any file that needs them.  elsewhere: files of modules outside any folder of
    installed packages, such as one that was installed to be edited.
    """

    places: ClassVar[dict[str, str]] = {}
    learned: ClassVar[set[str]] = set()
    elsewhere: ClassVar[list[str]] = []


def survey_modules() -> None:
    """List the modules that are loaded now."""
    own = str(Path(__file__).parents[1])
    Surveyed.places.clear()
    Surveyed.elsewhere.clear()
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        top = name.partition(".")[0]
        if spec is None or not spec.origin or not spec.has_location or top in sys.stdlib_module_names:
            continue
        file = Path(spec.origin)
        if top == name:
            Surveyed.places[name] = str(file.parents[0 if spec.submodule_search_locations is None else 1])
        if not {"site-packages", "dist-packages"} & set(file.parts) and not file.is_relative_to(own):
            Surveyed.elsewhere.append(str(file))


class Preloader:
    """The wanted modules of one warm parent; `folder` is the workspace, whose own modules are refused."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.pending: deque[str] = deque()
        # Upgrading torch rewrites its version file, which makes this process stale like any changed package.
        self._loaded = {"torch": file_stamp(getattr(sys.modules.get("torch.version"), "__file__", None))}
        self._failed: dict[str, str] = {}
        self.harmful: list[str] = []
        self._fresh = False
        read_path_files(run=False)
        survey_modules()

    def want(self, names: Iterable[str]) -> None:
        """Queue modules; `step` imports one."""
        known = {*self._loaded, *self._failed, *self.pending}
        self.pending.extend(name for name in names if name not in known)

    def import_now(self, names: Sequence[str]) -> None:
        """Import those of the wanted modules that the next child needs, before all others."""
        for name in names:
            if name in self.pending:
                self.pending.remove(name)
                self._import_module_safely(name)
        self._freeze_loaded()

    def step(self) -> None:
        """Import the next pending module; after the last, freeze the new objects so that children share them."""
        self._import_module_safely(self.pending.popleft())
        self._freeze_loaded()

    def _freeze_loaded(self) -> None:
        if self._fresh and not self.pending:
            self._fresh = False
            survey_modules()
            gc.collect()
            gc.freeze()

    def report(self) -> Message:
        """`{"preloaded": {module: [file, mtime_ns, size]}, "failed": {module: why}, "harmful": [module]}`."""
        return {"preloaded": self._loaded, "failed": self._failed, "harmful": self.harmful}

    def _import_module_safely(self, name: str) -> None:
        if self._is_own(name):
            self._failed[name] = "belongs to the workspace"
            return
        self._fresh = True
        watch, before = _Watch(), len(sys.modules)
        try:
            module = import_module(name)
        except BaseException as error:  # noqa: BLE001  (a package's top level may raise anything, SystemExit included)
            self._failed[name] = f"{type(error).__name__}: {error}"
        else:
            self._loaded[name] = file_stamp(getattr(module, "__file__", None))
            Surveyed.learned.add(name.partition(".")[0])
        if watch.has_done_harm() or (name in self._failed and len(sys.modules) > before):
            self.harmful.append(name)

    def _is_own(self, name: str) -> bool:
        try:
            spec = importlib.util.find_spec(name.partition(".")[0])
        except (ImportError, ValueError):
            return False
        origin = Path(spec.origin) if spec is not None and spec.origin else None
        if origin is None or not origin.is_relative_to(self._folder):
            return False
        return not {"site-packages", "dist-packages"} & set(origin.parts)


def file_stamp(path: str | None) -> list[Any]:
    """`[path, mtime_ns, size]`, or an empty list for a module without a file."""
    try:
        stat = Path(path).stat() if path else None
    except OSError:
        return []
    return [path, stat.st_mtime_ns, stat.st_size] if stat is not None else []


class _Watch:
    """Notices what an import must not do in a process that will fork."""

    def __init__(self) -> None:
        self._tasks = system.count_threads()
        self._threads = _torch_threads()
        self._backward = False
        variable = sys.modules["torch.autograd.variable"].Variable if "torch" in sys.modules else None
        self._variable: Any = variable
        if variable is not None:
            self._engine = variable._execution_engine
            variable._execution_engine = _NoticingEngine(self._engine, self._notice)

    def _notice(self) -> None:
        self._backward = True

    def has_done_harm(self) -> bool:
        """Did the import start a thread, raise torch's thread count, or run a backward?"""
        if self._variable is not None:
            self._variable._execution_engine = self._engine
        return self._backward or _torch_threads() > self._threads or system.count_threads() > self._tasks


class _NoticingEngine:
    def __init__(self, engine: Any, notice: Callable[[], None]) -> None:
        self._engine = engine
        self._notice = notice

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        self._notice()
        return self._engine.run_backward(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _torch_threads() -> int:
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())
