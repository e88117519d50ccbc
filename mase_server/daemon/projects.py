"""Which project a file belongs to, where no editor says it."""

from __future__ import annotations

from pathlib import Path

from mase_server.reading import exists

#: What makes a directory the root of a project.
_ROOTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


def project_of(path: str) -> str:
    """The directory of the project that a file belongs to: the nearest with a mark of one, else the file's own."""
    parents = list(Path(path).parents)
    marked = (parent for parent in parents if any(exists(parent / mark) for mark in _ROOTS))
    return str(next(marked, parents[0]))
