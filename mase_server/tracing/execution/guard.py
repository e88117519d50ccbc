"""Limits while the user's code runs: no network, no other programs, no deletions, and writes go to a scratch folder.

They are a courtesy, not a boundary: code that wants to get around them can. The boundary is workspace trust. This
module also keeps the trace's signals, limits the memory of guesses, and measures a program's own time.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from mase_server.system import ALARM, seconds_waited, signals_named
from mase_server.tracing.importing import lookups
from mase_server.tracing.importing.importer import owns
from mase_server.tracing.importing.source import find_fixed_text

#: Refused audit events, and the user's words for them.
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
#: Audit events that change files, refused outside of the folders that the program may write to -> the number of paths
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
#: A command that installs a package, and the status with which a shell ends that may not run it.
_INSTALLING = re.compile(r"\b(pip3?|conda|mamba|uv|apt|apt-get)\b.*\binstall\b")
_NOT_RUN = 126 << 8
_HEARD = frozenset({*REFUSED, *CHANGES, *lookups.EVENTS})
_WRITING = frozenset("wax+")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RefusedError(PermissionError):
    """A program tried something that is not allowed while its models are traced."""


def find_refusal(error: BaseException) -> RefusedError | None:
    """The refusal behind an error, even if a library replaced it by an error of its own.

    A function that was refused something may go on, and raise an error that knows nothing of it, for example when it
    has tried all addresses.
    """
    found: object = error
    while not isinstance(found, RefusedError):
        if not isinstance(found, BaseException):
            return _find_earlier_refusal(error)
        found = found.__cause__ or found.__context__ or getattr(found, "reason", None)
    return found


def _find_earlier_refusal(error: BaseException) -> RefusedError | None:
    """The last refusal, if the function of a library that raised an error had been refused something in that call."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if _State.refused is None or not frames or "site-packages" not in frames[-1].f_code.co_filename:
        return None
    refusal, calls = _State.refused
    return refusal if any(frame is frames[-1] for frame in calls) else None


def _make_refusal(text: str) -> RefusedError:
    """The error of a refusal, noted with the calls in which it happened."""
    calls, frame = list[FrameType](), sys._getframe(2)
    while frame.f_back is not None:
        calls.append(frame)
        frame = frame.f_back
    refusal = RefusedError(text)
    _State.refused = refusal, calls
    return refusal


class _State:
    """The state of the audit hook, which can never be removed."""

    scratch: Path | None = None
    allowed: tuple[Path, ...] = ()
    installed = False
    #: The last refusal, and the calls that it happened in.
    refused: tuple[RefusedError, list[FrameType]] | None = None


class Replaced:
    """Inside, attributes of an object have other values. `mock.patch` does the same in twenty times as long."""

    def __init__(self, owner: Any, values: Mapping[str, Any]) -> None:
        self._owner, self._values = owner, values

    def __enter__(self) -> None:
        own = vars(self._owner)
        self._before = [(name, own.get(name, _INHERITED)) for name in self._values]
        for name, value in self._values.items():
            setattr(self._owner, name, value)

    def __exit__(self, *raised: object) -> None:
        for name, value in self._before:
            if value is _INHERITED:
                delattr(self._owner, name)
            else:
                setattr(self._owner, name, value)


_INHERITED = object()


@contextmanager
def change_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Inside, the environment has these values too; afterwards all of it is as before, whatever the program set.

    `patch.dict` would write every variable again, and to read one decodes it: they are compared as they are kept.
    """
    environ = os.environ
    kept = getattr(environ, "_data", environ)  # an earlier run may have put a plain dict there
    before = dict(kept)
    environ.update(values)
    try:
        yield
    finally:
        for name in kept.keys() - before.keys():
            del environ[os.fsdecode(name)]
        for name, value in before.items():
            if kept.get(name) != value:
                environ[os.fsdecode(name)] = os.fsdecode(value)


@contextmanager
def guard_program(scratch: str, *also: str) -> Iterator[None]:
    """Refuse operations that tracing a model does not need; writes go to copies of their paths below `scratch`.

    also: other folders that may be written to.
    """
    _install_audit_hook()
    before = _State.scratch, _State.allowed
    home = Path(scratch).resolve()
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(Replaced(builtins, {"open": _redirect_open(builtins.open, home)}))
        stack.enter_context(Replaced(io, {"open": _redirect_open(io.open, home)}))
        others = {"mkdir": _redirect_mkdir(os.mkdir, home), "system": _refuse_installing(os.system)}
        stack.enter_context(Replaced(os, others))
        # The writer of `torch.save` opens files in C++, where no audit hook sees it.
        stack.enter_context(Replaced(torch, {"save": _redirect_save(torch.save, home)}))
        stack.enter_context(Replaced(tempfile, {"tempdir": str(temporary)}))
        stack.enter_context(change_environment({"TMPDIR": str(temporary)}))
        stack.enter_context(signals_kept())
        allowed = (home, Path("/dev"), *(Path(folder).resolve() for folder in also if folder))
        _State.scratch, _State.allowed, _State.refused = home, allowed, None
        try:
            yield
        finally:
            _State.scratch, _State.allowed = before


def redirect_path(path: str, scratch: Path) -> Path:
    """The path to which a write to `path` is redirected."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links out of the workspace
    return absolute if _is_allowed(absolute) else scratch / "writes" / absolute.relative_to(absolute.anchor)


def _redirect_open(original: Callable[..., Any], scratch: Path) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int):
            return original(file, mode, *args, **kwargs)
        path = Path(os.path.abspath(os.fsdecode(file)))  # noqa: PTH100 - as in `redirect_path`
        target = redirect_path(str(path), scratch)
        if _WRITING & set(mode):
            if target != path:
                target.parent.mkdir(parents=True, exist_ok=True)
            return original(target, mode, *args, **kwargs)
        # The program reads its own earlier writes back from the redirected path.
        if target != path and target.exists():
            return original(target, mode, *args, **kwargs)
        text = find_fixed_text(str(path))
        if text is None:
            return original(file, mode, *args, **kwargs)
        sys.audit("open", str(path), mode, os.O_RDONLY)  # the trace depends on the file all the same
        held = scratch / "texts" / path.relative_to(path.anchor)
        held.parent.mkdir(parents=True, exist_ok=True)
        held.write_bytes(text)
        return original(held, mode, *args, **kwargs)

    return opened


def _redirect_save(original: Callable[..., None], scratch: Path) -> Callable[..., None]:
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, str | os.PathLike):
            f = redirect_path(os.fsdecode(f), scratch)
            f.parent.mkdir(parents=True, exist_ok=True)
        original(obj, f, *args, **kwargs)

    return save


def _redirect_mkdir(original: Callable[..., None], scratch: Path) -> Callable[..., None]:
    def make(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        target = redirect_path(os.fsdecode(path), scratch)
        if target == Path(os.path.abspath(os.fsdecode(path))) or Path(os.fsdecode(path)).exists():  # noqa: PTH100
            return original(path, mode, dir_fd=dir_fd)
        return target.mkdir(mode, parents=True, exist_ok=True)

    return make


def _refuse_installing(original: Callable[[Any], int]) -> Callable[[Any], int]:
    """A shell in which installing fails, as it does without a network: the import that follows says what is missing."""

    def system(command: Any) -> int:
        return _NOT_RUN if _INSTALLING.search(str(command)) else original(command)

    return system


def _is_allowed(path: Path) -> bool:
    if "__pycache__" in path.parts and "site-packages" in path.parts:
        return True
    return any(path.is_relative_to(folder) for folder in _State.allowed)


def _install_audit_hook() -> None:
    if not _State.installed:
        _State.installed = True
        sys.addaudithook(_audit_event)


def _audit_event(event: str, args: tuple[Any, ...]) -> None:
    if _State.scratch is None or event not in _HEARD:  # most events are not: every `id` is one
        return
    if event in REFUSED:
        raise _make_refusal(f"{REFUSED[event]} was refused while the model is traced{_format_arguments(args)}")
    if event in CHANGES:
        what, count = CHANGES[event]
        for path in args[:count]:
            _refuse_unless_allowed(path, what)
    elif event == "open" and not isinstance(args[0], int) and _is_writing(args[1], args[2]):
        _refuse_unless_allowed(args[0], "writing")
    else:
        lookups.handle_audit_event(event, args)


def _refuse_unless_allowed(path: Any, what: str) -> None:
    if isinstance(path, str | bytes | os.PathLike) and not _is_allowed(Path(os.path.abspath(os.fsdecode(path)))):  # noqa: PTH100
        raise _make_refusal(f"{what} {os.fsdecode(path)!r} was refused while the model is traced")


def _is_writing(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return bool(_WRITING & set(mode))
    return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)


def _format_arguments(args: tuple[Any, ...]) -> str:
    shown = [str(arg) for arg in args if isinstance(arg, str | bytes | tuple | list | int)]
    return f": {', '.join(shown[:2])}" if shown else ""


# Signals that a trace child needs itself: its own alarm, and the questions for its current line.
#
# Training scripts install handlers for them: an alarm around a download, SIGUSR1 of a batch system that ends the run.
# These would replace ours. They are accepted and never called: nothing sends such a signal to a program.

#: By name, because Windows has none of them.
_OURS = frozenset((ALARM, *signals_named("SIGUSR1", "SIGUSR2")))


@contextmanager
def signals_kept() -> Iterator[None]:
    """Inside, a program's handlers for our signals, and its timers of that kind, are accepted and never used."""
    values = {"signal": _wrap_signal(signal.signal)}
    if hasattr(signal, "setitimer"):
        values |= {"setitimer": _wrap_setitimer(signal.setitimer), "alarm": lambda seconds: 0}
    with Replaced(signal, values):
        yield


def _wrap_signal(original: Callable[..., Any]) -> Callable[..., Any]:
    told: dict[int, Any] = {}

    def install(signalnum: int, handler: Any) -> Any:
        if signalnum not in _OURS:
            return original(signalnum, handler)
        before = told.get(signalnum, signal.SIG_DFL)
        told[signalnum] = handler
        return before

    return install


def _wrap_setitimer(original: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(signal, "ITIMER_REAL", 0)

    def setitimer(which: int, seconds: float, interval: float = 0.0) -> Any:
        return (0.0, 0.0) if which == real else original(which, seconds, interval)

    return setitimer


# A program's own running time, without waiting for a processor or for the import of a library.

#: Seconds between two measurements.
TICK = 0.5
#: A program that uses a smaller share of a processor sleeps or waits; one that uses a larger share lacks processor
#: time.
_ASLEEP = 0.05
#: The share of its usual time that an unchanged program gets if it used up all of it last time.
AGAIN = 0.05
#: The share of a program's time that the statements of a file that it imports may take, until one of them is ended.
IMPORT_SHARE = 0.2


def program_of(tree: ast.Module) -> str:
    """A digest of a file without its classes: the part that stays the same while a model is edited."""
    program = ast.Module([each for each in tree.body if not isinstance(each, ast.ClassDef)], [])
    return hashlib.sha256(ast.dump(program).encode()).hexdigest()


class OwnTime:
    """The time that a program had a processor, or wanted none."""

    def __init__(self) -> None:
        self._wall, self._processor, self._waited = time.monotonic(), time.process_time(), seconds_waited()

    def passed(self) -> tuple[float, float]:
        """Since the last call: seconds of its own, and by the clock."""
        wall, processor, waits = time.monotonic(), time.process_time(), seconds_waited()
        passed, used = wall - self._wall, processor - self._processor
        own = used if used > _ASLEEP * passed else passed
        own = max(0.0, min(own, passed - (waits - self._waited)))
        self._wall, self._processor, self._waited = wall, processor, waits
        return own, passed


class SlowImportError(TimeoutError):
    """A statement at the top of an imported file takes too much of the program's time."""


class Patience:
    """Counts a program's own seconds, tick by tick. excused: is called with seconds that do not count.

    path: the program; the top level of every other file of the workspace is an import.
    """

    def __init__(self, seconds: float, folder: str, excused: Callable[[float], None], path: str = "") -> None:
        self._left, self._folder, self._excused, self._path = seconds, folder, excused, path
        self._time = OwnTime()
        #: The code of the imported file whose top level runs, the seconds that it took so far, and those that it may.
        self._imported: CodeType | None = None
        self._spent, self._most, self._is_slow = 0.0, seconds * IMPORT_SHARE, False

    def is_over(self, frame: FrameType | None) -> bool:
        """Has the program used up its seconds, now that it is at `frame`?"""
        own, passed = self._time.passed()
        if importing := self.imports_library(frame):
            own = 0.0
        self._left -= own
        imported = self._find_imported(frame)
        self._spent = self._spent + own if imported is self._imported else own
        self._imported = imported
        self._is_slow = imported is not None and self._spent > self._most and not importing
        if passed - own > TICK / 10:
            self._excused(passed - own)
        return self._left <= 0

    def end_slow_import(self) -> None:
        """SlowImportError if the imported file that ran at the last tick has used its share, and no library's import
        would be broken."""
        if self._is_slow:
            raise SlowImportError(f"was ended after {self._spent:.2g} s")

    def _find_imported(self, frame: FrameType | None) -> CodeType | None:
        """The innermost file of the workspace whose top level runs, unless it is the program itself."""
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and owns(self._folder, code.co_filename):
                return None if code.co_filename == self._path else code
            frame = frame.f_back
        return None

    def imports_library(self, frame: FrameType | None) -> bool:
        """Is the innermost code of the workspace waiting for an import of something else?"""
        importing = False
        while frame is not None:
            name = frame.f_code.co_filename
            if owns(self._folder, name):
                return importing
            importing = importing or name.startswith("<frozen importlib")
            frame = frame.f_back
        return False
