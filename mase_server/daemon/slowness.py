"""Why a trace is slow, while it is: one line from the moment that a person begins to wonder until it is over.

The seconds are those that the person waited, by the clock: a busy machine makes a trace slow, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mase_server.daemon.death import Place
from mase_server.daemon.phases import Phase, Phases, in_seconds, in_words
from mase_server.daemon.quiet import Quiet
from mase_server.daemon.status import Status
from mase_server.wire import Message

#: Seconds after which a trace is slow.
SLOW = 2.0
#: Seconds between two lines about the same trace.
AGAIN = 1.0
#: The stage under which listeners are told.
STAGE = "slow"


@dataclass(slots=True)
class _Watched:
    """One generation. asked: time.monotonic() when somebody wanted it.  told: was anything said about it?"""

    generation: int
    asked: float
    phases: Phases
    timer: asyncio.TimerHandle | None = None
    told: bool = False
    place: Callable[[], Place | None] = lambda: None


class Slowness(Quiet):
    """Hears how traces go and says why one is slow.

    tell: is given the path and the line.  before: how many traces are to begin before that of a path; 0 where it runs.
    """

    def __init__(self, tell: Callable[[str, str], None], before: Callable[[str], int], slow: float = SLOW) -> None:
        self._tell, self._before, self._slow = tell, before, slow
        self._watched: dict[str, _Watched] = {}

    def status_changed(self, status: Status) -> None:
        """A generation begins, goes on, ends."""
        now = time.monotonic()
        if status.state == "queued":
            self._forget(status.path)
            loop = asyncio.get_running_loop()
            watched = self._watched[status.path] = _Watched(status.generation, now, Phases(now))
            watched.timer = loop.call_later(self._slow, self._look, status.path)
        elif (found := self._watched.get(status.path)) is None or found.generation != status.generation:
            return
        elif status.ended:
            if found.told:
                self._say(status.path, found, found.phases.longest(now), now)
            self._forget(status.path)
        else:
            found.phases.become("starting" if status.state == "starting" else "rest", now)

    def heard(self, path: str, message: Message, place: Callable[[], Place | None]) -> None:
        """The child of a trace tells a phase. place: where in the person's code it was when it was asked last."""
        watched = self._watched.get(path)
        if watched is None:
            return
        at = min(float(message["at"]), time.monotonic())
        if message["kind"]:
            watched.phases.enter(str(message["kind"]), str(message["of"]), at)
        else:
            watched.phases.leave(at)
        watched.place = place

    def phases(self, path: str) -> dict[str, float]:
        """What the time of a trace that runs went to."""
        watched = self._watched.get(path)
        if watched is None:
            return {}
        watched.phases.longest(time.monotonic())
        return watched.phases.told()

    def _look(self, path: str) -> None:
        watched = self._watched.get(path)
        if watched is None:
            return
        watched.timer = asyncio.get_running_loop().call_later(AGAIN, self._look, path)
        now = time.monotonic()
        longest = watched.phases.longest(now)
        present = watched.phases.stack[-1]
        seconds = watched.phases.seconds.get(present, 0.0)
        # What goes on now matters more than what took longer before, once it takes long itself.
        self._say(path, watched, (present, seconds) if seconds >= SLOW else longest, now)

    def _say(self, path: str, watched: _Watched, why: tuple[Phase, float], now: float) -> None:
        watched.told = True
        whole = f"{Path(path).name}: {in_seconds(now - watched.asked)}"
        if watched.phases.stack == [("queued", "")] and (before := self._before(path)):
            self._tell(path, f"{whole}: waiting: {before} {'trace' if before == 1 else 'traces'} before it")
            return
        phase, seconds = why
        runs = phase == watched.phases.stack[-1] and phase[0] in ("running", "constructor")
        self._tell(path, f"{whole}: {in_words(phase, seconds, watched.place() if runs else None)}")

    def _forget(self, path: str) -> None:
        watched = self._watched.pop(path, None)
        if watched is not None and watched.timer is not None:
            watched.timer.cancel()
