"""Process groups, parents and orphans, as a worker sees them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Container
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


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
