"""Taking turns on this machine: what uses all of it is done by one process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mase_server.private import take

#: Seconds between two looks whether it is our turn.
_POLL = 0.2


@asynccontextmanager
async def turn(lock: Path, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Hold the lock of a file, which other processes may want too. on_wait: is called once if somebody has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        if not take(file.fileno()):
            on_wait()
            while not take(file.fileno()):
                await asyncio.sleep(_POLL)
        yield
