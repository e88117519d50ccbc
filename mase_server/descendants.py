"""A process's descendants in /proc: list them, look at their states, end all of them; and low priorities.

Not psutil: it has a C extension, and a package of pure Python serves every platform and Python that the editor's
extension meets. A trace child uses this module in the person's interpreter, which has only what the person installed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
#: Seconds that `end_descendants` tries to end processes that keep starting others.
_CHASE_SECONDS = 3.0
_LOOK_SECONDS = 0.002
#: States from `process_state` of processes that have ended, and of those that start no others.
_ENDED = ("", "Z", "X")
_STILL = (*_ENDED, "T", "t")


def find_children(pid: int) -> list[int]:
    """The children of `pid`, zombies included, as far as the kernel reports them (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    # A process may end between any two of these calls; then it has no children any more.
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a Path for each takes half of the time
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def find_descendants(pid: int, most: int = sys.maxsize, spare: Container[int] = ()) -> list[int]:
    """The descendants of `pid`, except those under its children `spare`; at most `most`."""
    found: list[int] = []
    todo = [one for one in find_children(pid) if one not in spare]
    while todo and len(found) < most:
        one = todo.pop()
        found.append(one)
        todo += find_children(one)
    return found


def _read_stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; OSError if the process is gone, or the system has no /proc."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def stat_of(pid: int) -> tuple[str, float]:
    """The letter of `pid`'s state in /proc, such as R, S, D, T and Z, and its CPU seconds.

    Returns "" and 0.0 if the process is gone, or the system does not report it.
    """
    try:
        fields = _read_stat(pid)
        return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, ValueError, IndexError):
        return "", 0.0


def start_of(pid: int) -> str:
    """The start time of a process, in the system's clock ticks; "" if it is gone or unknown."""
    try:
        return _read_stat(pid)[19]
    except (OSError, IndexError):
        return ""


def resident_bytes_of(pid: int) -> int:
    """Resident memory of one process, including pages that it shares; 0 if it is gone or unknown."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


def process_state(pid: int) -> str:
    """The letter of `pid`'s state, see `stat_of`."""
    return stat_of(pid)[0]


def is_stopped(pid: int) -> bool:
    """Has a signal such as SIGSTOP stopped `pid`? Being stopped by a debugger does not count."""
    return process_state(pid) == "T"


def end_descendants(pid: int, spare: Container[int] = (), seconds: float = _CHASE_SECONDS) -> bool:
    """Kill all descendants of `pid` except those under `spare`; False if some are left after `seconds`.

    A process that forks faster than others are killed would escape. So each one is stopped first, and then its
    children are listed, in rounds, until a round finds no new one. Only then all are killed.
    """
    end = time.monotonic() + seconds
    with _ahead_of_others():
        while alive := _stop_all(pid, spare, end):
            for one in alive:
                _send_signal(one, signal.SIGKILL)
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
    return True


def end_family(pid: int, words: Callable[[], object], seconds: float = 0.2) -> None:
    """Kill `pid`, a worker, and its descendants. Before that, it has `seconds` to write down its current line.

    words: returns its text so far, which changes once it has written the line.
    """
    with _ahead_of_others():
        _stop_process(pid)  # otherwise it would go on starting others
        end_descendants(pid)
        before, end = words(), time.monotonic() + seconds
        _send_signal(pid, signal.SIGUSR2)
        _send_signal(pid, signal.SIGCONT)
        while words() == before and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        _stop_process(pid)
        end_descendants(pid)
        _send_signal(pid, signal.SIGKILL)


def _stop_process(pid: int, seconds: float = 1.0) -> None:
    """Stop a process, and wait until it is stopped."""
    end = time.monotonic() + seconds
    _send_signal(pid, signal.SIGSTOP)
    while process_state(pid) not in _STILL and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)


def _stop_all(pid: int, spare: Container[int], end: float) -> list[int]:
    """Stop the descendants of `pid`, in rounds, until none runs or the time is `end`; returns the live ones."""
    stopped: dict[int, str] = {}
    while (running := _running_processes(find_descendants(pid, spare=spare), stopped)) and time.monotonic() < end:
        while running and time.monotonic() < end:
            for one in running:
                _send_signal(one, signal.SIGSTOP)
                # A process in the middle of a fork ends it first: its children are complete once it is seen to be
                # stopped.
                stopped[one] = process_state(one)
            below = [child for one in running for child in find_children(one)]
            fresh = [one for one in below if one not in stopped]
            if not fresh:
                time.sleep(_LOOK_SECONDS)  # the processes to be stopped need a processor
            running = [*_running_processes(running, stopped), *fresh]
    return [one for one, letter in stopped.items() if letter not in _ENDED]


def _running_processes(found: Iterable[int], stopped: dict[int, str]) -> list[int]:
    return [one for one in found if stopped.get(one) not in _STILL]


def _send_signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal every process of the group that `pid` leads; does nothing if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """Run this thread before all others, if the system allows it: a thousand processes leave it no time otherwise."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (AttributeError, OSError):  # no Linux, or not privileged
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


# Priorities on a busy machine, and how long a process waited for a processor.

#: The default increment of `nice`.
LOW = 10
#: That of work for a text that somebody is typing: it yields to other programs, but is waited for.
TYPED = 4


def lower(process: int = 0, by: int = LOW) -> None:
    """Give `process`, or this one, and its later children a lower priority; does nothing if it is gone.

    Linux may first share its processors between sessions (autogroup, the default on desktops): niceness then counts
    only among the tasks of one session, so the leader of a session must get it for the session as well.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, by)
    with contextlib.suppress(OSError):
        leader = process or os.getpid()
        if sys.platform == "linux" and os.getsid(leader) == leader:  # not for all that the user started
            Path(f"/proc/{leader}/autogroup").write_text(str(by))


def seconds_waited(process: int = 0) -> float:
    """Seconds in which the main thread of `process`, or of this one, was ready but had no processor.

    Returns 0.0 if the system does not report it: it is in Linux's /proc/PID/schedstat.
    """
    try:
        return int(Path(f"/proc/{process or 'self'}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
