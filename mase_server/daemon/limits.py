"""How many processes a worker has and how much memory they hold, read from /proc, or from `ps` where there is none."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from mase_server.descendants import descendants
from mase_server.programs import program

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


def _family(pid: int) -> list[int]:
    return [pid, *descendants(pid)]


def exceeds_processes(pid: int, most: int) -> bool:
    """Has `pid` more than `most` descendants? What has ended and was not waited for counts, too."""
    return len(descendants(pid, most + 1)) > most


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


async def resident_bytes(pid: int) -> int:
    """Resident memory, in bytes, of `pid` and all it started; 0 where it is gone."""
    if (_PROC / "self" / "statm").exists():
        return sum(_resident(one) for one in _family(pid))
    command = program("ps", "-o", "rss=", "-g", str(pid))
    process = await command.start_async(stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
    out, _ = await process.communicate()
    return sum(int(line) for line in out.split() if line.isdigit()) * 1024


def _proportional(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    except (OSError, IndexError, ValueError, StopIteration):
        return _resident(pid)


async def held_bytes(pid: int, limit: int) -> int:
    """Memory that `pid` and all it started hold, in bytes; above `limit` what they share is counted once.

    Forks share most of their pages. Counting that is slow, so it is done where it decides, and beside the event loop.
    """
    resident = await resident_bytes(pid)
    if resident <= limit or not (_PROC / "self" / "smaps_rollup").exists():
        return resident
    return await asyncio.to_thread(lambda: sum(map(_proportional, _family(pid))))


def available_fraction() -> float:
    """The share of this machine's memory that is still available; 1.0 where it cannot be told."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        facts = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
        return facts["MemAvailable"] / facts["MemTotal"]
    except (OSError, KeyError, ValueError, IndexError):
        return 1.0
