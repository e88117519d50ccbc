"""How long a file may be searched for its models: one clock for all its classes, constructors and inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Clock = Callable[[], float]

#: Seconds for everything that a file is searched for.
FILE_SECONDS = 5.0


def stopwatch() -> Clock:
    """Seconds of this process's own work from now on, or half of those on the wall where it waits.

    What other programs do at the time does not make a search give up sooner.
    """
    work, wall = time.process_time(), time.monotonic()
    return lambda: max(time.process_time() - work, (time.monotonic() - wall) / 2)


@dataclass(frozen=True, slots=True)
class Budget:
    """A point in time after which nothing more is tried; whatever was found by then counts.

    end: seconds of `clock`.
    """

    end: float
    clock: Clock = field(repr=False)

    @classmethod
    def of(cls, seconds: float, clock: Clock | None = None) -> Budget:
        """So many seconds from now on."""
        clock = clock or stopwatch()
        return cls(clock() + seconds, clock)

    def left(self) -> float:
        """Seconds that are left, 0 once there are none."""
        return max(0.0, self.end - self.clock())

    def is_spent(self) -> bool:
        """Is nothing left?"""
        return self.clock() >= self.end

    def part(self, share: float = 1.0, most: float = float("inf")) -> Budget:
        """A budget inside this one: a share of what is left, and at most so many seconds."""
        return Budget.of(min(self.left() * share, most), self.clock)
