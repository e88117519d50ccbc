"""Private folders and files of this user: create, check, read, write whole, and change them one process at a time.

A user who can write to a folder controls its content. The server trusts files there, and executes some, only if nobody
else can write to them. As with OpenSSH's StrictModes, the check includes the folders above, up to the home folder or
the root: a user who can write to one of these can replace our folder. Each must belong to this user or to root, and
nobody else may write to it, except the user's private group; folders above may also be sticky, like /tmp, because
users cannot rename each other's files there. If all this holds, no other user can exchange anything between the check
and the use.

Standard library only: the trace child makes these checks in a user's interpreter.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import platformdirs

from mase_server.reading import read_descriptor
from mase_server.system import HAS_LOCKS, is_of_one, try_lock, user_id

_SHORTEST_TOKEN = 16
#: Permissions that others must not have: to write; or to write, read and enter.
_WRITE, _ANYTHING = 0o022, 0o077
#: Maximum seconds that a change waits for others, and seconds between two attempts.
_PATIENCE, _POLL = 20.0, 0.005
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class NotPrivate(OSError):
    """A path that must be this user's alone is not; the text says which, and what to do."""


def own_folder(path: Path) -> Path:
    """The folder `path`, created if missing. NotPrivate if somebody else can write to it; OSError."""
    return _check_folder(path, _WRITE)


def private_folder(path: Path) -> Path:
    """The same for folders that others must not read either, such as those of sockets and tokens."""
    return _check_folder(path, _ANYTHING)


def _check_folder(path: Path, forbidden: int) -> Path:
    path = path.absolute()
    if user_id() is None:
        path.mkdir(parents=True, exist_ok=True)
        return path
    _check_above(path)
    _make_folder(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise NotPrivate(f"{path} is no folder; remove it") from error
        raise
    try:
        _check_ownership(path, os.fstat(descriptor), "folder", forbidden)
    finally:
        os.close(descriptor)
    return path


def _make_folder(path: Path) -> None:
    if not path.parent.exists():
        _make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def _check_above(path: Path) -> None:
    """Raise NotPrivate if somebody else can exchange `path`, by its own name or through a link on the way to it."""
    homes = {Path(os.path.expanduser("~")), Path(os.path.expanduser("~")).resolve()}  # noqa: PTH111 - never fails
    for nearest in dict.fromkeys((path.parent, path.parent.resolve())):
        for folder in (nearest, *nearest.parents):
            with contextlib.suppress(FileNotFoundError):
                _check_one_above(path, folder, folder.stat())
            if folder in homes:
                break


def _check_one_above(path: Path, folder: Path, found: os.stat_result) -> None:
    if found.st_uid not in (user_id(), 0):
        raise NotPrivate(f"{path} lies in {folder}, which belongs to user {found.st_uid}; choose another place")
    writers = found.st_mode & _WRITE
    if writers & stat.S_IWGRP and is_of_one(found):
        writers &= ~stat.S_IWGRP
    if writers and not found.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(found.st_mode)
        raise NotPrivate(
            f"{path} lies in {folder}, where other users can write (mode {mode:o}); run chmod go-w {folder}"
        )


def _check_ownership(path: str | Path, found: os.stat_result, kind: str, forbidden: int) -> None:
    if not (stat.S_ISDIR if kind == "folder" else stat.S_ISREG)(found.st_mode):
        raise NotPrivate(f"{path} is no {kind}; remove it")
    if user_id() is None:
        return
    if found.st_uid != user_id() and (forbidden == _ANYTHING or found.st_uid != 0):
        raise NotPrivate(f"{path} belongs to user {found.st_uid}, not to this one; remove it")
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden & ~_WRITE:
        raise NotPrivate(f"{path} is open to other users (mode {mode:o}); run chmod go= {path}")
    if mode & forbidden:
        raise NotPrivate(f"{path} can be written by other users (mode {mode:o}); remove it, or run chmod go-w {path}")


def read_own(path: str | Path) -> bytes:
    """The bytes of a file that nobody else can write; NotPrivate, or OSError if it is missing."""
    return _read_checked(path, _WRITE, None)


def read_private(path: Path, limit: int = 1 << 16) -> str:
    """The text of a file that only this user can read; NotPrivate, or OSError if it is missing."""
    return _read_checked(path, _ANYTHING, limit).decode("utf-8", "replace")


def _read_checked(path: str | Path, forbidden: int, limit: int | None) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPrivate(f"{path} is no file; remove it") from error
        raise
    try:
        _check_ownership(path, os.fstat(descriptor), "file", forbidden)
        return read_descriptor(descriptor, limit)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Write a file of mode 0600, completely or not at all, replacing an old one.

    OSError names the file and the reason.
    """
    try:
        with _write_temporary(path, text) as made:
            made.replace(path)
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _write_temporary(path: Path, text: str) -> Iterator[Path]:
    """A temporary file beside `path` with this text, removed at the end of the block unless it was renamed."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


@contextlib.contextmanager
def change_file(path: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Read, change and write the stored file `path` in this block, while no other process of this user does.

    Its folder is created if missing, and must be private. NotPrivate; TimeoutError after `patience` seconds;
    OSError if writing fails.
    """
    lock = own_folder(path.parent) / f".{path.name}.{'lock' if HAS_LOCKS else 'held'}"
    end = time.monotonic() + patience
    while (held := _try_to_hold(lock)) is None:
        if time.monotonic() > end:
            mend = "" if HAS_LOCKS else f"; if there is none, remove {lock}"
            raise TimeoutError(errno.ETIMEDOUT, f"another process has been changing {path} for {patience:g} s{mend}")
        time.sleep(_POLL)
    try:
        yield
    finally:
        if not HAS_LOCKS:
            lock.unlink(missing_ok=True)
        os.close(held)


def _try_to_hold(lock: Path) -> int | None:
    """A descriptor that holds the lock until it is closed, even by a crash; None while another process holds it."""
    flags = os.O_RDWR | os.O_CREAT | _NO_FOLLOW
    if not HAS_LOCKS:
        with contextlib.suppress(FileExistsError):
            return os.open(lock, flags | os.O_EXCL, 0o600)
        return None
    descriptor = os.open(lock, flags, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def token_of(path: Path) -> str:
    """The token in a file; a missing file is created with a fresh one. ValueError for a short token."""
    try:
        token = read_private(path).strip()
    except FileNotFoundError:
        try:
            with contextlib.suppress(FileExistsError), _write_temporary(path, secrets.token_urlsafe(32) + "\n") as made:
                path.hardlink_to(made)  # if two servers start at once, one creates it
        except OSError as error:
            raise OSError(error.errno, f"cannot write a token: {path} cannot be written: {error.strerror}") from error
        token = read_private(path).strip()
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(f"the token in {path} has {len(token)} characters, {_SHORTEST_TOKEN} are the fewest")
    return token


def is_token(said: object, token: str) -> bool:
    """Is the client's value the token? The comparison takes the same time for one that is nearly right."""
    text = said if isinstance(said, str) else ""
    return hmac.compare_digest(text.encode("utf-8", "replace"), token.encode())


# The folders where the server keeps data between runs, by the system's conventions.

_NAME = "mase-server"
_LOG = logging.getLogger(__name__)


def cache_dir() -> Path:
    """The folder of data that can be made again: learned preloads, rewritten bytecode, simulation programs.

    Some of it is executed. If somebody else could have written to the usual folder, a fresh one is used.
    """
    usual = usual_cache_dir()
    try:
        return own_folder(usual)
    except NotPrivate as error:
        return _instead_of_cache(str(error))
    except OSError:
        return usual  # it cannot be made; the code that stores something reports that


def usual_cache_dir() -> Path:
    """The usual cache folder, or a fresh one if others can write there."""
    return _usual_or_fresh_folder(platformdirs.user_cache_dir, "cache")


def state_dir() -> Path:
    """The folder of the user's decisions, i.e. trust. Data that somebody else could have written is ignored."""
    return _usual_or_fresh_folder(platformdirs.user_state_dir, "state")


def _usual_or_fresh_folder(usual: Callable[..., str], kind: str) -> Path:
    """The usual folder.

    A user without a home, as in some containers, gets a fresh one, because others know fixed names.
    """
    with contextlib.suppress(RuntimeError):  # older versions of platformdirs return a relative path instead
        if (path := Path(usual(_NAME, appauthor=False))).is_absolute():
            return path
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-{kind}-"))


@cache
def _instead_of_cache(why: str) -> Path:
    _LOG.warning("nothing is kept from one run to the next: %s", why)
    return Path(tempfile.mkdtemp(prefix="mase-scratch-cache-"))  # removed like scratch folders


def describe_os_error(error: OSError) -> str:
    """The text of an error for users, with the file that it is about, if known."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said
