"""The search: which level each unit gets, from what a level costs and what noise it makes."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

#: Levels, one for each unit.
Choice = list[int]
#: The noise of the output for a choice, measured.
Measure = Callable[[Choice], float]
#: Measured tries of another choice after the first one.
TRIES = 200
#: Choices that are remembered for the units so far.
KEPT = 1500
#: How far above the limit the sum of the units' own noises may be for a move to be worth a measurement.
SLACK = 1.5


@dataclass(frozen=True, slots=True)
class Unit:
    """costs, noises: of each level. The noise is that of the output where this unit alone is at that level."""

    costs: tuple[float, ...]
    noises: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A choice for some units. cost, noise: sums over them.  level: of the last one.  before: what the others have."""

    cost: float = 0.0
    noise: float = 0.0
    level: int = -1
    before: Point | None = None

    @property
    def choice(self) -> Choice:
        """The levels of all its units."""
        levels, point = [], self
        while point.before is not None:
            levels.append(point.level)
            point = point.before
        return levels[::-1]


def frontier(units: Sequence[Unit]) -> list[Point]:
    """The choices that no other one beats in cost and noise, as far as noises of units add up; the cheapest first.

    Of very many some are left out, evenly.
    """
    points = [Point()]
    for unit in units:
        levels = list(enumerate(zip(unit.costs, unit.noises, strict=True)))
        more = [Point(point.cost + c, point.noise + n, level, point) for point in points for level, (c, n) in levels]
        points = _unbeaten(more)
    return points


def _unbeaten(points: list[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, point.noise)):
        if not kept or point.noise < kept[-1].noise:
            kept.append(point)
    if len(kept) <= KEPT:
        return kept
    return [kept[round(index * (len(kept) - 1) / (KEPT - 1))] for index in range(KEPT)]


def cost_of(units: Sequence[Unit], choice: Choice) -> float:
    """What a choice costs."""
    return sum(unit.costs[level] for unit, level in zip(units, choice, strict=True))


def within(units: Sequence[Unit], budget: float, measure: Measure) -> Choice:
    """The least noise for at most so much cost; the cheapest choice where that costs more already."""
    points = frontier(units)
    fitting = [point for point in points if cost_of(units, point.choice) <= budget]
    return _exchanged(units, (fitting or points[:1])[-1].choice, budget, measure)


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
    choices = [point.choice for point in frontier(units)]
    first = bisect_left(choices, True, key=lambda choice: measure(choice) <= noise)
    return _lowered(units, choices[min(first, len(choices) - 1)], noise, measure)


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
