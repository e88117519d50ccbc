"""A trace's look-ups on the disk: files that it opens, folders that it lists, modules and paths that it searches for.

Audit events report files and listings (the guard's audit hook calls `handle_audit_event`); the workspace's importer
reports modules. Nothing reports `os.stat`, which `exists` and the like use: it is wrapped while the user's code
runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import site
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
    look_at_dependency,
)

#: Audit events that `handle_audit_event` handles.
EVENTS = frozenset({"open", "os.listdir", "os.scandir"})
_stat, _lstat, _access = os.stat, os.lstat, os.access
_PACKAGES = ("site-packages", "dist-packages")
#: Folders that hold nothing a user edits, wherever they are.
_FOREIGN = frozenset({*_PACKAGES, "node_modules", ".git", ".hg", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
#: Folders of the system, of interpreters, and of caches that programs keep.
_SYSTEM = ("/proc", "/dev", "/sys", "/run", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/var/lib", "/var/cache")
_CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "MPLCONFIGDIR")
#: Functions that call `os.stat` only to find out what kind of thing a path is.
_ASKS_KIND = frozenset({
    "exists", "isfile", "isdir", "is_file", "is_dir", "islink", "lexists", "is_symlink", "ismount", "is_mount",
    "samefile",
})  # fmt: skip
#: Prefixes of entries of the search path that are no folders.
_HOOKS = "__editable__"
#: Nanoseconds after which two modification times certainly differ.
_CLOCK_TICK_NS = 50_000_000
_PRECEDENCE: Mapping[Kind, int] = {"presence": 0, "size": 1, "content": 2}
#: size, modification time, inode and device; None for a missing file.
_Signature = tuple[int, int, int, int] | None

#: The names of the `.pth` files that were seen in each folder of packages.
_path_files: dict[str, set[str]] = {}


def read_path_files(*, run: bool) -> None:
    """Apply new `.pth` files of packages installed meanwhile, as a fresh interpreter would.

    run: apply them; else only remember which there are.
    """
    for folder in [entry for entry in sys.path if entry.endswith(_PACKAGES)]:
        try:
            found = {name for name in os.listdir(folder) if name.endswith(".pth")}  # noqa: PTH208 - on the way of a save
        except OSError:
            continue
        for name in sorted(found - _path_files.get(folder, found)) if run else ():
            site.addpackage(folder, name, None)
        _path_files[folder] = found


class _Looked:
    """A path that was opened or looked for. signature: of the path at that time.  seen: the hash of its content, if
    known."""

    __slots__ = ("kind", "seen", "signature")

    def __init__(self, kind: Kind, signature: _Signature, seen: Seen | None) -> None:
        self.kind, self.signature, self.seen = kind, signature, seen


#: The folders of this Python.
_HERE = (sys.prefix, sys.base_prefix, sys.exec_prefix, *map(sysconfig.get_path, ("stdlib", "platstdlib")))


class Lookups:
    """The look-ups of one trace.

    path: the traced file, which the server follows anyway.  root: the workspace.  ignored: folders that do not
    count, such as the scratch folder.
    """

    def __init__(self, path: str, root: str, ignored: Iterable[str] = ()) -> None:
        self._path = path
        caches = [str(Path.home() / ".cache"), *(os.environ[name] for name in _CACHES if name in os.environ)]
        own = str(Path(__file__).parents[2])
        self._roots = _make_path_prefixes([root])
        # An interpreter may be inside the workspace, and a workspace inside a folder of the system.
        self._ignored = tuple(
            one for one in _make_path_prefixes([*_HERE, *ignored]) if not self._roots[0].startswith(one)
        )
        self._ignored_outside = (*self._ignored, *_make_path_prefixes([*_SYSTEM, *caches, own]))
        self._paths_of_mention: dict[str, _Looked] = {}
        self._folders: dict[str, Seen] = {}
        self._modules: dict[str, dict[str, str]] = {}
        self._read: dict[str, tuple[ModuleFolder, _Signature]] = {}
        self._real_folders: dict[str, str] = {}
        self._paused = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record look-ups that happen inside."""
        before, _State.current = _State.current, self
        try:
            with patch.object(os, "stat", stat), patch.object(os, "lstat", lstat), patch.object(os, "access", access):
                yield
        finally:
            _State.current = before

    def is_followed(self, path: str) -> bool:
        """May a user change the file at an absolute path?"""
        place = f"{path}{os.sep}"
        root = next((root for root in self._roots if place.startswith(root)), None)
        if path == self._path or place.startswith(self._ignored_outside if root is None else self._ignored):
            return False
        return _FOREIGN.isdisjoint(place[len(root or "") :].split("/"))

    def note(self, kind: Kind, path: Any) -> None:
        """Note that a path was opened or looked for."""
        if self._paused or not isinstance(path, str | bytes | os.PathLike):
            return
        absolute = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are followed by `dependencies`
        if f"{os.sep}<" in absolute:  # code without a file, such as `<string>`: Python looks for the line of an error
            return
        known = self._paths_of_mention.get(absolute)
        if known is not None and _PRECEDENCE[known.kind] >= _PRECEDENCE[kind]:
            return
        if known is None and (self._is_full() or not self.is_followed(absolute)):
            return
        if "__pycache__" in absolute:  # whoever finds the bytecode does not read the source
            with contextlib.suppress(ValueError):
                self.note(kind, importlib.util.source_from_cache(absolute))
            return
        signature = _read_signature(absolute)
        recent = signature is not None and _is_recent(signature)
        self._paths_of_mention[absolute] = _Looked(
            kind, signature, self._look_unrecorded(kind, absolute) if recent else None
        )

    def note_hash(self, path: str, sha256: str) -> None:
        """Note the hash of a file's content as it was read; also if nothing else is being recorded."""
        if path in self._paths_of_mention or (not self._is_full() and self.is_followed(path)):
            self._paths_of_mention[path] = _Looked("content", None, sha256)

    def note_listing(self, folder: Any) -> None:
        """Note that a folder was listed."""
        if self._paused or isinstance(folder, int) or self._is_full():
            return
        absolute = os.path.abspath(os.fsdecode(folder or "."))  # noqa: PTH100
        if absolute not in self._folders and self.is_followed(absolute):
            self._folders[absolute] = self._look_unrecorded("listing", absolute)

    def note_import(self, name: str, search: Sequence[str], spec: ModuleSpec | None) -> None:
        """Note that an import searched these folders for a module, and found `spec`; None for nothing."""
        tail = name.rpartition(".")[2]
        for entry in _before_hit(search, spec):
            if self._is_dependency(entry, spec):
                self.note_modules(entry, (tail,) if spec is not None or "." in name else (tail, PATH_FILES))

    def note_loaded(self, places: Mapping[str, str], search: Sequence[str]) -> set[str]:
        """Note modules from before the trace: importing one would have searched the folders before its own.

        places: name -> that folder.  Returns the names that would have been found in one of the earlier folders.
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
        """Note that modules of these names were searched for in a folder."""
        if self._paused or (folder not in self._modules and self._is_full()):
            return
        known = self._modules.setdefault(folder, {})
        if wanted := [name for name in names if name not in known]:
            with self.paused():
                signature = _read_signature(folder)
                read, of = self._read.get(folder, (None, None))
                if read is None or of != signature or signature is None or _is_recent(signature):
                    read, _ = self._read[folder] = ModuleFolder.read(folder), signature
                known |= {name: read.find(name) for name in wanted}

    def _is_dependency(self, entry: str, spec: ModuleSpec | None) -> bool:
        # A module that is found nowhere may be installed later.
        return self.is_followed(entry) or (spec is None and Path(entry).name in _PACKAGES)

    def take_signatures(self) -> dict[str, _Signature]:
        """The state of all that was looked up so far: a trace that begins now finds the same if it is still this."""
        return {path: _read_signature(path) for path in (*self._paths_of_mention, *self._folders, *self._modules)}

    def _is_full(self) -> bool:
        return len(self._paths_of_mention) + len(self._folders) + len(self._modules) >= MOST

    def _look_unrecorded(self, kind: Kind, path: str) -> Seen:
        with self.paused():
            return look_at_dependency(kind, path)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing that happens inside."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def dependencies(self) -> list[Dependency]:
        """All look-ups with what the trace saw; those that changed meanwhile are UNSETTLED."""
        with self.paused():
            found = [
                Dependency(one.kind, path, _settle_seen(path, one)) for path, one in self._paths_of_mention.items()
            ]
            found += [Dependency("listing", path, seen) for path, seen in self._folders.items()]
            found += [Dependency("modules", path, dict(seen)) for path, seen in self._modules.items()]
            # A link may stay the same while its target is changed in its own folder.
            read = [one for one in found if one.kind == "content" and one.seen != MISSING]
            found += [replace(one, path=real) for one in read if (real := self._resolve_path(one.path)) != one.path]
        return found[:MOST]

    def _resolve_path(self, path: str) -> str:
        if os.path.islink(path):  # noqa: PTH114 - hundreds of them
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        return os.path.join(self._real_folders[folder], name)  # noqa: PTH118


def _settle_seen(path: str, one: _Looked) -> Seen:
    if one.seen is None:
        now = _read_signature(path)
        same = (now is None) == (one.signature is None) if one.kind == "presence" else now == one.signature
        one.seen = look_at_dependency(one.kind, path) if same else UNSETTLED
    return one.seen


class _State:
    """The recording that the hooks of this process serve; the hooks are never removed."""

    current: Lookups | None = None


def get_current_lookups() -> Lookups | None:
    """The current recording."""
    return _State.current


@contextmanager
def without_recording() -> Iterator[None]:
    """Inside, look-ups are no dependencies."""
    if _State.current is None:
        yield
    else:
        with _State.current.paused():
            yield


def handle_audit_event(event: str, args: tuple[Any, ...]) -> None:
    """Handle an audit event, one of EVENTS, that only reads."""
    if (lookups := _State.current) is None or not args:
        return
    if event != "open":
        # The import system lists folders for its look-ups, which are recorded one by one.
        if sys._getframe(2).f_code.co_name != "_fill_cache":
            lookups.note_listing(args[0])
    else:
        lookups.note("content", args[0])


def note_source(path: str, source: bytes, sha256: str) -> None:
    """Note the bytes of a source file that the importer read."""
    if _State.current is not None and len(source) <= MOST_HASHED:
        _State.current.note_hash(path, sha256)


def note_read(path: str | os.PathLike[str]) -> None:
    """Note a file that was read without an audit event, or without recording."""
    if _State.current is not None:
        _State.current.note("content", path)


def _make_path_prefixes(places: Iterable[str]) -> tuple[str, ...]:
    """The prefixes of paths below these folders, as they are named and with links resolved."""
    wanted = [place for place in places if place]
    found = dict.fromkeys([*map(os.path.abspath, wanted), *map(os.path.realpath, wanted)])
    return tuple(place + os.sep for place in found if place != os.sep)


def _read_signature(path: str) -> _Signature:
    try:
        found = _stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _is_recent(signature: tuple[int, int, int, int]) -> bool:
    """Could it change once more without another modification time?"""
    return time.time_ns() - signature[1] < _CLOCK_TICK_NS


def _before_hit(search: Sequence[str], spec: ModuleSpec | None) -> list[str]:
    """The folders that an import searches, up to and including the one where it finds the module."""
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


def _name_caller() -> str:
    """The name of the function that called a wrapper, or `Path.stat` which did."""
    frame = sys._getframe(2)
    if frame.f_code.co_name in ("stat", "lstat") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name


def _wrap_lookup(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def wrapper(path: Any, *args: Any, **kwargs: Any) -> Any:
        if (lookups := _State.current) is not None and not isinstance(path, int):
            asker = _name_caller()
            if asker == "_joinrealpath":  # it looks up every folder on the way, though only links matter
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


stat, lstat, access = _wrap_lookup(_stat, "stat"), _wrap_lookup(_lstat, "lstat"), _wrap_lookup(_access, "access")
