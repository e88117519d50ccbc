"""When another process ends."""

from __future__ import annotations

import asyncio
import contextlib
import os

#: Seconds between two looks where the system does not tell.
_POLL = 2.0


async def process_end(pid: int) -> None:
    """Return once the process `pid` is gone."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            await _pidfd_end(os.pidfd_open(pid))
            return
    while _alive(pid):
        await asyncio.sleep(_POLL)


async def _pidfd_end(descriptor: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
