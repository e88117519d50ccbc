"""How parallel each operation is: the fewest multipliers for an interval, or the shortest interval for a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folds import Fold
from mase_server.hardware.kinds import KINDS


class FoldingError(ValueError):
    """No folding keeps to the interval and the budget; the text says what would."""


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold for every operation. interval: cycles from one sample to the next, that of the slowest operation."""

    folds: Mapping[str, Fold]
    interval: int
    multipliers: int

    @property
    def bottlenecks(self) -> tuple[str, ...]:
        """The operations that no other one is slower than."""
        return tuple(name for name, fold in self.folds.items() if fold.cycles == self.interval)


def fold(design: Design, *, interval: int | None = None, multipliers: int | None = None) -> Folding:
    """The folding of a design.

    interval: at most so many cycles from one sample to the next, with as few multipliers as that takes.  multipliers:
    at most so many, and as fast as they allow.  Neither: one multiplier for each layer.
    FoldingError where both cannot be kept, or the budget is below one multiplier for each layer.
    """
    ways = {
        name: tuple(KINDS[operation.kind].folds(design, operation)) for name, operation in design.operations.items()
    }
    ways = {name: folds for name, folds in ways.items() if folds}
    least = sum(min(each.multipliers for each in folds) for folds in ways.values())
    if multipliers is not None and multipliers < least:
        raise FoldingError(f"{multipliers} multipliers are too few: the {len(ways)} layers need {least} at least")
    if interval is None:
        interval = _slowest(ways) if multipliers is None else _fastest(ways, multipliers)
    chosen = _chosen(design, ways, interval)
    used = sum(each.multipliers for each in chosen.values())
    if multipliers is not None and used > multipliers:
        possible = _fastest(ways, multipliers)
        text = f"an interval of {interval} cycles takes {used} multipliers, {multipliers} are allowed"
        raise FoldingError(f"{text}; with those {possible} cycles are possible")
    return Folding(chosen, max((each.cycles for each in chosen.values()), default=1), used)


_Ways = Mapping[str, tuple[Fold, ...]]


def _slowest(ways: _Ways) -> int:
    return max((max(each.cycles for each in folds) for folds in ways.values()), default=1)


def _fastest(ways: _Ways, budget: int) -> int:
    """The shortest interval that a budget allows. Fewer cycles never take fewer multipliers, so it can be halved."""
    intervals = sorted({each.cycles for folds in ways.values() for each in folds})
    low, high = 0, len(intervals) - 1
    while low < high:
        middle = (low + high) // 2
        if _least(ways, intervals[middle]) <= budget:
            high = middle
        else:
            low = middle + 1
    return intervals[low] if intervals else 1


def _least(ways: _Ways, interval: int) -> float:
    """The fewest multipliers for an interval; infinite where a layer cannot be that fast."""
    fewest = (
        min((each.multipliers for each in folds if each.cycles <= interval), default=float("inf"))
        for folds in ways.values()
    )
    return sum(fewest)


def _chosen(design: Design, ways: _Ways, interval: int) -> dict[str, Fold]:
    """The smallest fold of each layer within the interval; of equals one that takes beats as wide as they come."""
    chosen: dict[str, Fold] = {}
    for name, folds in ways.items():
        fitting = [each for each in folds if each.cycles <= interval]
        if not fitting:
            fastest = min(each.cycles for each in folds)
            raise FoldingError(f"{name} takes {fastest} cycles at least; an interval of {interval} is too short for it")
        before = _width_before(design, design.operations[name], chosen)
        chosen[name] = min(fitting, key=partial(_preference, before))
    return chosen


def _preference(before: int | None, fold: Fold) -> tuple[int, ...]:
    """Few multipliers, then beats as wide as they come. Without any multiplier lanes are what costs, so few of them."""
    if fold.multipliers:
        return fold.multipliers, fold.par_in != before, fold.cycles, -fold.par_in
    return 0, fold.par_in != before, abs(fold.par_in - (before or 1)), fold.cycles


def _width_before(design: Design, operation: Operation, chosen: Mapping[str, Fold]) -> int | None:
    """Elements per beat of what an operation reads, where that is decided."""
    while operation.inputs:
        operation = design.operations[operation.inputs[0]]
        if operation.name in chosen:
            return chosen[operation.name].par_out
    return None
