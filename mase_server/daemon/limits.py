"""Limits on a worker's processes and memory, and detection of hung processes, from what the system tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mase_server.system import PROC, find_descendants, physical_bytes, resident_bytes_of, seconds_waited, stat_of

_GROUPS = Path("/sys/fs/cgroup")


def _list_family(pid: int) -> list[int]:
    return [pid, *find_descendants(pid)]


def exceeds_processes(pid: int, most: int) -> bool:
    """Has `pid` more than `most` descendants? Processes that have ended but were not waited for count, too."""
    return len(find_descendants(pid, most + 1)) > most


async def resident_bytes(pid: int) -> int:
    """Resident memory, in bytes, of `pid` and all its descendants; 0 if it is gone."""
    if PROC.exists():
        return resident_bytes_of(*_list_family(pid))
    return await asyncio.to_thread(lambda: resident_bytes_of(*_list_family(pid)))


def _read_proportional_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    except (OSError, IndexError, ValueError, StopIteration):
        return resident_bytes_of(pid)


async def held_bytes(pid: int, limit: int) -> int:
    """Memory, in bytes, that `pid` and its descendants hold; above `limit`, shared pages are counted once.

    Forks share most of their pages. Counting those is slow, so it runs only near the limit, and off the event loop.
    """
    resident = await resident_bytes(pid)
    if resident <= limit or not (PROC / "self" / "smaps_rollup").exists():
        return resident
    return await asyncio.to_thread(lambda: sum(map(_read_proportional_bytes, _list_family(pid))))


def available_fraction() -> float:
    """The share of memory still available to this machine or its container; 1.0 if unknown."""
    free = [1 - group.used / group.limit for group in _memory_groups() if group.limit]
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
        facts = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
        free.append(facts["MemAvailable"] / facts["MemTotal"])
    except (OSError, KeyError, ValueError, IndexError):
        pass
    return max(0.0, min(free, default=1.0))


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group of this process and its children, such as a container has.

    limit: bytes that it may hold, 0 for no limit.  used: bytes it holds, without files that the system can drop.
    killed: how many of its processes the system has killed because memory ran out.
    """

    limit: int
    used: int
    killed: int


def find_container() -> MemoryGroup | None:
    """The group with the lowest memory limit below the machine's own memory; None if there is none."""
    machine = physical_bytes()
    groups = [group for group in _memory_groups() if 0 < group.limit < machine]
    return min(groups, key=lambda group: group.limit, default=None)


#: The files of a group of version 2 and of version 1: its limit, the bytes it holds, its event counts, and the parts
#: of these bytes; then the name of the part that the system can drop.
_FILES = {
    2: ("memory.max", "memory.current", "memory.events", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "total_inactive_file"),
}


def _memory_groups() -> list[MemoryGroup]:
    """The groups that this process belongs to, including those around a group."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[MemoryGroup] = []
    for number, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if number == "0" and (_GROUPS / "cgroup.controllers").exists():
            found += _iterate_groups(_GROUPS, path, 2)
        elif "memory" in controllers.split(","):
            found += _iterate_groups(_GROUPS / "memory", path, 1)
    return found


def _iterate_groups(mount: Path, path: str, version: int) -> Iterator[MemoryGroup]:
    # Inside a container the path may be the machine's and missing here: then the mount itself is the container.
    inner = mount / path.lstrip("/")
    folder = inner if inner.is_dir() else mount
    limit, used, events, droppable = _FILES[version]
    while True:
        with contextlib.suppress(OSError, ValueError):
            most, held = (folder / limit).read_text().strip(), int((folder / used).read_text())
            held -= _read_counts(folder / "memory.stat").get(droppable, 0)
            killed = _read_counts(folder / events).get("oom_kill", 0)
            yield MemoryGroup(0 if most == "max" else int(most), max(0, held), killed)
        if folder in (mount, folder.parent):
            return
        folder = folder.parent


def _read_counts(file: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in file.read_text().splitlines() if len(words := line.split()) == 2}


# Detect a process that a signal stopped, or that does nothing although its answer is awaited.
#
# Looks are counted instead of seconds, so that time in which this server itself was stopped or starved does not count.

#: Seconds between two looks at a process whose answer is awaited, and at an idle one.
LOOK_SECONDS, IDLE_SECONDS = 1.0, 5.0
#: A process is ended when it is seen stopped so many times in a row,
_STOPPED_LOOKS = 2
#: when it does nothing during so many looks,
_QUIET_LOOKS = 30
#: or when it has computed for so many seconds without answering. Waiting for a processor does not count.
_BUSY_SECONDS = 120.0
#: CPU seconds that still count as no progress: a loop that sleeps and retries a lock uses fewer.
_LEAST_SECONDS = 0.2


class _Work(NamedTuple):
    """The work of a process: seconds it computed, seconds it waited for a processor, bytes it read."""

    computed: float = 0.0
    queued: float = 0.0
    read: int = 0


@dataclass(slots=True)
class Heartbeat:
    """Looks at the process `pid`, about once a second while its answer is awaited."""

    pid: int
    _stopped: int = 0
    _quiet: int = 0
    _asked: Hashable = None
    _began: float = 0.0
    _mark: _Work = field(default_factory=_Work)

    def look(self, asked: Hashable = None) -> str:
        """Why the process has to be ended, as the end of a sentence about it; "" while it may go on.

        asked: identifies the request that it has to answer first; None if there is none.
        """
        letter, computed = stat_of(self.pid)
        if not letter:  # it is gone, which others notice, or the system does not tell
            return ""
        self._stopped = self._stopped + 1 if letter == "T" else 0
        if self._stopped >= _STOPPED_LOOKS:
            return "was stopped by a signal"
        if asked is None:
            self._asked = None
            return ""
        work = _Work(computed, seconds_waited(self.pid), _read_bytes(self.pid))
        if asked != self._asked:
            self._asked, self._began, self._mark, self._quiet = asked, computed, work, 0
        moved = work.computed + work.queued - self._mark.computed - self._mark.queued >= _LEAST_SECONDS
        if letter in ("R", "D") or moved or work.read != self._mark.read:
            self._mark, self._quiet = work, 0
        else:
            self._quiet += 1
        if self._quiet >= _QUIET_LOOKS:
            return f"has done nothing for {_QUIET_LOOKS} s, and did not answer"
        if computed - self._began > _BUSY_SECONDS:
            return f"has computed for {_BUSY_SECONDS:g} s, and did not answer"
        return ""

    @property
    def doubted(self) -> bool:
        """Was the process stopped at the last look?"""
        return self._stopped > 0

    async def missed(self, asked: Hashable) -> str:
        """Wait until the process has to be ended; returns why."""
        while not (why := self.look(asked)):
            await asyncio.sleep(LOOK_SECONDS)
        return why


def _read_bytes(pid: int) -> int:
    try:
        return int(Path(PROC, str(pid), "io").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
