"""Manners while a person's code runs: no network, no other programs, no deletions, and writes go to a scratch folder.

A courtesy, not a boundary: code that wants to get around it can. The boundary is workspace trust.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from mase_server.inputs.execution.signals import signals_kept
from mase_server.tracing.loading import lookups

#: Audit events that are refused, and what the person calls them.
REFUSED = {
    "socket.connect": "a network connection",
    "socket.getaddrinfo": "a network address look-up",
    "socket.gethostbyname": "a network address look-up",
    "socket.sendto": "sending over the network",
    "socket.bind": "listening on the network",
    "subprocess.Popen": "starting a program",
    "os.system": "starting a program",
    "os.exec": "starting a program",
    "os.posix_spawn": "starting a program",
    "os.fork": "starting a process",
    "os.forkpty": "starting a process",
    "os.kill": "sending a signal",
    "os.killpg": "sending a signal",
    "signal.pthread_kill": "sending a signal",
    "webbrowser.open": "opening a browser",
}
#: Audit events that change files: refused outside of the folders that are the program's to write. The number of paths
#: among the first arguments.
CHANGES = {
    "os.remove": ("deleting", 1),
    "os.rmdir": ("deleting", 1),
    "shutil.rmtree": ("deleting", 1),
    "os.rename": ("renaming", 2),
    "os.truncate": ("truncating", 1),
    "os.mkdir": ("making the folder", 1),
    "os.link": ("linking", 2),
    "os.symlink": ("linking", 2),
    "os.chmod": ("changing the mode of", 1),
    "os.chown": ("changing the owner of", 1),
    "shutil.move": ("moving", 2),
}
_HEARD = frozenset({*REFUSED, *CHANGES, *lookups.EVENTS})
_WRITING = frozenset("wax+")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RefusedError(PermissionError):
    """Something that a program may not do while its models are looked at."""


class _State:
    """What the audit hook, which can never be removed, acts upon."""

    scratch: Path | None = None
    allowed: tuple[Path, ...] = ()
    installed = False


@contextmanager
def guarded(scratch: str, *also: str) -> Iterator[None]:
    """Refuse what is not needed to look at a model; writes land below `scratch`, in a copy of their path.

    also: other folders that may be written to.
    """
    _install()
    before = _State.scratch, _State.allowed
    home = Path(scratch).resolve()
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(patch.object(builtins, "open", _redirecting(builtins.open, home)))
        stack.enter_context(patch.object(io, "open", _redirecting(io.open, home)))
        stack.enter_context(patch.object(os, "mkdir", _making(os.mkdir, home)))
        # The writer of `torch.save` opens files in C++, where no audit hook sees it.
        stack.enter_context(patch.object(torch, "save", _saving(torch.save, home)))
        stack.enter_context(patch.object(tempfile, "tempdir", str(temporary)))
        stack.enter_context(patch.dict(os.environ, {"TMPDIR": str(temporary)}))
        stack.enter_context(signals_kept())
        allowed = (home, Path("/dev"), *(Path(folder).resolve() for folder in also if folder))
        _State.scratch, _State.allowed = home, allowed
        try:
            yield
        finally:
            _State.scratch, _State.allowed = before


def redirected(path: str, scratch: Path) -> Path:
    """Where a write to `path` goes instead."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links out of the workspace
    return absolute if _allowed(absolute) else scratch / "writes" / absolute.relative_to(absolute.anchor)


def _redirecting(original: Callable[..., Any], scratch: Path) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int):
            return original(file, mode, *args, **kwargs)
        target = redirected(os.fsdecode(file), scratch)
        if _WRITING & set(mode):
            if target != Path(os.path.abspath(os.fsdecode(file))):  # noqa: PTH100 - as in `redirected`
                target.parent.mkdir(parents=True, exist_ok=True)
            return original(target, mode, *args, **kwargs)
        # What the program wrote before, it reads back from where it went.
        return original(target if target.exists() else file, mode, *args, **kwargs)

    return opened


def _saving(original: Callable[..., None], scratch: Path) -> Callable[..., None]:
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, str | os.PathLike):
            f = redirected(os.fsdecode(f), scratch)
            f.parent.mkdir(parents=True, exist_ok=True)
        original(obj, f, *args, **kwargs)

    return save


def _making(original: Callable[..., None], scratch: Path) -> Callable[..., None]:
    def make(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        target = redirected(os.fsdecode(path), scratch)
        if target == Path(os.path.abspath(os.fsdecode(path))) or Path(os.fsdecode(path)).exists():  # noqa: PTH100
            return original(path, mode, dir_fd=dir_fd)
        return target.mkdir(mode, parents=True, exist_ok=True)

    return make


def _allowed(path: Path) -> bool:
    if "__pycache__" in path.parts and "site-packages" in path.parts:
        return True
    return any(path.is_relative_to(folder) for folder in _State.allowed)


def _install() -> None:
    if not _State.installed:
        _State.installed = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _State.scratch is None or event not in _HEARD:  # most are not: every `id` is an event
        return
    if event in REFUSED:
        raise RefusedError(f"{REFUSED[event]} was refused while the model is looked at{_first(args)}")
    if event in CHANGES:
        what, count = CHANGES[event]
        for path in args[:count]:
            _check(path, what)
    elif event == "open" and not isinstance(args[0], int) and _writes(args[1], args[2]):
        _check(args[0], "writing")
    else:
        lookups.heed(event, args)


def _check(path: Any, what: str) -> None:
    if isinstance(path, str | bytes | os.PathLike) and not _allowed(Path(os.path.abspath(os.fsdecode(path)))):  # noqa: PTH100
        raise RefusedError(f"{what} {os.fsdecode(path)!r} was refused while the model is looked at")


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return bool(_WRITING & set(mode))
    return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)


def _first(args: tuple[Any, ...]) -> str:
    shown = [str(arg) for arg in args if isinstance(arg, str | bytes | tuple | list | int)]
    return f": {', '.join(shown[:2])}" if shown else ""
