"""What a trace looks up on the disk: files that it opens, folders that it lists, modules and paths that it looks for.

Audit events tell of files and listings (`heed`, which the audit hook of the guard calls), the workspace's importer of
modules. Nothing tells of `os.stat`, on which `exists` and its like rest: it is wrapped while the person's code runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat as pathstat
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mase_server.dependencies import (
    MISSING,
    MOST,
    MOST_HASHED,
    PATH_FILES,
    UNSETTLED,
    Dependency,
    Kind,
    ModuleFolder,
    Seen,
    look,
)

#: Audit events that `heed` wants to hear of.
EVENTS = frozenset({"open", "os.listdir", "os.scandir"})
_stat, _lstat, _access = os.stat, os.lstat, os.access
_PACKAGES = ("site-packages", "dist-packages")
#: Folders that hold nothing a person edits, wherever they stand.
_FOREIGN = frozenset({*_PACKAGES, "node_modules", ".git", ".hg", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
#: What belongs to the system, to interpreters, and to caches that programs keep.
_SYSTEM = ("/proc", "/dev", "/sys", "/run", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/var/lib", "/var/cache")
_CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "MPLCONFIGDIR")
#: Functions that ask `os.stat` for nothing but what kind of thing a path is.
_ASKS_KIND = frozenset({
    "exists", "isfile", "isdir", "is_file", "is_dir", "islink", "lexists", "is_symlink", "ismount", "is_mount",
    "samefile",
})  # fmt: skip
#: How entries of the search path begin that are no folders.
_HOOKS = "__editable__"
#: Nanoseconds between two times of change that surely differ.
_CLOCK_TICK_NS = 50_000_000
_PRECEDENCE: Mapping[Kind, int] = {"presence": 0, "size": 1, "content": 2}
#: size, time of change, inode and device; None where there is nothing.
_Signature = tuple[int, int, int, int] | None


class _Looked:
    """A path that was opened or asked for. signature: as the path was then.  seen: what was read, where known."""

    __slots__ = ("kind", "seen", "signature")

    def __init__(self, kind: Kind, signature: _Signature, seen: Seen | None) -> None:
        self.kind, self.signature, self.seen = kind, signature, seen


class Lookups:
    """What one trace looked up.

    path: the file that is traced, which the server follows anyway.  root: the workspace.  ignored: folders that count
    for nothing, such as the scratch folder.
    """

    def __init__(self, path: str, root: str, ignored: Iterable[str] = ()) -> None:
        self._path = path
        here = [sys.prefix, sys.base_prefix, sys.exec_prefix, *map(sysconfig.get_path, ("stdlib", "platstdlib"))]
        caches = [str(Path.home() / ".cache"), *(os.environ[name] for name in _CACHES if name in os.environ)]
        own = str(Path(__file__).parents[2])
        self._roots = _prefixes([root])
        # An interpreter may lie inside of the workspace, and a workspace inside of what belongs to the system.
        self._ignored = tuple(one for one in _prefixes([*here, *ignored]) if not self._roots[0].startswith(one))
        self._ignored_outside = (*self._ignored, *_prefixes([*_SYSTEM, *caches, own]))
        self._paths: dict[str, _Looked] = {}
        self._folders: dict[str, Seen] = {}
        self._modules: dict[str, dict[str, str]] = {}
        self._read: dict[str, tuple[ModuleFolder, _Signature]] = {}
        self._real_folders: dict[str, str] = {}
        self._paused = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is looked up inside."""
        before, _State.current = _State.current, self
        try:
            with patch.object(os, "stat", stat), patch.object(os, "lstat", lstat), patch.object(os, "access", access):
                yield
        finally:
            _State.current = before

    def is_followed(self, path: str) -> bool:
        """May a person change what stands at an absolute path?"""
        place = f"{path}{os.sep}"
        root = next((root for root in self._roots if place.startswith(root)), None)
        if path == self._path or place.startswith(self._ignored_outside if root is None else self._ignored):
            return False
        return _FOREIGN.isdisjoint(place[len(root or "") :].split("/"))

    def note(self, kind: Kind, path: Any) -> None:
        """A path was opened or asked for."""
        if self._paused or not isinstance(path, str | bytes | os.PathLike):
            return
        absolute = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are followed by `dependencies`
        known = self._paths.get(absolute)
        if known is not None and _PRECEDENCE[known.kind] >= _PRECEDENCE[kind]:
            return
        if known is None and (self._is_full() or not self.is_followed(absolute)):
            return
        if "__pycache__" in absolute:  # whoever finds the bytecode does not read the source
            with contextlib.suppress(ValueError):
                self.note(kind, importlib.util.source_from_cache(absolute))
            return
        signature = _signature(absolute)
        recent = signature is not None and _is_recent(signature)
        self._paths[absolute] = _Looked(kind, signature, self._look(kind, absolute) if recent else None)

    def note_hash(self, path: str, sha256: str) -> None:
        """A file was read, and this is the hash of what was read; also where nothing else is recorded."""
        if path in self._paths or (not self._is_full() and self.is_followed(path)):
            self._paths[path] = _Looked("content", None, sha256)

    def note_listing(self, folder: Any) -> None:
        """The names in a folder were asked for."""
        if self._paused or isinstance(folder, int) or self._is_full():
            return
        absolute = os.path.abspath(os.fsdecode(folder or "."))  # noqa: PTH100
        if absolute not in self._folders and self.is_followed(absolute):
            self._folders[absolute] = self._look("listing", absolute)

    def note_import(self, name: str, search: Sequence[str], spec: ModuleSpec | None) -> None:
        """An import looked for a module in these folders, and found this; None for nothing."""
        tail = name.rpartition(".")[2]
        for entry in _before_hit(search, spec):
            if self._counts(entry, spec):
                self.note_modules(entry, (tail,) if spec is not None or "." in name else (tail, PATH_FILES))

    def note_loaded(self, places: Mapping[str, str], search: Sequence[str]) -> set[str]:
        """Modules were there before the trace: an import of one would have looked in the folders in front of its own.

        places: name -> that folder.  Gives the names that it would have found in one of those.
        """
        entries = _before_hit(search, None)
        shadowed = set[str]()
        for number, entry in enumerate(entries):
            if self.is_followed(entry):
                names = [name for name, place in places.items() if place not in entries[:number]]
                self.note_modules(entry, names)
                found = self._modules.get(entry, {})
                behind = (name for name in names if places[name] != entry)
                shadowed |= {name for name in behind if found.get(name, "") not in ("", "folder")}
        return shadowed

    def note_modules(self, folder: str, names: Iterable[str]) -> None:
        """Modules of these names were looked for in a folder."""
        if self._paused or (folder not in self._modules and self._is_full()):
            return
        known = self._modules.setdefault(folder, {})
        if wanted := [name for name in names if name not in known]:
            with self.paused():
                signature = _signature(folder)
                read, of = self._read.get(folder, (None, None))
                if read is None or of != signature or signature is None or _is_recent(signature):
                    read, _ = self._read[folder] = ModuleFolder.read(folder), signature
                known |= {name: read.find(name) for name in wanted}

    def _counts(self, entry: str, spec: ModuleSpec | None) -> bool:
        # What is not found anywhere may be installed.
        return self.is_followed(entry) or (spec is None and Path(entry).name in _PACKAGES)

    def _is_full(self) -> bool:
        return len(self._paths) + len(self._folders) + len(self._modules) >= MOST

    def _look(self, kind: Kind, path: str) -> Seen:
        with self.paused():
            return look(kind, path)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing of what happens inside."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def dependencies(self) -> list[Dependency]:
        """All of it, each with what the trace saw; what changed meanwhile was seen UNSETTLED."""
        with self.paused():
            found = [Dependency(one.kind, path, _seen(path, one)) for path, one in self._paths.items()]
            found += [Dependency("listing", path, seen) for path, seen in self._folders.items()]
            found += [Dependency("modules", path, dict(seen)) for path, seen in self._modules.items()]
            # A link may stay as it is while what it leads to is changed in its own folder.
            read = [one for one in found if one.kind == "content" and one.seen != MISSING]
            found += [replace(one, path=real) for one in read if (real := self._real(one.path)) != one.path]
        return found[:MOST]

    def _real(self, path: str) -> str:
        if os.path.islink(path):  # noqa: PTH114 - hundreds of them
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        return os.path.join(self._real_folders[folder], name)  # noqa: PTH118


def _seen(path: str, one: _Looked) -> Seen:
    if one.seen is None:
        now = _signature(path)
        same = (now is None) == (one.signature is None) if one.kind == "presence" else now == one.signature
        one.seen = look(one.kind, path) if same else UNSETTLED
    return one.seen


class _State:
    """Which recording the hooks of this process, which are never removed, act for."""

    current: Lookups | None = None


def current() -> Lookups | None:
    """The recording that is under way."""
    return _State.current


@contextmanager
def unrecorded() -> Iterator[None]:
    """Inside, what is looked up is no dependency."""
    if _State.current is None:
        yield
    else:
        with _State.current.paused():
            yield


def heed(event: str, args: tuple[Any, ...]) -> None:
    """An audit event, one of EVENTS, that only reads."""
    if (lookups := _State.current) is None or not args:
        return
    if event != "open":
        # The import system lists folders for its look-ups, which are recorded one by one.
        if sys._getframe(2).f_code.co_name != "_fill_cache":
            lookups.note_listing(args[0])
    else:
        lookups.note("content", args[0])


def note_source(path: str, source: bytes, sha256: str) -> None:
    """The importer read a source file; these are its bytes."""
    if _State.current is not None and len(source) <= MOST_HASHED:
        _State.current.note_hash(path, sha256)


def note_read(path: str | os.PathLike[str]) -> None:
    """A file was read in a way that no audit event tells of, or that was not recorded."""
    if _State.current is not None:
        _State.current.note("content", path)


def _prefixes(places: Iterable[str]) -> tuple[str, ...]:
    """How paths below these folders begin, as they are named and with links followed."""
    wanted = [place for place in places if place]
    found = dict.fromkeys([*map(os.path.abspath, wanted), *map(os.path.realpath, wanted)])
    return tuple(place + os.sep for place in found if place != os.sep)


def _signature(path: str) -> _Signature:
    try:
        found = _stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _is_recent(signature: tuple[int, int, int, int]) -> bool:
    """Might it be changed once more without another time of change?"""
    return time.time_ns() - signature[1] < _CLOCK_TICK_NS


def _before_hit(search: Sequence[str], spec: ModuleSpec | None) -> list[str]:
    """The folders that an import looks into, the one where it finds something included."""
    folders = [entry for entry in search if isinstance(entry, str) and not entry.startswith(_HOOKS)]
    entries = [entry if entry[:1] == os.sep else os.path.abspath(entry) for entry in folders]  # noqa: PTH100
    place = _place_of(spec) if spec is not None else ""
    return entries[: entries.index(place) + 1] if place in entries else entries


def _place_of(spec: ModuleSpec) -> str:
    """The folder of the search path that a module was found in; "" for one without."""
    if not spec.origin or not spec.has_location:
        return ""
    folder = os.path.dirname(os.path.abspath(spec.origin))  # noqa: PTH100, PTH120
    return os.path.dirname(folder) if spec.submodule_search_locations is not None else folder  # noqa: PTH120


def _asker() -> str:
    """The name of the function that called a wrapper, or `Path.stat` which did."""
    frame = sys._getframe(2)
    if frame.f_code.co_name in ("stat", "lstat") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name


def _wrapped(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def wrapper(path: Any, *args: Any, **kwargs: Any) -> Any:
        if (lookups := _State.current) is not None and not isinstance(path, int):
            asker = _asker()
            if asker == "_joinrealpath":  # which asks for every folder on the way, though links alone matter
                found = original(path, *args, **kwargs)
                if pathstat.S_ISLNK(found.st_mode):
                    lookups.note("presence", path)
                return found
            lookups.note("presence" if name == "access" or asker in _ASKS_KIND else "size", path)
        return original(path, *args, **kwargs)

    wrapper.__name__ = wrapper.__qualname__ = name
    for supporting in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if original in supporting:
            supporting.add(wrapper)
    return wrapper


stat, lstat, access = _wrapped(_stat, "stat"), _wrapped(_lstat, "lstat"), _wrapped(_access, "access")
