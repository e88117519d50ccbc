"""Waiting for turns: slots for traces, one turn at a time for heavy programs, long work in slices; tasks ended.

More traces may run than there are processors, so that one file that hangs does not block the next. A trace that starts
when all processors are taken is told that it is crowded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from mase_server.system import try_lock


class Slots:
    """A bounded number of turns.  busy: the number of traces, waiting or not, that takes all processors."""

    def __init__(self, count: int, busy: int) -> None:
        self._busy = busy
        self._semaphore = asyncio.Semaphore(count)
        self._waiting: dict[object, str] = {}
        self.running = 0

    @property
    def waiting(self) -> int:
        """The number of waiting traces."""
        return len(self._waiting)

    def before(self, path: str) -> int:
        """The number of traces, running ones included, that come before the trace of `path`; 0 if it does not wait."""
        paths = list(self._waiting.values())
        return paths.index(path) + self.running if path in paths else 0

    @asynccontextmanager
    async def turn(self, path: str) -> AsyncIterator[bool]:
        """Wait for a slot and hold it; yields whether it is crowded."""
        ticket = object()
        self._waiting[ticket] = path
        try:
            await self._semaphore.acquire()
        finally:
            del self._waiting[ticket]
        self.running += 1
        try:
            yield self.running + self.waiting > self._busy
        finally:
            self.running -= 1
            self._semaphore.release()


# Turns on this machine: programs that use all of it run in one process at a time.

#: Seconds between two attempts to get the turn.
_POLL = 0.2


@asynccontextmanager
async def wait_for_turn(lock: Path, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Hold the lock of a file, which other processes may want too. on_wait: called once if another one holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        if not try_lock(file.fileno()):
            on_wait()
            while not try_lock(file.fileno()):
                await asyncio.sleep(_POLL)
        yield


# Long work in slices: it gives all other tasks on the event loop a turn after two milliseconds.

T = TypeVar("T")

#: Seconds after which work pauses, by the clock: on a busy machine the others have waited longer, too.
SLICE = 0.002


class Slices:
    """Call `await slices.pause()` now and then during long work: it gives others a turn when a slice is over."""

    def __init__(self) -> None:
        self._ends = time.perf_counter() + SLICE

    @property
    def over(self) -> bool:
        """Is it time for a pause? This check is cheaper than `pause`."""
        return time.perf_counter() >= self._ends

    async def pause(self) -> None:
        """Give others a turn, if it is time."""
        if self.over:
            await asyncio.sleep(0)
            self._ends = time.perf_counter() + SLICE


async def iterate_in_slices(found: Iterable[T]) -> AsyncIterator[T]:
    """Iterate over everything, with pauses in between."""
    slices = Slices()
    for each in found:
        yield each
        if slices.over:
            await slices.pause()


def let_go(parts: list[Any]) -> None:
    """Empty this list, one part per turn of the loop: freeing everything at once would block it for long."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # nobody waits: the loop has ended, or belongs to another thread
    if parts:
        parts.pop()
        loop.call_soon(let_go, parts)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks and wait until all have ended, however they do."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
