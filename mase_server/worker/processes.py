"""Process groups, parents and orphans, as a worker sees them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Container, Iterator
from pathlib import Path

if sys.platform != "win32":
    import resource

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Bytes of one file that a person's code may write while it is traced: what it writes is thrown away.
MOST_WRITTEN = 1 << 30


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
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    own = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (own, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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


def kill_strays(known: Container[int]) -> None:
    """Kill every child of this process that is not `known`: orphans that left their group and were adopted."""
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError, ValueError):
        for pid in map(int, task.read_text().split()):
            if pid not in known:
                kill_group(pid)
