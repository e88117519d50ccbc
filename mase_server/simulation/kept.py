"""Folders that are made once and kept by what they are made of, up to a total size."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mase_server.private import own_folder

_LIMIT = 1 << 30
_UNFINISHED = "making-"
#: Seconds after which what was being made is taken for abandoned.
_ABANDONED = 3600.0


async def kept(place: Path, key: str, make: Callable[[Path], Awaitable[None]], limit: int = _LIMIT) -> Path:
    """The folder `key` in a place; where there is none yet, `make` fills an empty one first.

    It appears whole or not at all: others may want the same one. Those not used for longest go when all of them are
    more than `limit` bytes. NotPrivate where somebody else can write to it: what is in it is executed.
    """
    folder = own_folder(place) / key
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=place, ignore_cleanup_errors=True) as name:
            await make(Path(name))
            _settle(Path(name), folder)
        _tidy(place, folder, limit)
    os.utime(own_folder(folder))
    return folder


def digest(parts: Iterable[str | bytes]) -> str:
    """A key of contents."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:24]


def _settle(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    else:
        made.mkdir()  # the context wants something to remove


def _tidy(place: Path, keep: Path, limit: int) -> None:
    """Remove what was abandoned, and what was not used for longest."""
    total, now = 0, time.time()
    for folder in sorted(place.iterdir(), key=_used, reverse=True):
        total += _size(folder)
        if folder.name.startswith(_UNFINISHED):
            outdated = now - _used(folder) > _ABANDONED
        else:
            outdated = total > limit and folder != keep
        if outdated:
            shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process tidies, too
            total += path.stat().st_size
    return total
