"""A trace's dependencies besides its file's text: paths that it read, listed, looked up or tested for existence.

The trace child records it and the server compares it with the disk, both by `look`, so that they cannot disagree.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from mase_server import reading

#: content: the bytes of a file.  size: the kind of a path, and the size of a file.  presence: only the kind.
#: listing: the names in a folder.  modules: where an import would find each of some names in a folder.
Kind = Literal["content", "size", "presence", "listing", "modules"]
#: The result of `look_at_dependency`: a text, or for `modules` one per name.
Seen = str | dict[str, str]

#: Maximum number of dependencies of one trace; further ones are ignored.
MOST = 2000
#: Maximum bytes of a file that is compared by content; larger ones are compared by size and modification time.
MOST_HASHED = reading.MIB
#: Maximum entries of a folder whose names are compared; a larger one counts as unchanged.
MOST_NAMES = 10_000
MISSING = "missing"
#: For a path that changed while the trace read it: `look_at_dependency` never returns this.
UNSETTLED = "changed while it was read"
#: Stands for the `*.pth` files with which a folder of packages adds folders to the search path.
PATH_FILES = "*.pth"
_SHA256 = re.compile("[0-9a-f]{64}")
_PATH_FILES = (".pth", ".egg-link")
_MODULE_FILES = (".py", ".pyc", ".so", ".pyd")
#: Suffixes of files that editors and interpreters create for themselves.
_TRANSIENT = (".swp", ".swo", ".swx", "~")
_TRANSIENT_NAMES = frozenset({"__pycache__", ".git", "4913", ".DS_Store", ".ipynb_checkpoints"})


@dataclass(frozen=True, slots=True)
class Dependency:
    """One dependency of a trace. path: absolute.  seen: the result of `look_at_dependency` during the trace."""

    kind: Kind
    path: str
    seen: Seen

    @property
    def has_hash(self) -> bool:
        """Is it a file that was read, with its sha256 in `seen`?"""
        return self.kind == "content" and _SHA256.fullmatch(str(self.seen)) is not None


def look_at_dependency(kind: Kind, path: str, names: Iterable[str] = ()) -> Seen:
    """Look at a path now. names: of modules; only that kind needs them."""
    if kind == "content":
        return _hash_content(path)
    if kind == "listing":
        return _hash_listing(path)
    if kind == "modules":
        folder = ModuleFolder.read(path)
        return {name: folder.find(name) for name in names}
    return _describe_presence(path, sized=kind == "size")


def _describe_presence(path: str, sized: bool) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands of them
    except (OSError, ValueError):
        return MISSING
    if stat.S_ISREG(found.st_mode):
        return f"file of {found.st_size}" if sized else "file"
    return "folder" if stat.S_ISDIR(found.st_mode) else "other"


def _hash_content(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
        if not stat.S_ISREG(found.st_mode):
            return _describe_presence(path, sized=False)
        if found.st_size > MOST_HASHED:
            return f"file of {found.st_size} at {found.st_mtime_ns}"
        return hashlib.sha256(reading.read_file(path)).hexdigest()
    except reading.UnreadableError as error:
        return f"unreadable: {error.errno}"
    except (OSError, ValueError):
        return MISSING


def _hash_listing(path: str) -> str:
    try:
        with os.scandir(path) as entries:
            names = []
            for entry in entries:
                if not is_transient(entry.name):
                    names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
                if len(names) > MOST_NAMES:
                    return "large"
    except (OSError, ValueError):
        return MISSING
    return hashlib.sha256("\0".join(sorted(names)).encode(errors="surrogateescape")).hexdigest()


def is_transient(name: str) -> bool:
    """Is a name in a folder irrelevant to programs, such as an editor's swap file?"""
    return name in _TRANSIENT_NAMES or name.startswith(".#") or name.endswith(_TRANSIENT)


@dataclass(frozen=True, slots=True)
class ModuleFolder:
    """The names in a folder as imports see them: suffixes by module, and the files that extend the search path."""

    path: str
    suffixes: Mapping[str, list[str]]
    path_files: str

    @classmethod
    def read(cls, path: str) -> ModuleFolder:
        """Read a folder's present names; a missing folder is empty."""
        suffixes: dict[str, list[str]] = {}
        path_files = []
        with contextlib.suppress(OSError, ValueError):
            for name in os.listdir(path):  # noqa: PTH208 - as above
                stem, _, suffix = name.partition(".")
                if not suffix or name.endswith(_MODULE_FILES):
                    suffixes.setdefault(stem, []).append(suffix)
                elif name.endswith(_PATH_FILES):
                    path_files.append(f"{name} {_hash_content(os.path.join(path, name))}")  # noqa: PTH118
        return cls(path, suffixes, "; ".join(sorted(path_files)))

    def find(self, name: str) -> str:
        """The files that an import of `name` may find here, as a text, "" for none."""
        if name == PATH_FILES:
            return self.path_files
        suffixes = sorted(self.suffixes.get(name, ()))
        if suffixes[:1] == [""]:  # a folder; a file without a suffix is not a module
            place = os.path.join(self.path, name)  # noqa: PTH118
            is_package = os.path.isfile(os.path.join(place, "__init__.py"))  # noqa: PTH113, PTH118
            suffixes[0] = "package" if is_package else _describe_presence(place, sized=False)
        return " ".join(suffixes)
