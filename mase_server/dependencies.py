"""What a trace depends on besides the text of its file: what it read, listed, looked for and asked the existence of.

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

#: content: the bytes of a file.  size: the kind of what stands there, and of a file its size.  presence: the kind
#: alone.  listing: the names in a folder.  modules: where an import would find each of some names in a folder.
Kind = Literal["content", "size", "presence", "listing", "modules"]
#: What `look` gives: a text, for `modules` one for each name.
Seen = str | dict[str, str]

#: Dependencies of one trace; what comes after these is not followed.
MOST = 2000
#: Bytes up to which a file is compared by its content, beyond by its size and time of change.
MOST_HASHED = reading.MIB
#: Entries of a folder whose names are compared; a larger one counts as unchanged.
MOST_NAMES = 10_000
MISSING = "missing"
#: What a trace saw of something that changed while it ran: `look` never gives this.
UNSETTLED = "changed while it was read"
#: In place of a module's name: the files by which a folder of installed packages adds others to the search path.
PATH_FILES = "*.pth"
_SHA256 = re.compile("[0-9a-f]{64}")
_PATH_FILES = (".pth", ".egg-link")
_MODULE_FILES = (".py", ".pyc", ".so", ".pyd")
#: Names that editors and interpreters leave in folders for themselves.
_TRANSIENT = (".swp", ".swo", ".swx", "~")
_TRANSIENT_NAMES = frozenset({"__pycache__", ".git", "4913", ".DS_Store", ".ipynb_checkpoints"})


@dataclass(frozen=True, slots=True)
class Dependency:
    """One thing that a trace depends on. path: absolute.  seen: what `look` gave when the trace looked."""

    kind: Kind
    path: str
    seen: Seen

    @property
    def has_hash(self) -> bool:
        """Is it a file that was read, and is `seen` the sha256 of it?"""
        return self.kind == "content" and _SHA256.fullmatch(str(self.seen)) is not None


def look(kind: Kind, path: str, names: Iterable[str] = ()) -> Seen:
    """What stands at a path now. names: of modules; other kinds need none."""
    if kind == "content":
        return _content(path)
    if kind == "listing":
        return _listing(path)
    if kind == "modules":
        folder = ModuleFolder.read(path)
        return {name: folder.find(name) for name in names}
    return _presence(path, sized=kind == "size")


def _presence(path: str, sized: bool) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands of them
    except (OSError, ValueError):
        return MISSING
    if stat.S_ISREG(found.st_mode):
        return f"file of {found.st_size}" if sized else "file"
    return "folder" if stat.S_ISDIR(found.st_mode) else "other"


def _content(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
        if not stat.S_ISREG(found.st_mode):
            return _presence(path, sized=False)
        if found.st_size > MOST_HASHED:
            return f"file of {found.st_size} at {found.st_mtime_ns}"
        return hashlib.sha256(reading.read(path)).hexdigest()
    except reading.UnreadableError as error:
        return f"unreadable: {error.errno}"
    except (OSError, ValueError):
        return MISSING


def _listing(path: str) -> str:
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
    """Does a name in a folder stand for nothing that a program looks for, such as an editor's swap file?"""
    return name in _TRANSIENT_NAMES or name.startswith(".#") or name.endswith(_TRANSIENT)


@dataclass(frozen=True, slots=True)
class ModuleFolder:
    """The names in a folder by what an import makes of them: suffixes by module, and what adds to the search path."""

    path: str
    suffixes: Mapping[str, list[str]]
    path_files: str

    @classmethod
    def read(cls, path: str) -> ModuleFolder:
        """As it is now; one that is not there is empty."""
        suffixes: dict[str, list[str]] = {}
        path_files = []
        with contextlib.suppress(OSError, ValueError):
            for name in os.listdir(path):  # noqa: PTH208 - as above
                stem, _, suffix = name.partition(".")
                if not suffix or name.endswith(_MODULE_FILES):
                    suffixes.setdefault(stem, []).append(suffix)
                elif name.endswith(_PATH_FILES):
                    path_files.append(f"{name} {_content(os.path.join(path, name))}")  # noqa: PTH118
        return cls(path, suffixes, "; ".join(sorted(path_files)))

    def find(self, name: str) -> str:
        """Which files an import of `name` may find here, "" for none."""
        if name == PATH_FILES:
            return self.path_files
        suffixes = sorted(self.suffixes.get(name, ()))
        if suffixes[:1] == [""]:  # a folder; a file without a suffix is no module
            place = os.path.join(self.path, name)  # noqa: PTH118
            is_package = os.path.isfile(os.path.join(place, "__init__.py"))  # noqa: PTH113, PTH118
            suffixes[0] = "package" if is_package else _presence(place, sized=False)
        return " ".join(suffixes)
