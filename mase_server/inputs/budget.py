"""How long a file may be searched for its models: one clock for all its classes, constructors and inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Clock = Callable[[], float]

#: Seconds for everything that a file is searched for.
FILE_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Budget:
    """A point in time after which nothing more is tried; whatever was found by then counts.

    end: seconds of `clock`.
    """

    end: float
    clock: Clock = field(default=time.monotonic, repr=False)

    @classmethod
    def of(cls, seconds: float, clock: Clock = time.monotonic) -> Budget:
        """So many seconds from now on."""
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
