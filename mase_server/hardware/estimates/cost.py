"""What a component takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiplications a cycle, four-input tables, and bits of weights, buffers and tables."""

    multipliers: float = 0
    luts: float = 0
    memory_bits: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.multipliers + other.multipliers, self.luts + other.luts, self.memory_bits + other.memory_bits)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.multipliers * times, self.luts * times, self.memory_bits * times)

    __rmul__ = __mul__


def luts(number: float) -> Cost:
    """Tables alone."""
    return Cost(luts=number)


def multiplications(number: float) -> Cost:
    """Multipliers alone."""
    return Cost(multipliers=number)
