"""Read a file's bytes, but only of regular files of bounded size, so that reading never blocks.

A named pipe would block its reader until somebody writes, a device may never end, and the syntax tree of a file of
tens of megabytes takes gigabytes.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MIB = 1 << 20
#: Maximum bytes of a model file; the longest in public libraries have a third of this.
MOST = 8 * MIB
_CHUNK = 1 << 16
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnreadableError(OSError):
    """An existing file is not read. `strerror` says why, as a sentence for users; `filename` names the file."""


def is_file(path: str | os.PathLike[str]) -> bool:
    """Is there a file? False also without permission to look, where pathlib raises an exception."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Is there a folder? False also without permission to look."""
    return os.path.isdir(path)  # noqa: PTH112


def path_exists(path: str | os.PathLike[str]) -> bool:
    """Does the path exist? False also without permission to look."""
    return os.path.exists(path)  # noqa: PTH110


def read_file(path: str, most: int | None = None) -> bytes:
    """The bytes of a file. most: the maximum number.

    Raises FileNotFoundError or NotADirectoryError for a missing file, UnreadableError for all other cases.
    """
    try:
        return _read_regular_file(path, most)
    except UnreadableError:
        raise
    except FileNotFoundError as error:
        if not Path(path).is_symlink():
            raise
        text = f"This is a link to {Path(path).readlink()}, which does not exist."
        raise UnreadableError(error.errno, text, path) from None
    except NotADirectoryError:
        raise
    except OSError as error:
        raise UnreadableError(error.errno, _describe_access_error(error), path) from None


def _read_regular_file(path: str, most: int | None) -> bytes:
    # Check before opening it, because opening alone has effects on some devices.
    _check_regular(path, os.stat(path), most)  # noqa: PTH116 - hundreds of modules at a key
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(path, os.fstat(descriptor), most)
        data = read_descriptor(descriptor, None if most is None else most + 1)
    finally:
        os.close(descriptor)
    if most is not None and len(data) > most:  # it grew meanwhile, or its size is unknown until it is read
        raise _too_large(path, most)
    return data


def read_descriptor(descriptor: int, most: int | None = None) -> bytes:
    """The bytes of an open file. most: the maximum number."""
    data = bytearray()
    while part := os.read(descriptor, _CHUNK if most is None else min(_CHUNK, most - len(data))):
        data += part
    return bytes(data)


def _check_regular(path: str, found: os.stat_result, most: int | None) -> None:
    for is_kind, name in _KINDS:
        if is_kind(found.st_mode):
            raise UnreadableError(errno.EINVAL, f"This is {name}, not a file.", path)
    if most is not None and found.st_size > most:
        raise _too_large(path, most)


def _too_large(path: str, most: int) -> UnreadableError:
    text = f"This file has more than {most / MIB:g} MiB, and is not traced."
    return UnreadableError(errno.EFBIG, f"{text} Move data and the like to a file of their own.", path)


def _describe_access_error(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "This file is not readable (permission denied); `chmod u+r` makes it readable for its owner."
    if error.errno == errno.ELOOP:
        return "This is a link that leads back to itself."
    return f"This file cannot be read: {error.strerror or error}."
