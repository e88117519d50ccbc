"""Notices a process that a signal stopped, or that does nothing though something waits for its answer.

Looks are counted, not seconds, so that nobody is blamed for time in which this server was itself stopped or starved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mase_server.descendants import stat_of
from mase_server.priority import waited

#: Seconds between two looks at a process that something waits for, and at one that is idle.
LOOK_SECONDS, IDLE_SECONDS = 1.0, 5.0
#: A process is ended when it is seen stopped so many times in a row,
_STOPPED_LOOKS = 2
#: when it does nothing during so many looks,
_QUIET_LOOKS = 30
#: or when it has computed for so many seconds without giving the answer. What it waits for a processor does not count.
_BUSY_SECONDS = 120.0
#: Seconds of computing that are no progress: a loop that sleeps and asks for a lock again takes fewer.
_LEAST_SECONDS = 0.2


class _Work(NamedTuple):
    """What a process has done: seconds that it computed, seconds that it waited for a processor, bytes that it read."""

    computed: float = 0.0
    queued: float = 0.0
    read: int = 0


@dataclass(slots=True)
class Heartbeat:
    """Looks at the process `pid`, about once a second while something waits for it."""

    pid: int
    _stopped: int = 0
    _quiet: int = 0
    _asked: Hashable = None
    _began: float = 0.0
    _mark: _Work = field(default_factory=_Work)

    def look(self, asked: Hashable = None) -> str:
        """Why the process has to be ended, as what it did; "" while it may go on.

        asked: names what it has to answer first, None where nothing waits for it.
        """
        letter, computed = stat_of(self.pid)
        self._stopped = self._stopped + 1 if letter == "T" else 0
        if self._stopped >= _STOPPED_LOOKS:
            return "was stopped by a signal"
        if asked is None:
            self._asked = None
            return ""
        work = _Work(computed, waited(self.pid), _read_bytes(self.pid))
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
        """Was the process stopped when it was looked at last?"""
        return self._stopped > 0

    async def missed(self, asked: Hashable) -> str:
        """Wait until the process has to be ended; why."""
        while not (why := self.look(asked)):
            await asyncio.sleep(LOOK_SECONDS)
        return why


def _read_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
