"""One model file: its generations, the trace that runs, the child that is kept, and what is allowed after crashes."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from mase_server.daemon.freshness import Freshness
from mase_server.daemon.source import Source
from mase_server.daemon.status import Status
from mase_server.daemon.supervisor import TraceWorker
from mase_server.worker.request import TraceOptions

CRASHES = 5
CRASH_SECONDS = 180.0
#: Not as the folder of sockets begins, which may lie beside these, and is never thrown away.
_SCRATCH = "mase-scratch-"
_USER = os.getuid() if hasattr(os, "getuid") else 0
_SCRATCH_SECONDS = 7 * 24 * 3600.0


@dataclass(slots=True)
class Tracked:
    """A file that somebody is or was interested in. `source` is the newest content asked for.

    openers: who looks at it now: the editor, connections of other tools.  interpreter: that traced it last, "" before.
    request: that asked for the newest generation, see `observe.requests`.  later: traces it again, after a pause.
    """

    path: str
    folder: str
    options: TraceOptions | None = None
    openers: set[str] = field(default_factory=set)
    source: Source = field(default_factory=lambda: Source(b"", ""))
    generation: int = 0
    asked_at: float = 0.0
    status: Status | None = None
    task: asyncio.Task[None] | None = None
    worker: TraceWorker | None = None
    interpreter: str = ""
    request: str = ""
    instrument: tuple[str, ...] = ()
    freshness: Freshness = field(default_factory=Freshness)
    later: asyncio.TimerHandle | None = None
    fit: bytes | None = None
    used_at: float = 0.0
    rereads: int = 0
    crashes: deque[float] = field(default_factory=lambda: deque(maxlen=CRASHES))
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def open(self) -> bool:
        """Does anybody look at it?"""
        return bool(self.openers)

    @property
    def live(self) -> bool:
        """Is there a child that holds the graphs which are shown?"""
        return self.worker is not None and self.worker.live

    def next_generation(self, source: Source) -> int:
        """Begin a generation for `source`."""
        self.source = source
        self.generation += 1
        self.asked_at = self.used_at = time.monotonic()
        self.ended.clear()
        return self.generation

    def may_start(self) -> bool:
        """False after CRASHES crashes within CRASH_SECONDS."""
        recent = [at for at in self.crashes if time.monotonic() - at < CRASH_SECONDS]
        return len(recent) < CRASHES


def make_scratch() -> str:
    """A fresh private folder for what user code writes; OSError where there can be none."""
    try:
        return tempfile.mkdtemp(prefix=_SCRATCH)
    except FileNotFoundError:
        tempfile.tempdir = None  # the folder that was chosen at the start is not there any more: choose another one
        return tempfile.mkdtemp(prefix=_SCRATCH)


def clean_scratch() -> None:
    """Remove what servers that were killed left behind, once it is so old that no trace can still use it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        try:
            found = folder.lstat()
            if found.st_uid == _USER and time.time() - found.st_mtime > _SCRATCH_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


async def retire(worker: TraceWorker) -> None:
    """End a worker and throw its scratch folder away."""
    worker.retired = True
    await worker.stop()
    await asyncio.to_thread(shutil.rmtree, worker.request.scratch, True)
