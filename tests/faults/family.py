"""All processes that a server started, directly or not, as /proc tells: whatever they did to hide."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from mase_server.worker.parent import WAITING

#: A variable that the server gets and all below it inherit; its value is different for every server.
MARK = "MASE_FAULTS_MARK"


@dataclass(frozen=True)
class Process:
    """A process that runs. started: ticks since the machine's start, so that a number used again is another process."""

    pid: int
    started: int
    parent: int
    command: str
    #: Does it wait for the next trace, with nothing of a person's in it?
    waits: bool = False

    def signal(self, number):
        """Send it a signal, unless its number is another process's by now."""
        if (now := look(self.pid)) is not None and now.started == self.started:
            os.kill(self.pid, number)

    def kill(self):
        """End it."""
        self.signal(signal.SIGKILL)


def look(pid: int) -> Process | None:
    """The process with this number; None where none runs (zombies do not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        waits = Path(f"/proc/{pid}/comm").read_text().strip() == WAITING
    except OSError:
        return None
    return None if stat[0] in "ZX" else Process(pid, int(stat[19]), int(stat[1]), command.strip(), waits)


def is_stopped(process: Process) -> bool:
    """Has a signal stopped it?"""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def everyone() -> list[Process]:
    """Every process that runs on this machine."""
    found = (look(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [each for each in found if each is not None]


def bears(process: Process, mark: str) -> bool:
    """Was it, or what it was forked from, started with this mark?"""
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def family(mark: str, server: int) -> frozenset[Process]:
    """What runs with this mark, the server first of all, and what descends from that with no mark at all."""
    processes = everyone()
    found = {each.pid: each for each in processes if each.pid == server or bears(each, mark)}
    while more := [each for each in processes if each.parent in found and each.pid not in found]:
        found |= {each.pid: each for each in more}
    return frozenset(found.values())


async def until(condition, seconds=60.0, every=0.02):
    """What `condition()` gives once it is true; an AssertionError with its last value after `seconds`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not (found := condition()):
        assert loop.time() < end, f"not true within {seconds:g} s: {condition}"
        await asyncio.sleep(every)
    return found
