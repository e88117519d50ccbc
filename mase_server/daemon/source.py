"""The content of a file on disk and its hash, or why it is not read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mase_server import notebooks, reading
from mase_server.snapshot import Problem

_GONE = "This file is not there any more: it was deleted, or moved with its folder."
_LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file and their sha256. unreadable: why there are none, "" where there are."""

    data: bytes
    sha256: str
    unreadable: str = ""

    def is_as(self, other: Source) -> bool:
        """Is it the same content, or unread for the same reason?"""
        return (self.sha256, self.unreadable) == (other.sha256, other.unreadable)


def read_source(path: str) -> Source | None:
    """The file's content now, of a notebook its script, or why it is not read; None where there is no file."""
    try:
        data = notebooks.read(path, reading.MOST)
    except reading.UnreadableError as error:
        return Source(b"", "", str(error.strerror))
    except OSError:
        return None
    return Source(data, hashlib.sha256(data).hexdigest())


def missing(before: Source) -> Source:
    """What stands for a file that is not there: nothing where it never was, else that it is gone."""
    return Source(b"", "", _GONE) if before.sha256 or before.unreadable else before


def unreadable(path: str, why: str) -> Problem:
    """The diagnostic of a file that is not read, on its first line."""
    return Problem(path, 1, 0, 2, 0, "error", "unreadable", f"{why} It is traced again as soon as it can be read.")


def is_library(path: str) -> bool:
    """Does the file belong to an installed package, so that it is never traced for itself?"""
    return bool(_LIBRARY_FOLDERS & set(Path(path).parts))
