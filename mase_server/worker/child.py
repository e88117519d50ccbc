"""The trace child: runs one trace for one file, then answers calls about the live graphs until the wire ends."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TextIO

from mase_server import priority, snapshot, wire
from mase_server.snapshot import Problem
from mase_server.worker import processes
from mase_server.worker.jobs import load_job
from mase_server.worker.request import TraceRequest

FAULT_FILE = "fault.txt"
_PERHAPS = "perhaps the file changes what everything uses, such as a builtin or a function of the standard library."


def wait_and_run(connection: wire.Connection, job: str) -> NoReturn:
    """Become the child of the first trace request that arrives; never returns, whatever user code does."""
    status = wire.BROKEN
    try:
        status = _run(connection, job)
    except (OSError, wire.WireError):
        status = wire.LOST_WIRE  # if the server is gone, nobody is left to read it
    except BaseException:  # noqa: BLE001  (the process's border: whatever it is, it must not climb into the parent's loop)
        traceback.print_exc()
    finally:
        _real_exit(status)


def _run(connection: wire.Connection, job: str) -> int:
    become_own_group()
    message = connection.read()
    if message is None:
        return 0
    request = TraceRequest.from_wire(message["request"])
    if request.gently:
        priority.lower()
    if request.scratch:
        guard_faults(Path(request.scratch))
    live = trace(connection, request, job)
    serve(connection, live)
    return 0


def become_own_group() -> None:
    """Lead an own process group, die with the parent, and meet signals as a fresh process would.

    It adopts the processes that its descendants leave behind, so that they count as its own.
    """
    parent = os.getppid()
    if os.getpgid(0) != os.getpid():  # a spare was started as a leader
        os.setsid()
    processes.die_with_parent(parent)
    processes.adopt_orphans()
    processes.few_descriptors()
    processes.die_first()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # until `guard_faults` gives it a meaning


# As they are before the person's code can exchange them.
_real_exit, _own_id, _clock = os._exit, os.getpid, time.perf_counter


def guard_faults(scratch: Path) -> None:
    """Have crashes, `os._exit`, SIGUSR1 and SIGUSR2 write the Python line they met to `scratch/fault.txt`.

    SIGUSR1 is answered between two bytecodes, so it may be sent at any time. SIGUSR2 is answered at once, in C code
    too, but walking the frames of a running interpreter may crash it: it is for a child about to be killed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    fault = (scratch / FAULT_FILE).open("w", buffering=1)
    faulthandler.enable(fault, all_threads=False)
    faulthandler.register(signal.SIGUSR2, fault, all_threads=False)
    signal.signal(signal.SIGUSR1, lambda number, frame: faulthandler.dump_traceback(fault, all_threads=False))
    os._exit = _tell_exit(fault)  # type: ignore[assignment]


def _tell_exit(fault: TextIO) -> Callable[[int], NoReturn]:
    pid = os.getpid()

    def _exit(status: int) -> NoReturn:
        if os.getpid() == pid:
            fault.write(f"os._exit({status!r})\n")
            faulthandler.dump_traceback(fault, all_threads=False)
        _real_exit(status)

    return _exit


def trace(connection: wire.Connection, request: TraceRequest, job: str) -> object:
    """Run the job and send what it emits, its snapshots in frames; the live models, None after a failure."""
    started, owner = _clock(), _own_id()

    def emit(message: dict[str, Any]) -> None:
        if _own_id() != owner:
            _real_exit(0)  # a fork that the code made, and that goes on as if it were this process
        if "payload" not in message:
            connection.send(message)
            return
        for frame in snapshot.split(message["payload"]):
            connection.send({"event": "snapshot", "frame": frame})

    live = None
    try:
        with processes.small_files(), processes.few_processes():
            live = load_job(job)(request, emit)
    except BaseException as error:  # noqa: BLE001  (user code ran in there; its SystemExit is a failed trace too)
        emit({"event": "failed", "problem": asdict(describe(error, request.path))})
    emit({"event": "done", "seconds": _clock() - started, "request": request.name})
    return live


def describe(error: BaseException, path: str) -> Problem:
    """A plain diagnostic for an exception that the job let through, at the innermost line of `path`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    known = type(error).__module__.startswith("mase_server.")  # it tells what it is about
    match vars(error).get("place"):  # the person's own exceptions may have anything under this name
        case (str(file), int(told)) if file == path:
            lines, known = [told], True
    line = (lines[-1] if lines else None) or 1
    if isinstance(error, OSError) and error.filename == path and not lines:
        text = f"{error.strerror}: {path} was there a moment ago. It is traced again as soon as it can be read."
        return Problem(path, 1, 0, 2, 0, "error", "unreadable", text)
    text = str(error) if known else "".join(traceback.format_exception_only(error)).strip()
    if not lines and not known:
        text += f". No line of this file raised it: {_PERHAPS}"
    code = "exited" if isinstance(error, SystemExit) else "exception"
    return Problem(path, line, 0, line + 1, 0, "error", code, f"Tracing stopped: {text}").bounded()


def serve(connection: wire.Connection, live: object) -> None:
    """Answer calls about the live models until the server closes the wire."""
    # Where user code replaced the job by a stand-in, torch may be missing.
    from mase_server.worker.transforms.service import Service

    Service(connection, live).serve()
