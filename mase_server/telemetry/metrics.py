"""Counters and timings in a fixed amount of memory, however long the server runs."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextvars import Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from mase_server.telemetry.records import REQUEST, is_logged, log_event, name_request

if TYPE_CHECKING:
    from mase_server.protocol.answers import Timing

#: Four classes per factor of two, from a microsecond on: a quantile is at most a fifth too high.
_PER_OCTAVE = 4
_CLASSES = 128
#: Maximum number of names; further ones are counted together.
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
        """Count one more."""
        self.count += 1
        self.errors += failed
        self.longest = max(self.longest, seconds)
        micros = seconds * 1e6
        index = int(math.log2(micros) * _PER_OCTAVE) + 1 if micros > 1 else 0
        self._classes[min(index, _CLASSES - 1)] += 1

    def quantile(self, share: float) -> float:
        """Seconds within which this share was done; at most 19 % above the truth, and never above the longest."""
        wanted, seen = math.ceil(share * self.count), 0
        for index, count in enumerate(self._classes):
            seen += count
            if seen >= wanted and count:
                return min(2 ** (index / _PER_OCTAVE) / 1e6, self.longest)
        return 0.0

    def told(self) -> Timing:
        """{"count", "errors", "p50", "p95", "max"}, in seconds."""
        return {
            "count": self.count,
            "errors": self.errors,
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "max": self.longest,
        }


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

    def told(self) -> dict[str, Timing]:
        """The timings by name, sorted."""
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


# A request from its start to its answer: it gets a name, is counted, and is logged if it is interesting.

#: Seconds from which on an ordinary request is logged like a save; quicker ones are logged for "debug" only.
LONG = 0.1


class Measured:
    """Use `with Measured(...):` around the code that answers one request.

    kind: the first letter of its name.  method: a known name, never one that a client made up.  path: returns the
    request's file for the log; called only if the request is logged.
    """

    __slots__ = ("_began", "_kind", "_method", "_metrics", "_path", "_token")

    def __init__(self, metrics: Metrics, kind: str, method: str, path: Callable[[], str]) -> None:
        self._metrics, self._kind, self._method, self._path = metrics, kind, method, path
        self._began = 0.0
        self._token: Token[str] | None = None

    def __enter__(self) -> None:
        self._token = REQUEST.set(name_request(self._kind))
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._began
        self._metrics.requests.add(self._method, seconds, failed=error is not None)
        level = logging.DEBUG if error is None and seconds < LONG else logging.INFO
        if is_logged(level):
            log_event(
                "request", level, method=self._method, path=self._path(), seconds=seconds, outcome=_outcome_of(error)
            )
        assert self._token is not None
        REQUEST.reset(self._token)


def _outcome_of(error: BaseException | None) -> str:
    """The outcome for an error: its type, because its text may contain parts of a user's file."""
    if error is None:
        return "answered"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
