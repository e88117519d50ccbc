"""Long work in slices: whoever does it gives all others on the event loop their turn after two milliseconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds after which work pauses. By the clock: on a busy machine others have waited for longer, too.
SLICE = 0.002


class Slices:
    """`await slices.pause()` now and then while working: a turn of the loop where a slice is over, else nothing."""

    def __init__(self) -> None:
        self._ends = time.perf_counter() + SLICE

    @property
    def over(self) -> bool:
        """Is it time for a pause? Asked alone it costs less than `pause`."""
        return time.perf_counter() >= self._ends

    async def pause(self) -> None:
        """Let others have their turn, if it is time."""
        if self.over:
            await asyncio.sleep(0)
            self._ends = time.perf_counter() + SLICE


async def sliced(found: Iterable[T]) -> AsyncIterator[T]:
    """Everything that an iterable gives, with pauses in between."""
    slices = Slices()
    for each in found:
        yield each
        if slices.over:
            await slices.pause()


def let_go(parts: list[Any]) -> None:
    """Drop what is in this list, a part in each turn of the loop: freeing all of it at once makes a long one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return  # nobody waits: the loop has ended, or it is another thread's
    if parts:
        parts.pop()
        loop.call_soon(let_go, parts)
