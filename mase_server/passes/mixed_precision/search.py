"""The search: which level each unit gets, from what a level costs and what noise it makes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

#: Levels, one for each unit.
Choice = list[int]
#: The noise of the output for a choice, measured.
Measure = Callable[[Choice], float]
#: Measured tries of another choice after the first one.
TRIES = 200
#: How far above the limit the sum of the units' own noises may be for a move to be worth a measurement.
SLACK = 1.5


@dataclass(frozen=True, slots=True)
class Unit:
    """costs, noises: of each level. The noise is that of the output where this unit alone is at that level."""

    costs: tuple[float, ...]
    noises: tuple[float, ...]

    @property
    def cheapest(self) -> int:
        """The level that costs least; of several the one with less noise."""
        return min(range(len(self.costs)), key=lambda level: (self.costs[level], self.noises[level]))

    @property
    def cleanest(self) -> int:
        """The level with the least noise; of several the one that costs less."""
        return min(range(len(self.costs)), key=lambda level: (self.noises[level], self.costs[level]))

    def hull(self) -> list[int]:
        """Levels from the cheapest on, each with the most noise taken away for what it costs more."""
        found = [self.cheapest]
        while better := [level for level in range(len(self.costs)) if self.noises[level] < self.noises[found[-1]]]:
            found.append(max(better, key=lambda level: (self.gain(found[-1], level), -self.costs[level])))
        return found

    def gain(self, low: int, high: int) -> float:
        """Noise that is taken away for each unit of cost."""
        more = self.costs[high] - self.costs[low]
        return (self.noises[low] - self.noises[high]) / more if more > 0 else float("inf")


def cost_of(units: Sequence[Unit], choice: Choice) -> float:
    """What a choice costs."""
    return sum(unit.costs[level] for unit, level in zip(units, choice, strict=True))


def steps(units: Sequence[Unit]) -> list[tuple[int, int]]:
    """(unit, level) in the order in which going there takes away most noise for its cost."""
    found = []
    for index, unit in enumerate(units):
        hull = unit.hull()
        found += [(unit.gain(low, high), index, high) for low, high in pairwise(hull)]
    return [(index, level) for _, index, level in sorted(found, key=lambda each: -each[0])]


def within(units: Sequence[Unit], budget: float, measure: Measure) -> Choice:
    """The least noise for at most so much cost; the cheapest choice where that costs more already."""
    choice = [unit.cheapest for unit in units]
    spent = cost_of(units, choice)
    for index, level in steps(units):
        more = units[index].costs[level] - units[index].costs[choice[index]]
        if spent + more <= budget and units[index].noises[level] < units[index].noises[choice[index]]:
            choice[index], spent = level, spent + more
    return _exchanged(units, choice, budget, measure)


def _exchanged(units: Sequence[Unit], choice: Choice, budget: float, measure: Measure) -> Choice:
    """Move units within the budget as long as measuring says that it is better, the most promising moves first."""
    noise, tries, better = measure(choice), 0, True
    while better:
        better = False
        spent = cost_of(units, choice)
        fitting = [move for move in _moves(units, choice) if spent + move.cost <= budget]
        for move in heapq.nsmallest(TRIES - tries, fitting, key=lambda move: move.noise):
            tries, other = tries + 1, move.of(choice)
            if (found := measure(other)) < noise:
                choice, noise, better = other, found, True
                break
    return choice


@dataclass(frozen=True, slots=True)
class _Move:
    """Other levels for one unit, or for one that costs more and one that costs less.

    cost, noise: how much more of it there is, by the units alone.
    """

    levels: tuple[tuple[int, int], ...]
    cost: float
    noise: float

    def price(self, limit: float) -> float:
        """Cost for the noise that there is more of; the lower, the better a move is to save with."""
        return self.cost / max(self.noise, limit * 1e-6)

    def of(self, choice: Choice) -> Choice:
        """The choice after it."""
        return _after(choice, self.levels)


def _moves(units: Sequence[Unit], choice: Choice) -> Iterator[_Move]:
    """All moves from a choice."""
    single = [
        _Move(((index, level),), unit.costs[level] - unit.costs[now], unit.noises[level] - unit.noises[now])
        for index, (unit, now) in enumerate(zip(units, choice, strict=True))
        for level in range(len(unit.costs))
        if level != now
    ]
    yield from single
    cleaner, cheaper = [move for move in single if move.cost > 0], [move for move in single if move.cost < 0]
    for up, down in product(cleaner, cheaper):
        if up.levels[0][0] != down.levels[0][0]:
            yield _Move(up.levels + down.levels, up.cost + down.cost, up.noise + down.noise)


def reaching(units: Sequence[Unit], noise: float, measure: Measure) -> Choice:
    """The least cost with at most so much noise; the cleanest choice where that has more."""
    order = steps(units)
    cheapest, low, high = [unit.cheapest for unit in units], 0, len(order)
    while low < high:
        middle = (low + high) // 2
        reached = measure(_after(cheapest, order[:middle])) <= noise
        low, high = (low, middle) if reached else (middle + 1, high)
    choice = _after(cheapest, order[:low])
    if measure(choice) > noise:
        choice = [unit.cleanest for unit in units]
    return _lowered(units, choice, noise, measure)


def _lowered(units: Sequence[Unit], choice: Choice, limit: float, measure: Measure) -> Choice:
    """Move units so that they cost less, as long as measuring allows it, what saves most for its noise first."""
    tries, saved = 0, True
    while saved:
        saved, noise = False, measure(choice)
        promising = [move for move in _moves(units, choice) if move.cost < 0 and noise + move.noise <= SLACK * limit]
        for move in heapq.nsmallest(
            TRIES - tries, promising, key=lambda move: move.cost / max(move.noise, limit / 1e6)
        ):
            tries, other = tries + 1, move.of(choice)
            if measure(other) <= limit:
                choice, saved = other, True
                break
    return choice


def _after(choice: Choice, taken: Sequence[tuple[int, int]]) -> Choice:
    made = list(choice)
    for index, level in taken:
        made[index] = level
    return made
