"""What a component takes."""

from __future__ import annotations

from dataclasses import dataclass

#: Four-input tables that a carry cell and a cell of distributed memory take the place of, in an ECP5.
_OF_CARRY, _OF_CELL = 2, 4


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiplications a cycle; cells of an ECP5 as Yosys counts them; bits of weights, buffers and tables.

    logic: four-input tables (LUT4).  carries: pairs of bits of a sum (CCU2C).  cells: distributed memory of 16 words of
    four bits (TRELLIS_DPR16X4).
    """

    multipliers: float = 0
    logic: float = 0
    carries: float = 0
    cells: float = 0
    memory_bits: float = 0

    @property
    def luts(self) -> float:
        """All that stands where four-input tables are."""
        return self.logic + _OF_CARRY * self.carries + _OF_CELL * self.cells

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.multipliers + other.multipliers,
            self.logic + other.logic,
            self.carries + other.carries,
            self.cells + other.cells,
            self.memory_bits + other.memory_bits,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(
            self.multipliers * times,
            self.logic * times,
            self.carries * times,
            self.cells * times,
            self.memory_bits * times,
        )

    __rmul__ = __mul__


def logic(number: float) -> Cost:
    """Tables alone."""
    return Cost(logic=number)


def sums(*widths: int) -> Cost:
    """Sums, differences and comparisons of so many bits; short ones become tables."""
    return Cost(carries=sum((width + 1) // 2 for width in widths if width >= _SHORTEST_SUM))


_SHORTEST_SUM = 5


def multiplications(number: float) -> Cost:
    """Multipliers alone."""
    return Cost(multipliers=number)
