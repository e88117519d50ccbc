"""Counters and timings in a fixed amount of memory, whatever runs for how long."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

#: Four classes to a factor of two, from a microsecond on: a quantile is at most a fifth too high.
_PER_OCTAVE = 4
_CLASSES = 128
#: Different names that are counted; what comes then is counted together.
_NAMES = 256
_OTHERS = "others"


class Timings:
    """How often something was done, how long it took, and how often it failed."""

    __slots__ = ("_classes", "count", "errors", "longest")

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.longest = 0.0
        self._classes = [0] * _CLASSES

    def add(self, seconds: float, failed: bool = False) -> None:
        """It was done once more."""
        self.count += 1
        self.errors += failed
        self.longest = max(self.longest, seconds)
        micros = seconds * 1e6
        index = int(math.log2(micros) * _PER_OCTAVE) + 1 if micros > 1 else 0
        self._classes[min(index, _CLASSES - 1)] += 1

    def quantile(self, share: float) -> float:
        """Seconds within which this share of it was done; at most 19 % above the truth, and never above the longest."""
        wanted, seen = math.ceil(share * self.count), 0
        for index, count in enumerate(self._classes):
            seen += count
            if seen >= wanted and count:
                return min(2 ** (index / _PER_OCTAVE) / 1e6, self.longest)
        return 0.0

    def told(self) -> dict[str, float]:
        """{"count", "errors", "p50", "p95", "max"}, in seconds."""
        quantiles = {"p50": self.quantile(0.5), "p95": self.quantile(0.95), "max": self.longest}
        return {"count": self.count, "errors": self.errors, **quantiles}


class Table:
    """Timings by name."""

    def __init__(self) -> None:
        self._timings: dict[str, Timings] = {}

    def add(self, name: str, seconds: float, failed: bool = False) -> None:
        """Count one more event of this name."""
        found = self._timings.get(name)
        if found is None:
            name = name if len(self._timings) < _NAMES else _OTHERS
            found = self._timings.setdefault(name, Timings())
        found.add(seconds, failed)

    def told(self) -> dict[str, dict[str, float]]:
        """By name, in the order of names."""
        return {name: self._timings[name].told() for name in sorted(self._timings)}


@dataclass(slots=True)
class Metrics:
    """The counters of one daemon. began: time.monotonic().

    requests: of editors and tools, by method.  traces: by their end state.  unchanged: file events without a new
    text.
    """

    began: float = field(default_factory=time.monotonic)
    requests: Table = field(default_factory=Table)
    traces: Table = field(default_factory=Table)
    unchanged: int = 0
