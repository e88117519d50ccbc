"""Taking turns on this machine: what uses all of it is done by one process at a time."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

#: Seconds between two looks whether it is our turn.
_POLL = 0.2


@asynccontextmanager
async def turn(lock: Path, on_wait: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Hold the lock of a file, which other processes may want too. on_wait: is called once if somebody has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        if not _is_taken(file):
            on_wait()
            while not _is_taken(file):
                await asyncio.sleep(_POLL)
        yield


def _is_taken(file: IO[str]) -> bool:
    """Is it ours now? It is given back when the file is closed, also by a process that is killed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
