"""Where in the workspace a module is that the person's own `sys.path` leads to, and ours does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from mase_server.tracing.loading.walk import SKIPPED

#: Folders that are looked into.
MAX_FOLDERS = 3000


class Homes:
    """The folders of a workspace, read once, when the first module is missed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._folders: dict[str, frozenset[str]] | None = None
        self._absent: set[str] = set()

    def add(self, name: str, wanted_by: str) -> bool:
        """Put the folder from which `name` can be imported at the end of `sys.path`; was there a new one?

        Of several, the one nearest to the file that wants it.
        """
        if self._folders is None:
            self._folders = dict(_folders(self._folder))
        if name in self._absent:
            return False
        parts = name.split(".")
        homes = [home for home, inside in self._folders.items() if parts[0] in inside and home not in sys.path]
        homes = [home for home in homes if _holds(home, parts)]
        if not homes:
            self._absent.add(name)
            return False
        sys.path.append(max(homes, key=lambda home: (len(os.path.commonpath([home, wanted_by])), -len(home))))
        return True


def _folders(top: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The workspace's folders with the names of what may be a module in each, what stands highest first.

    Hidden and installed ones are passed over.
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
