"""How many traces run at once; the others wait in the order in which they came.

More may run than there are processors, so that one file that hangs does not hold up the next. Where that many do, who
comes then is told that it is crowded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """So many may run at once.  busy: so many, those that wait included, take all processors; above it is crowded."""

    def __init__(self, count: int, busy: int) -> None:
        self._busy = busy
        self._semaphore = asyncio.Semaphore(count)
        self._waiting: dict[object, str] = {}
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def before(self, path: str) -> int:
        """How many are to begin before the trace of `path`, those that run included; 0 where it does not wait."""
        paths = list(self._waiting.values())
        return paths.index(path) + self.running if path in paths else 0

    @asynccontextmanager
    async def turn(self, path: str) -> AsyncIterator[bool]:
        """Wait for a slot, and hold it; is it crowded?"""
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
