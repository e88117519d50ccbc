"""What the time of one trace went to, by phase; and, in words, what most of it went to."""

from __future__ import annotations

from dataclasses import dataclass, field

from mase_server.daemon.death import Place

#: Different phases that are told apart in one trace; what comes then counts for the phase around it.
_PHASES = 64
_DEPTH = 32
#: Seconds from which on a phase is worth a word in the log.
_LEAST = 0.01
_NAME = 60

#: kind of phase -> how it is told; {of} is what it is about.
WORDS = {
    "queued": "waiting for its turn",
    "starting": "start of Python with torch",
    "import": "import of {of}",
    "running": "running {of}",
    "constructor": "constructor",
    "inputs": "search for inputs of {of}",
    "forward": "forward of {of}",
    "sizes": "forward of {of} at other sizes",
    "proof": "trying the fix",
    "passes": "passes",
    "rest": "everything else",
}
#: kind of phase -> what a person can do about it.
ADVICE = {"inputs": "give them with # mase:"}

Phase = tuple[str, str]


@dataclass(slots=True)
class Phases:
    """Seconds that each phase took by itself, without what lies in it. since: time.monotonic() of the last change."""

    since: float
    stack: list[Phase] = field(default_factory=lambda: [("queued", "")])
    seconds: dict[Phase, float] = field(default_factory=dict)

    def become(self, kind: str, at: float) -> None:
        """The trace as a whole is here now."""
        self._pass(at)
        self.stack = [(kind, "")]

    def enter(self, kind: str, of: str, at: float) -> None:
        """A phase begins inside of the one that runs. What a child says may be anything: it is bounded here."""
        self._pass(at)
        known = kind in WORDS and len(self.stack) < _DEPTH
        self.stack.append((kind, of[:_NAME]) if known else self.stack[-1])

    def leave(self, at: float) -> None:
        """The innermost phase is over."""
        self._pass(at)
        if len(self.stack) > 1:
            self.stack.pop()

    def longest(self, now: float) -> tuple[Phase, float]:
        """The phase that took most so far, and its seconds."""
        self._pass(now)
        phase = max(self.seconds, key=lambda one: self.seconds[one], default=self.stack[-1])
        return phase, self.seconds.get(phase, 0.0)

    def told(self) -> dict[str, float]:
        """Seconds by kind of phase, for the log: with the names of what is imported, without those of the person's."""
        told: dict[str, float] = {}
        for (kind, of), took in self.seconds.items():
            name = f"import {of}" if kind == "import" else kind
            told[name] = told.get(name, 0.0) + took
        return {name: took for name, took in told.items() if took >= _LEAST}

    def _pass(self, at: float) -> None:
        phase = self.stack[-1]
        if phase not in self.seconds and len(self.seconds) >= _PHASES:
            phase = ("rest", "")
        self.seconds[phase] = self.seconds.get(phase, 0.0) + max(0.0, at - self.since)
        self.since = max(self.since, at)


def in_words(phase: Phase, seconds: float, place: Place | None = None) -> str:
    """A phase as a part of a sentence, e.g. "import of transformers 9.1 s". place: where in the person's code it is."""
    kind, of = phase
    inside = f" in {place.function}" if place and place.function not in ("", "<module>") else ""
    notes = [f"line {place.line}{inside}"] if place else []
    notes += [ADVICE[kind]] if kind in ADVICE else []
    told = f"{WORDS.get(kind, kind).format(of=of)} {in_seconds(seconds)}"
    return f"{told} ({'; '.join(notes)})" if notes else told


def in_seconds(seconds: float) -> str:
    """Seconds to a tenth, whole ones from a minute on."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:.0f} s"
