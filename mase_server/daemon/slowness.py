"""Say why a trace is slow while it runs: one line, from the moment a user begins to wonder until the trace ends.

Seconds are by the clock, as the user waits them: a busy machine makes a trace slow, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mase_server.daemon.death import Place
from mase_server.daemon.status import Listener, Status
from mase_server.protocol.wire import Message

# The time of one trace by phase, and a text about the longest phase.

#: Maximum number of different phases in one trace; a further one counts for the phase around it.
_PHASES = 64
_DEPTH = 32
#: Seconds from which on a phase is logged.
_LEAST = 0.01
_NAME = 60

#: kind of phase -> its name in texts; {of} is its subject.
WORDS = {
    "queued": "waiting for its turn",
    "starting": "starting Python with torch",
    "import": "importing {of}",
    "running": "running {of}",
    "constructor": "constructing a model",
    "inputs": "looking for inputs of {of}",
    "forward": "running {of}",
    "sizes": "running {of} at other sizes",
    "proof": "trying a fix",
    "passes": "applying passes",
    "rest": "preparing the next step",
}
#: kind of phase -> what a user can do about it.
ADVICE = {"inputs": "give them with # mase:"}

Phase = tuple[str, str]


@dataclass(slots=True)
class Phases:
    """Seconds of each phase, without the phases inside it. since: time.monotonic() of the last change."""

    since: float
    stack: list[Phase] = field(default_factory=lambda: [("queued", "")])
    seconds: dict[Phase, float] = field(default_factory=dict)

    def become(self, kind: str, at: float) -> None:
        """The trace as a whole enters this phase."""
        self._add_seconds(at)
        self.stack = [(kind, "")]

    def enter(self, kind: str, of: str, at: float) -> None:
        """A phase begins inside the running one.

        The number of phases is bounded here, because a child may send anything.
        """
        self._add_seconds(at)
        known = kind in WORDS and len(self.stack) < _DEPTH
        self.stack.append((kind, of[:_NAME]) if known else self.stack[-1])

    def leave(self, at: float) -> None:
        """The innermost phase ends."""
        self._add_seconds(at)
        if len(self.stack) > 1:
            self.stack.pop()

    def longest(self, now: float) -> tuple[Phase, float]:
        """The longest phase so far, and its seconds."""
        self._add_seconds(now)
        phase = max(self.seconds, key=lambda one: self.seconds[one], default=self.stack[-1])
        return phase, self.seconds.get(phase, 0.0)

    def told(self) -> dict[str, float]:
        """Seconds by kind of phase, for the log: with names of imported modules, without names from the user's code."""
        told: dict[str, float] = {}
        for (kind, of), took in self.seconds.items():
            name = f"import {of}" if kind == "import" else kind
            told[name] = told.get(name, 0.0) + took
        return {name: took for name, took in told.items() if took >= _LEAST}

    def _add_seconds(self, at: float) -> None:
        phase = self.stack[-1]
        if phase not in self.seconds and len(self.seconds) >= _PHASES:
            phase = ("rest", "")
        self.seconds[phase] = self.seconds.get(phase, 0.0) + max(0.0, at - self.since)
        self.since = max(self.since, at)


def in_words(phase: Phase, place: Place | None = None) -> str:
    """A phase as a part of a sentence, e.g. "importing transformers". place: its place in the user's code."""
    kind, of = phase
    inside = f" in {place.function}" if place and place.function not in ("", "<module>") else ""
    notes = [f"line {place.line}{inside}"] if place else []
    notes += [ADVICE[kind]] if kind in ADVICE else []
    told = WORDS.get(kind, kind).format(of=of)
    return f"{told} ({'; '.join(notes)})" if notes else told


def in_seconds(seconds: float) -> str:
    """Seconds to a tenth, from a minute on to whole seconds."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:.0f} s"


#: Seconds after which a trace is slow.
SLOW = 2.0
#: Seconds between two lines about the same trace.
AGAIN = 1.0
#: The stages that listeners are given: a line about a slow trace, and the words of the phase that begins.
STAGE, PHASE = "slow", "phase"


@dataclass(slots=True)
class _Watched:
    """One generation. asked: time.monotonic() when it was requested.  told: was a line about it sent?"""

    generation: int
    asked: float
    phases: Phases
    timer: asyncio.TimerHandle | None = None
    told: bool = False
    place: Callable[[], Place | None] = lambda: None


class Slowness(Listener):
    """Listens to the progress of traces, tells their phases and says why one is slow.

    tell: receives the path, `STAGE` or `PHASE`, and the text.  before: how many traces come before that of a path; 0 if
    it runs.
    """

    def __init__(self, tell: Callable[[str, str, str], None], before: Callable[[str], int], slow: float = SLOW) -> None:
        self._tell, self._before, self._slow = tell, before, slow
        self._watched: dict[str, _Watched] = {}

    def status_changed(self, status: Status) -> None:
        """A generation begins, goes on or ends."""
        now = time.monotonic()
        if status.state == "queued":
            self._forget_trace(status.path)
            loop = asyncio.get_running_loop()
            watched = self._watched[status.path] = _Watched(status.generation, now, Phases(now))
            watched.timer = loop.call_later(self._slow, self._look, status.path)
        elif (found := self._watched.get(status.path)) is None or found.generation != status.generation:
            return
        elif status.ended:
            if found.told:
                phase, seconds = found.phases.longest(now)
                took = (
                    f"{in_seconds(now - found.asked)}, of which {in_seconds(seconds)} {_words_in(status.path, phase)}"
                )
                self._tell(status.path, STAGE, f"{Path(status.path).name}: {took}")
            self._forget_trace(status.path)
        else:
            found.phases.become("starting" if status.state == "starting" else "rest", now)
            self._tell(status.path, PHASE, _words_in(status.path, found.phases.stack[-1]))

    def heard(self, path: str, message: Message, place: Callable[[], Place | None]) -> None:
        """A child reports a phase of its trace. place: its last known place in the user's code."""
        watched = self._watched.get(path)
        if watched is None:
            return
        at = min(float(message["at"]), time.monotonic())
        if message["kind"]:
            watched.phases.enter(str(message["kind"]), str(message["of"]), at)
        else:
            watched.phases.leave(at)
        watched.place = place
        self._tell(path, PHASE, _words_in(path, watched.phases.stack[-1]))

    def phases(self, path: str) -> dict[str, float]:
        """The seconds of a running trace by phase."""
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
        watched.told = True
        whole = f"{Path(path).name}: {in_seconds(time.monotonic() - watched.asked)}"
        if watched.phases.stack == [("queued", "")] and (before := self._before(path)):
            self._tell(path, STAGE, f"{whole}: waiting: {before} {'trace' if before == 1 else 'traces'} before it")
            return
        phase = watched.phases.stack[-1]
        runs = phase[0] in ("running", "constructor")
        self._tell(path, STAGE, f"{whole}: {_words_in(path, phase, watched.place() if runs else None)}")

    def _forget_trace(self, path: str) -> None:
        watched = self._watched.pop(path, None)
        if watched is not None and watched.timer is not None:
            watched.timer.cancel()


def _words_in(path: str, phase: Phase, place: Place | None = None) -> str:
    """`in_words` where the name of the traced file stands beside it."""
    kind, of = phase
    return in_words((kind, "it" if kind == "running" and of == Path(path).name else of), place)
