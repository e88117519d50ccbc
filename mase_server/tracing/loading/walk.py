"""The files of a workspace: not hidden ones, nor what is installed or built."""

from __future__ import annotations

import os
from collections.abc import Iterator

#: Folders that hold nothing of a person's own.
SKIPPED = frozenset({"node_modules", "site-packages", "dist-packages", "__pycache__", "build", "dist", "venv", "env"})


def files_below(folder: str, suffixes: tuple[str, ...], but: str = "") -> Iterator[os.DirEntry[str]]:
    """Files whose names end so, what stands highest first, then by name; links to folders are not followed.

    but: the path of a file that is left out.
    """
    waiting = [folder]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop(0)), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in SKIPPED:
                    waiting.append(entry.path)
            elif entry.name.endswith(suffixes) and entry.path != but:
                yield entry
