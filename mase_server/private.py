"""Folders and files that are this user's alone: made, checked, read, written whole, and changed by one at a time.

Whoever can write to a folder decides what is in it: what is kept there is believed, and some of it is executed, only
if nobody else can. As with OpenSSH's StrictModes, the check covers the folders above as well, up to the home folder or
the root: who can write to one of these can put another folder in the place of ours. Each has to belong to this user or
to root, and nobody else may write to it, its user's private group aside; above, a sticky one such as /tmp will do,
since nobody renames there what is not theirs. Where all of this holds, no other user can exchange anything between the
check and the use.

Standard library only: the trace child checks in a person's interpreter.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

#: Where a system has no such locks, processes take turns by a file that only one of them can make.
_HAS_LOCKS = find_spec("fcntl") is not None
_SHORTEST_TOKEN = 16
#: What nobody else may do: write; or write, read and enter.
_WRITE, _ANYTHING = 0o022, 0o077
#: Seconds that one change waits for others at most, and between two tries.
_PATIENCE, _POLL = 20.0, 0.005
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class NotPrivate(OSError):
    """Something that has to be this user's alone is not; the text says what, and what to do."""


def own_folder(path: Path) -> Path:
    """The folder `path`, made where it is not there. NotPrivate where somebody else can write to it; OSError."""
    return _folder(path, _WRITE)


def private_folder(path: Path) -> Path:
    """The same for what nobody else may read either, such as sockets and tokens."""
    return _folder(path, _ANYTHING)


def _folder(path: Path, forbidden: int) -> Path:
    path = path.absolute()
    if os.name != "posix":
        path.mkdir(parents=True, exist_ok=True)
        return path
    _check_above(path)
    _make(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise NotPrivate(f"{path} is no folder; remove it") from error
        raise
    try:
        _check(path, os.fstat(descriptor), "folder", forbidden)
    finally:
        os.close(descriptor)
    return path


def _make(path: Path) -> None:
    if not path.parent.exists():
        _make(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def _check_above(path: Path) -> None:
    """NotPrivate where somebody else can exchange `path`, by its own name or through a link on the way to it."""
    homes = {Path(os.path.expanduser("~")), Path(os.path.expanduser("~")).resolve()}  # noqa: PTH111 - never fails
    for nearest in dict.fromkeys((path.parent, path.parent.resolve())):
        for folder in (nearest, *nearest.parents):
            with contextlib.suppress(FileNotFoundError):
                _check_one_above(path, folder, folder.stat())
            if folder in homes:
                break


def _check_one_above(path: Path, folder: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.getuid(), 0):
        raise NotPrivate(f"{path} lies in {folder}, which belongs to user {found.st_uid}; choose another place")
    writers = found.st_mode & _WRITE
    if writers & stat.S_IWGRP and _is_of_one(found):
        writers &= ~stat.S_IWGRP
    if writers and not found.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(found.st_mode)
        raise NotPrivate(
            f"{path} lies in {folder}, where other users can write (mode {mode:o}); run chmod go-w {folder}"
        )


def _is_of_one(found: os.stat_result) -> bool:
    """Is the group of a folder the private one of its user: of the same name, and with nobody else in it?"""
    import grp  # not on every system
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _check(path: Path, found: os.stat_result, kind: str, forbidden: int) -> None:
    if not (stat.S_ISDIR if kind == "folder" else stat.S_ISREG)(found.st_mode):
        raise NotPrivate(f"{path} is no {kind}; remove it")
    if os.name != "posix":
        return
    if found.st_uid != os.getuid() and (forbidden == _ANYTHING or found.st_uid != 0):
        raise NotPrivate(f"{path} belongs to user {found.st_uid}, not to this one; remove it")
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden & ~_WRITE:
        raise NotPrivate(f"{path} is open to other users (mode {mode:o}); run chmod go= {path}")
    if mode & forbidden:
        raise NotPrivate(f"{path} can be written by other users (mode {mode:o}); remove it, or run chmod go-w {path}")


def read_own(path: str | Path) -> bytes:
    """The bytes of a file that nobody else can write; NotPrivate, or OSError where it is not there."""
    return _read(Path(path), _WRITE, -1)


def read_private(path: Path, limit: int = 1 << 16) -> str:
    """The text of a file that only this user can read; NotPrivate, or OSError where it is not there."""
    return _read(path, _ANYTHING, limit).decode("utf-8", "replace")


def _read(path: Path, forbidden: int, limit: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPrivate(f"{path} is no file; remove it") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        _check(path, os.fstat(descriptor), "file", forbidden)
        return file.read(limit)


def write_whole(path: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all, in place of what is there; OSError names it and says why not."""
    try:
        with _written(path, text) as made:
            made.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _written(path: Path, text: str) -> Iterator[Path]:
    """A file beside `path` with this text, gone at the end of the block if it still has its name."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


@contextlib.contextmanager
def changing(path: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Read, change and write the kept file `path` in this block, while no other process of this user does.

    Its folder is made where it is not there, and has to be this user's own. NotPrivate; TimeoutError after `patience`
    seconds; OSError where nothing can be written.
    """
    lock = own_folder(path.parent) / f".{path.name}.{'lock' if _HAS_LOCKS else 'held'}"
    end = time.monotonic() + patience
    while (held := _held(lock)) is None:
        if time.monotonic() > end:
            mend = "" if _HAS_LOCKS else f"; if there is none, remove {lock}"
            raise TimeoutError(errno.ETIMEDOUT, f"another process has been changing {path} for {patience:g} s{mend}")
        time.sleep(_POLL)
    try:
        yield
    finally:
        if not _HAS_LOCKS:
            lock.unlink(missing_ok=True)
        os.close(held)


def _held(lock: Path) -> int | None:
    """A descriptor that holds the lock until it is closed, however that comes to be; None while another one does."""
    flags = os.O_RDWR | os.O_CREAT | _NO_FOLLOW
    if not _HAS_LOCKS:
        with contextlib.suppress(FileExistsError):
            return os.open(lock, flags | os.O_EXCL, 0o600)
        return None
    descriptor = os.open(lock, flags, 0o600)
    if take(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def take(descriptor: int) -> bool:
    """Take the lock of an open file, until it is closed; False where another process has it."""
    import fcntl  # not on every system

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def token_of(path: Path) -> str:
    """The token in a file, which is made with a fresh one where it is not there. ValueError for a short one."""
    try:
        token = read_private(path).strip()
    except FileNotFoundError:
        try:
            with contextlib.suppress(FileExistsError), _written(path, secrets.token_urlsafe(32) + "\n") as made:
                path.hardlink_to(made)  # of two servers that begin at once, one makes it
        except OSError as error:
            raise OSError(error.errno, f"cannot write a token: {path} cannot be written: {error.strerror}") from error
        token = read_private(path).strip()
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"the token in {path} has {len(token)} characters, {_SHORTEST_TOKEN} are the fewest")
    return token


def is_token(said: object, token: str) -> bool:
    """Is what a client said the token? Takes as long for one that is nearly right."""
    text = said if isinstance(said, str) else ""
    return hmac.compare_digest(text.encode("utf-8", "replace"), token.encode())
