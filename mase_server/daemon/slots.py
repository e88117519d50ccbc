"""How many traces run at once; the others wait in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """So many may run at once."""

    def __init__(self, count: int) -> None:
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
    async def turn(self, path: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        ticket = object()
        self._waiting[ticket] = path
        try:
            await self._semaphore.acquire()
        finally:
            del self._waiting[ticket]
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._semaphore.release()
