"""Where in the workspace a module is that the person's own `sys.path` leads to, and ours does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

#: Folders that are looked into.
MAX_FOLDERS = 3000
_SKIPPED = frozenset({"node_modules", "site-packages", "dist-packages", "__pycache__", "build", "dist", "venv", "env"})


class Homes:
    """The folders of a workspace, read once, when the first module is missed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._folders: list[str] | None = None

    def add(self, name: str, wanted_by: str) -> bool:
        """Put the folder from which `name` can be imported at the end of `sys.path`; was there a new one?

        Of several, the one nearest to the file that wants it.
        """
        if self._folders is None:
            self._folders = list(_folders(self._folder))
        homes = [home for home in self._folders if home not in sys.path and _holds(home, name.split("."))]
        if not homes:
            return False
        sys.path.append(max(homes, key=lambda home: (len(os.path.commonpath([home, wanted_by])), -len(home))))
        return True


def _folders(top: str) -> Iterator[str]:
    """The workspace's folders, what stands highest first; hidden and installed ones are passed over."""
    waiting = [top]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        here = waiting.pop(0)
        yield here
        try:
            with os.scandir(here) as entries:
                inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        waiting += [path for path in inner if (name := Path(path).name) not in _SKIPPED and not name.startswith(".")]


def _holds(home: str, parts: list[str]) -> bool:
    """Is the whole dotted path there, as folders and a last folder or file?"""
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
