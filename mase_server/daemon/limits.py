"""How many processes a worker has and how much memory they hold, read from /proc, or from `ps` where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mase_server.descendants import descendants
from mase_server.programs import program

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")


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
    """The share of this machine's memory that is still available, or of the container's; 1.0 if it cannot be told."""
    free = [1 - group.used / group.limit for group in _memory_groups() if group.limit]
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        facts = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
        free.append(facts["MemAvailable"] / facts["MemTotal"])
    except (OSError, KeyError, ValueError, IndexError):
        pass
    return max(0.0, min(free, default=1.0))


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group that this process and its children are in, as a container has one.

    limit: bytes that it may hold, 0 for any number.  used: that it holds, without files that the system can drop.
    killed: how many of its processes the system has killed for want of memory.
    """

    limit: int
    used: int
    killed: int


def container() -> MemoryGroup | None:
    """The group with the lowest limit of memory below the machine's own; None where there is none."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * _PAGE
    except (OSError, ValueError):
        return None
    groups = [group for group in _memory_groups() if 0 < group.limit < machine]
    return min(groups, key=lambda group: group.limit, default=None)


#: The files of a group of version 2 and of version 1: its limit, what it holds, the counts of events, the parts of what
#: it holds; and of these the files that the system can drop.
_FILES = {
    2: ("memory.max", "memory.current", "memory.events", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "total_inactive_file"),
}


def _memory_groups() -> list[MemoryGroup]:
    """The groups that this process is in, those around a group included."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[MemoryGroup] = []
    for number, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if number == "0" and (_GROUPS / "cgroup.controllers").exists():
            found += _groups(_GROUPS, path, 2)
        elif "memory" in controllers.split(","):
            found += _groups(_GROUPS / "memory", path, 1)
    return found


def _groups(mount: Path, path: str, version: int) -> Iterator[MemoryGroup]:
    # Inside a container the path may be one of the machine, which is not there: then the mount itself is the container.
    inner = mount / path.lstrip("/")
    folder = inner if inner.is_dir() else mount
    limit, used, events, droppable = _FILES[version]
    while True:
        with contextlib.suppress(OSError, ValueError):
            most, held = (folder / limit).read_text().strip(), int((folder / used).read_text())
            held -= _counts(folder / "memory.stat").get(droppable, 0)
            killed = _counts(folder / events).get("oom_kill", 0)
            yield MemoryGroup(0 if most == "max" else int(most), max(0, held), killed)
        if folder in (mount, folder.parent):
            return
        folder = folder.parent


def _counts(file: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in file.read_text().splitlines() if len(words := line.split()) == 2}
