"""The content of a file on disk, and its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mase_server import notebooks

_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file and their sha256."""

    data: bytes
    sha256: str


def read_source(path: str) -> Source | None:
    """The file's content now, of a notebook its script; None where it cannot be read."""
    try:
        data = notebooks.read(path)
    except OSError:
        return None
    return Source(data, hashlib.sha256(data).hexdigest())


def hashes_of(paths: Iterable[str]) -> dict[str, str]:
    """path -> sha256 of those that can be read."""
    return {path: source.sha256 for path in paths if (source := read_source(path)) is not None}


def is_library(path: str) -> bool:
    """Does the file belong to an installed package, so that it is never traced for itself?"""
    return bool(_LIBRARY_FOLDERS & set(Path(path).parts))
