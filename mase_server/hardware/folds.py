"""The ways to build one operation."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True, slots=True)
class Fold:
    """One way to build an operation. par_in, par_out: elements per beat.  cycles: from one sample to the next.

    taps: rows and columns of a kernel that are worked on at once.
    """

    par_in: int
    par_out: int
    cycles: int
    multipliers: int
    taps: tuple[int, int] = (1, 1)

    @property
    def area(self) -> int:
        """What is to be small: lanes in times lanes out."""
        return self.par_in * self.par_out


def divisors(number: int) -> list[int]:
    """All divisors, the smallest first."""
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def products_of_mean(count: int) -> int:
    """Multiplications of a mean of so many numbers, by the reciprocal and back; a power of two is a shift."""
    return 0 if count & (count - 1) == 0 else 2
