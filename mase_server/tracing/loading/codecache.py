"""Rewritten code on disk, so that a retrace does not compile what has not changed.

One entry a source path, replaced when the content, the Python version or the rewriting changes. An entry that cannot
be read, whatever the reason, counts as absent. Entries are executed: the folder and each of them are this user's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import sys
import tempfile
import zlib
from pathlib import Path
from types import CodeType

from mase_server.private import own_folder, read_own
from mase_server.tracing.loading.instrument import VERSION, Instrumented, Site, instrument
from mase_server.tracing.loading.lookups import note_source, unrecorded
from mase_server.tracing.loading.source import read_source

_MAGIC = b"mase%d-%b-%x" % (VERSION, importlib.util.MAGIC_NUMBER.hex().encode(), sys.hexversion)
_CHECK = 4


def load_code(path: str, cache: str | None) -> Instrumented:
    """The instrumented code of a file, from the cache folder where it is there and still right.

    Raises OSError for a file that cannot be read, and what `compile` raises for one with errors.
    """
    with unrecorded():  # but for the source itself
        source = read_source(path)
        digest = hashlib.sha256(source).digest()
        note_source(path, source, digest.hex())
        if cache is None:
            return instrument(source, path)
        entry = _entry(path, cache)
        found = _read(entry, digest)
        if found is None:
            found = instrument(source, path)
            _write(entry, digest, found)
        return found


def usable(cache: str) -> str | None:
    """The cache folder, made where it is not there; None where somebody else can write to it, or for ""."""
    try:
        return str(own_folder(Path(cache))) if cache else None
    except OSError:
        return None


def is_cached(path: str, cache: str | None) -> bool:
    """Is there an entry for the file, right or not?"""
    return cache is not None and Path(_entry(path, cache)).exists()


def _entry(path: str, cache: str) -> str:
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:40]
    return os.path.join(cache, f"{name}.{sys.implementation.cache_tag}")  # noqa: PTH118 - pathlib costs 10 us a module


def _read(entry: str, digest: bytes) -> Instrumented | None:
    try:
        data = read_own(entry)
    except OSError:
        return None
    head = _MAGIC + digest
    if not data.startswith(head):
        return None
    body = memoryview(data)[len(head) + _CHECK :]
    if zlib.crc32(body).to_bytes(_CHECK, "big") != data[len(head) : len(head) + _CHECK]:
        return None
    try:
        code, rows = marshal.loads(body)
        return Instrumented(code, tuple(map(Site._make, rows))) if isinstance(code, CodeType) else None
    except (ValueError, TypeError, EOFError):
        return None


def _write(entry: str, digest: bytes, found: Instrumented) -> None:
    body = marshal.dumps((found.code, [tuple(site) for site in found.sites]))
    folder = Path(entry).parent
    temporary = ""
    # A cache that cannot be written costs time, never a trace.
    with contextlib.suppress(OSError):
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"".join((_MAGIC, digest, zlib.crc32(body).to_bytes(_CHECK, "big"), body)))
        Path(temporary).replace(entry)
        temporary = ""
    if temporary:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
