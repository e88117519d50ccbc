"""A file's bytes: of regular files alone, and no more than can be worked on. Nothing else may be waited for.

A named pipe would hold up its reader until somebody writes, a device may never end, and of a file of tens of megabytes
the syntax tree alone takes gigabytes.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MIB = 1 << 20
#: Bytes of a model file; the longest in public libraries have a third of this.
MOST = 8 * MIB
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnreadableError(OSError):
    """A file that is there and is not read. `strerror` says why, as a sentence for a person; `filename` which one."""


def is_file(path: str | os.PathLike[str]) -> bool:
    """Is there a file? False also where nobody may look: pathlib's own question is an error there."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Is there a folder? False also where nobody may look."""
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: str | os.PathLike[str]) -> bool:
    """Is anything there? False also where nobody may look."""
    return os.path.exists(path)  # noqa: PTH110


def read(path: str, most: int | None = None) -> bytes:
    """The bytes of a file. most: of so many at most.

    Raises FileNotFoundError or NotADirectoryError where there is none, UnreadableError for all else.
    """
    try:
        return _read(path, most)
    except UnreadableError:
        raise
    except FileNotFoundError as error:
        if not Path(path).is_symlink():
            raise
        text = f"This is a link to {Path(path).readlink()}, which is not there."
        raise UnreadableError(error.errno, text, path) from None
    except NotADirectoryError:
        raise
    except OSError as error:
        raise UnreadableError(error.errno, _text(error), path) from None


def _read(path: str, most: int | None) -> bytes:
    # Looked at before it is opened, since opening alone does something to some devices.
    _check(path, Path(path).stat(), most)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _check(path, found, most)
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:  # it grew meanwhile, or is one that has no size until it is read
        raise _too_large(path, most)
    return data


def _check(path: str, found: os.stat_result, most: int | None) -> None:
    for is_kind, name in _KINDS:
        if is_kind(found.st_mode):
            raise UnreadableError(errno.EINVAL, f"This is {name}, not a file.", path)
    if most is not None and found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: str, most: int) -> UnreadableError:
    text = f"This file has more than {most / MIB:g} MiB, and is not traced."
    return UnreadableError(errno.EFBIG, f"{text} Move what is no code, such as data, to a file of its own.", path)


def _text(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "This file may not be read (permission denied); `chmod u+r` allows it to its owner."
    if error.errno == errno.ELOOP:
        return "This is a link that leads back to itself."
    return f"This file cannot be read: {error.strerror or error}."
