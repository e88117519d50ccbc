"""The processes that a process started, as /proc tells: who they are, which are stopped, and the end of all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
#: Seconds that `end_descendants` chases what goes on making processes.
_CHASE_SECONDS = 3.0
_LOOK_SECONDS = 0.002
#: States, as `state` gives them, of processes that have ended, and of those that start no other one.
_ENDED = ("", "Z", "X")
_STILL = (*_ENDED, "T", "t")


def children(pid: int) -> list[int]:
    """The children of `pid`, zombies among them, as far as the kernel tells (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    # A process may end between any two of these; then it has no children any more.
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a Path for each takes half of the time
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def descendants(pid: int, most: int = sys.maxsize, spare: Container[int] = ()) -> list[int]:
    """What `pid` started, apart from its children `spare`, what that started and so on; so many of them at most."""
    found: list[int] = []
    todo = [one for one in children(pid) if one not in spare]
    while todo and len(found) < most:
        one = todo.pop()
        found.append(one)
        todo += children(one)
    return found


def stat_of(pid: int) -> tuple[str, float]:
    """The letter of `pid`'s state in /proc, such as R, S, D, T and Z, and the seconds that it has computed.

    "" and 0.0 where the process is gone, or the system does not tell.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, ValueError, IndexError):
        return "", 0.0


def state(pid: int) -> str:
    """The letter of `pid`'s state, see `stat_of`."""
    return stat_of(pid)[0]


def is_stopped(pid: int) -> bool:
    """Has a signal such as SIGSTOP stopped `pid`? A debugger that looks at it has not."""
    return state(pid) == "T"


def end_descendants(pid: int, spare: Container[int] = (), seconds: float = _CHASE_SECONDS) -> bool:
    """Kill all that `pid` started, apart from its children `spare`; False if some of it was left after `seconds`.

    A process that forks faster than others are killed would outrun the killer. So each is stopped first, and asked for
    its children then, in rounds, until a round finds no new one. Only then all are killed.
    """
    end = time.monotonic() + seconds
    with _ahead_of_others():
        while alive := _stop_all(pid, spare, end):
            for one in alive:
                _send(one, signal.SIGKILL)
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
    return True


def end_family(pid: int, words: Callable[[], object], seconds: float = 0.2) -> None:
    """Kill `pid`, a worker, and all that it started. It is asked for its line before, and has `seconds` to say it.

    words: what it has said so far, which is another value once it has said it.
    """
    with _ahead_of_others():
        _stop(pid)  # or it would go on starting others
        end_descendants(pid)
        before, end = words(), time.monotonic() + seconds
        _send(pid, signal.SIGUSR2)
        _send(pid, signal.SIGCONT)
        while words() == before and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        _stop(pid)
        end_descendants(pid)
        _send(pid, signal.SIGKILL)


def _stop(pid: int, seconds: float = 1.0) -> None:
    """Stop a process, and wait until it has stopped."""
    end = time.monotonic() + seconds
    _send(pid, signal.SIGSTOP)
    while state(pid) not in _STILL and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)


def _stop_all(pid: int, spare: Container[int], end: float) -> list[int]:
    """Stop what `pid` started, in rounds until one finds nothing that runs, or it is `end`; those that are alive."""
    stopped: dict[int, str] = {}
    while (running := _running(descendants(pid, spare=spare), stopped)) and time.monotonic() < end:
        while running and time.monotonic() < end:
            for one in running:
                _send(one, signal.SIGSTOP)
                # One in the middle of a fork ends that first: its children are complete once it is seen to stand still.
                stopped[one] = state(one)
            below = [child for one in running for child in children(one)]
            fresh = [one for one in below if one not in stopped]
            if not fresh:
                time.sleep(_LOOK_SECONDS)  # those that are to stop have to get a processor
            running = [*_running(running, stopped), *fresh]
    return [one for one, letter in stopped.items() if letter not in _ENDED]


def _running(found: Iterable[int], stopped: dict[int, str]) -> list[int]:
    return [one for one in found if stopped.get(one) not in _STILL]


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """Run this thread ahead of all others where the system allows it: a thousand processes leave it no time else."""
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
