"""Process groups, parents and orphans, as a worker sees them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import resource

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Bytes of one file that a person's code may write while it is traced: what it writes is thrown away.
MOST_WRITTEN = 1 << 30
#: Of the thousand by which the system's choice can be moved.
_EXPENDABLE = "500"
#: Processes and threads that the user may have more than at its start, before it gets no more.
MOST_STARTED = 1000
#: Descriptors that it may have open at once, where the system would let it have more.
MOST_OPEN = 4096


def leave_no_core() -> None:
    """Have no crash of this process, or of one that it starts, write its memory to the disk, with weights and keys."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def small_files(most: int = MOST_WRITTEN) -> Iterator[None]:
    """While this lasts, a file grows to `most` bytes and no further: whoever writes more gets an OSError, EFBIG."""
    if sys.platform == "win32":
        yield
        return
    with _lowered(resource.RLIMIT_FSIZE, most):
        yield


@contextlib.contextmanager
def _lowered(limit: int, most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(limit)
    allowed = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(limit, (min([most, *allowed]), hard))
    try:
        yield
    finally:
        resource.setrlimit(limit, (soft, hard))


@contextlib.contextmanager
def few_processes(more: int = MOST_STARTED) -> Iterator[None]:
    """While this lasts, this process and what it starts get an OSError, EAGAIN, for a process or thread beyond `more`.

    The system counts those of the user, on all of the machine; root is not held to it.
    """
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        yield
        return
    with _lowered(resource.RLIMIT_NPROC, running + more):
        yield


def few_descriptors(most: int = MOST_OPEN) -> None:
    """Let this process, and what it starts, have no more files open at once than `most`: each takes kernel memory."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft > most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def die_first() -> None:
    """Have the system end this process, and what it starts, before the server and the editor where memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_EXPENDABLE)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def die_with_parent(parent: int) -> None:
    """Be killed when the process `parent`, which started this one, ends (Linux; elsewhere the wire's end tells)."""
    hear_of_parents_end(signal.SIGKILL, parent)


def hear_of_parents_end(number: signal.Signals, parent: int) -> None:
    """Get this signal when the process `parent`, which started this one, ends; at once where it has (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if sys.platform == "linux" and os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of whatever this process's descendants leave behind (Linux), so that it can be ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def count_threads() -> int:
    """How many threads this process has, those of C libraries included where the system tells."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


_lost_threads = False


def fork() -> int:
    """As `os.fork`, but the child of a process with several threads computes with one from then on.

    A fork has the forking thread alone. Of a pool that computed before, such as OpenMP's, it believes that it is there,
    and waits for it without end.
    """
    global _lost_threads
    several = count_threads() > 1
    pid = os.fork()
    if pid == 0 and several:
        _lost_threads = True
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)
    return pid


def may_compute_with_threads() -> bool:
    """Would several threads come? Not where this process or one above it lost a pool in a fork."""
    return not _lost_threads


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that `pid` leads, or `pid` alone where it leads none; nothing where it is gone."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_group(pid: int) -> None:
    """`signal_group` with SIGKILL."""
    signal_group(pid, signal.SIGKILL)
