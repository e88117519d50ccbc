"""Process groups, parents and orphans, as a worker sees them.

A trace child adopts the orphans of its descendants, so that they count as its own in memory and in number; the warm
parent adopts those of trace children and kills them until none appears. So a grandchild in a session of its own ends
with the trace that started it. A group is killed before its leader is reaped, so no signal can meet a reused id.
"""

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

#: Bytes of one file that traced code may write; what it writes is thrown away.
MOST_WRITTEN = 1 << 30
#: Added to a process's badness, of at most 1000, when the system chooses which one to kill for lack of memory.
_EXPENDABLE = "500"
#: Further processes and threads that the user may start.
MOST_STARTED = 1000
#: Descriptors that a process may have open at once, even if the system allows more.
MOST_OPEN = 4096


def leave_no_core() -> None:
    """Prevent this process, and those it starts, from dumping core: the files would hold weights and keys."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def small_files(most: int = MOST_WRITTEN) -> Iterator[None]:
    """While this lasts, a file grows to `most` bytes at most: writing more raises OSError, EFBIG."""
    if sys.platform == "win32":
        yield
        return
    with _lower_limit(resource.RLIMIT_FSIZE, most):
        yield


@contextlib.contextmanager
def _lower_limit(limit: int, most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(limit)
    allowed = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(limit, (min([most, *allowed]), hard))
    try:
        yield
    finally:
        resource.setrlimit(limit, (soft, hard))


@contextlib.contextmanager
def few_processes(more: int = MOST_STARTED) -> Iterator[None]:
    """While this lasts, starting a process or thread beyond `more` raises OSError, EAGAIN, here and in started
    processes.

    The system counts all of the user's processes on the machine; root has no limit.
    """
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        yield
        return
    with _lower_limit(resource.RLIMIT_NPROC, running + more):
        yield


def few_descriptors(most: int = MOST_OPEN) -> None:
    """Limit this process, and those it starts, to `most` open files: each takes kernel memory."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft > most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def die_first() -> None:
    """If memory runs out, have the system end this process, and those it starts, before the server and the editor."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_EXPENDABLE)


@contextlib.contextmanager
def be_called(name: str) -> Iterator[None]:
    """Inside, the system's lists of processes show this one under another name, of at most 15 characters (Linux)."""
    own = Path("/proc/self/comm")
    with contextlib.suppress(OSError):
        before = own.read_text()
        own.write_text(name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, UnboundLocalError):
            own.write_text(before)


def _call_prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def die_with_parent(parent: int) -> None:
    """Be killed when `parent`, the process that started this one, ends (Linux; elsewhere the wire's end tells)."""
    hear_of_parents_end(signal.SIGKILL, parent)


def hear_of_parents_end(number: signal.Signals, parent: int) -> None:
    """Get this signal when `parent`, the process that started this one, ends; at once if it has ended (Linux)."""
    _call_prctl(_PR_SET_PDEATHSIG, number)
    if sys.platform == "linux" and os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of processes that this process's descendants leave behind (Linux), so that they can be
    ended."""
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def count_threads() -> int:
    """The number of threads in this process, including those of C libraries if the system tells."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


_lost_threads = False


def fork_process() -> int:
    """Fork as `os.fork` does, but the child of a process with several threads computes with one thread.

    A fork has only the forking thread. A thread pool that computed before, such as OpenMP's, still believes in its
    threads there and waits for them forever.
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
    """Can this process use several threads? Not if it, or a process above it, lost a pool in a fork."""
    return not _lost_threads


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that `pid` leads, or only `pid` if it leads none; do nothing if it is gone."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_group(pid: int) -> None:
    """Call `signal_group` with SIGKILL."""
    signal_group(pid, signal.SIGKILL)
