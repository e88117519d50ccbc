"""Folders and files that are this user's alone. Nothing planted by somebody else is followed or believed."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
import struct
from pathlib import Path

from mase_server.directories import write_whole

_SHORTEST_TOKEN = 16


class NotPrivate(OSError):
    """Something that has to be this user's alone is not; the text says what, and what to do."""


def private_folder(path: Path) -> Path:
    """The folder `path`, made where it is not there. NotPrivate for a link, another's folder, or one open to others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _check(path, path.lstat(), stat.S_ISDIR, "folder")
    return path


def _check(path: Path, found: os.stat_result, is_kind: object, kind: str) -> None:
    assert callable(is_kind)
    if not is_kind(found.st_mode):
        raise NotPrivate(f"{path} is no {kind}; remove it")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise NotPrivate(f"{path} belongs to user {found.st_uid}, not to this one; remove it")
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        raise NotPrivate(f"{path} is open to other users (mode {stat.S_IMODE(found.st_mode):o}); run chmod go= {path}")


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all, in place of what is there."""
    write_whole(path, text)


def read_private(path: Path, limit: int = 1 << 16) -> str:
    """The text of a file that only this user can read; NotPrivate, or OSError where it is not there."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        _check(path, os.fstat(descriptor), stat.S_ISREG, "file")
        return file.read(limit).decode("utf-8", "replace")


def token_of(path: Path) -> str:
    """The token in a file, which is made with a fresh one where it is not there. ValueError for a short one."""
    try:
        token = read_private(path).strip()
    except FileNotFoundError:
        token = secrets.token_urlsafe(32)
        try:
            write_private(path, token + "\n")
        except OSError as error:
            raise OSError(error.errno, f"cannot write a token: {error.strerror}") from error
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"the token in {path} has {len(token)} characters, {_SHORTEST_TOKEN} are the fewest")
    return token


def is_token(said: object, token: str) -> bool:
    """Is what a client said the token? Takes as long for one that is nearly right."""
    text = said if isinstance(said, str) else ""
    return hmac.compare_digest(text.encode("utf-8", "replace"), token.encode())


def is_own(made: socket.socket | None) -> bool:
    """Is the process at the other end of a Unix socket this user's, or root's? True where the system does not tell."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if made is None or option is None or made.family != socket.AF_UNIX:
        return True
    _, user, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return user in (os.getuid(), 0)
