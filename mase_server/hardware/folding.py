"""Choosing the parallelism of each operation: the fewest multipliers for an interval, or the shortest interval for a
number of multipliers.

Layers are independent once the interval is given, so both answers are found by looking, not by solving, and are exact.
Where several layers in turn use the same multipliers (`Engine`), neighbours share: that is the best split of the layers
in their order, with or without the small ones, not of all splits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, inf

import torch

from mase_server.hardware.design import Design, Dots, Engine, Fold, Folding, Operation, OperationError, blame_operation
from mase_server.hardware.estimates.estimating import follow_interval
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.linear import refuse_sums


class FoldingError(ValueError):
    """No folding satisfies the interval and the budget; the text says what would be possible."""


def fold_design(
    design: Design, *, interval: int | None = None, multipliers: int | None = None, copies: int | None = None
) -> Folding:
    """Choose the folding of a design.

    interval: at most this many cycles from one sample to the next, with as few multipliers as possible; several copies
    where one design is not that fast.
    multipliers: at most this many, and as fast as they allow; all multipliers count. Layers share them if that is
    faster.  Neither: each layer as small as possible.  With 0 multipliers linear layers become networks of additions.
    copies: at most so many of the design take samples in turn, where one leaves much of the budget unused; None for as
    many as help.  FoldingError if both cannot be satisfied, or the budget is below the minimum.
    """
    ways = _find_ways(design)
    if multipliers == 0:
        return _fold_with_networks(design, ways, interval, copies)
    if interval is not None:
        if (reads := _fewest_reads(ways)) > interval:
            raise FoldingError(f"the weights of a sample take {reads} cycles to be read from outside, not {interval}")
        found = _repeat_within_interval(design, ways, interval, copies)
        if multipliers is None or found.multipliers <= multipliers:
            return found
        possible = _fold_copies(design, ways, multipliers, copies)
        if possible.interval <= interval:
            return possible
        text = f"an interval of {interval} cycles takes {found.multipliers} multipliers, {multipliers} are allowed"
        raise FoldingError(f"{text}; with those {possible.interval} cycles are possible")
    return (
        _fold_within_interval(design, ways, _slowest_interval(ways))
        if multipliers is None
        else _fold_copies(design, ways, multipliers, copies)
    )


_Ways = Mapping[str, tuple[Fold, ...]]


def count_multiplications(design: Design) -> int:
    """The multiplications of a sample: with a budget, no interval is shorter than this number divided by it."""
    return _count_products(_find_ways(design))


def _count_products(ways: _Ways) -> int:
    return sum(min(each.products for each in folds) for folds in ways.values())


def _find_ways(design: Design) -> _Ways:
    """Every fold of each operation that has some."""
    ways = {}
    for name, operation in design.operations.items():
        if reason := _refuse_sums(design, operation):
            raise OperationError(operation, reason)
        with blame_operation(operation):
            folds = tuple(KINDS[operation.kind].folds(design, operation))
        # A word that fills beats of the memory badly would cost its time.
        if folds:
            least = _LESS_PACKED * min(each.reads for each in folds)
            ways[name] = tuple(each for each in folds if each.reads <= least)
    return ways


def _refuse_sums(design: Design, operation: Operation) -> str | None:
    """Why the dot products of an operation have no hardware; None if they have, or there are none."""
    if (dots := KINDS[operation.kind].dots) is None:
        return None
    with blame_operation(operation):
        return refuse_sums(dots(design, operation))


#: How many times the fewest reads of an operation its folds may take.
_LESS_PACKED = 1.25


def _fold_within_interval(design: Design, ways: _Ways, interval: int) -> Folding:
    """The smallest folding within an interval."""
    chosen = _choose_folds(design, ways, interval)
    reads = sum(each.reads for each in chosen.values())
    slowest = max((_cycles_with_converter(design, ways, chosen, name) for name in chosen), default=1)
    return Folding(chosen, max(slowest, reads), sum(each.multipliers for each in chosen.values()))


def _repeat_within_interval(design: Design, ways: _Ways, interval: int, most: int | None) -> Folding:
    """The smallest folding within an interval, of as few copies as are that fast."""
    copies = -(-_fastest_interval(ways) // interval)
    if copies > (most or _COPIES[-1]) or not _can_repeat(design):
        copies = 1
    return _fold_within_interval(design, ways, interval * copies).repeat(copies)


def _fold_with_networks(design: Design, ways: _Ways, interval: int | None, most: int | None) -> Folding:
    """The folding without multipliers: layers are networks of additions. interval: None for the shortest of one copy.
    most: copies."""
    ways = {
        name: _find_networks(design, name) or tuple(each for each in folds if not each.multipliers) or folds
        for name, folds in ways.items()
    }
    shortest = _fastest_interval(ways)
    found = _repeat_within_interval(design, ways, shortest if interval is None else interval, most)
    if found.multipliers:
        multiplying = ", ".join(name for name, fold in found.folds.items() if fold.multipliers)
        raise FoldingError(f"0 multipliers are too few: {multiplying} cannot do without; linear layers can")
    return found


def _find_networks(design: Design, name: str) -> tuple[Fold, ...]:
    operation = design.operations[name]
    with blame_operation(operation):
        return tuple(KINDS[operation.kind].networks(design, operation))


def _fold_copies(design: Design, ways: _Ways, budget: int, most: int | None) -> Folding:
    """The folding with the shortest interval within a budget: of one copy if that uses it well, else of the fewest
    that do, or, if none do, of those that use it best. Streams that wait for each other show when they are followed."""
    found, followed = _fold_within_budget(design, ways, budget)
    if most == 1 or not _can_repeat(design):
        return found
    shortest = followed or follow_interval(design, found) or found.interval
    wanted = max(1, _count_products(ways) / (_WELL_USED * budget))
    for copies in _COPIES:
        if shortest <= wanted or copies > (most or copies):
            break
        try:
            each, followed = _fold_within_budget(design, ways, budget // copies)
        except FoldingError:
            break
        longest = copies * max(wanted, shortest / (1 + _WORTH * (copies - found.copies)))
        if each.interval <= longest:
            interval = followed or follow_interval(design, each) or each.interval
            if interval <= longest:
                found, shortest = each.repeat(copies), interval / copies
    return found


#: Numbers of copies that are tried; the share of a budget above which no more are, 85 % and what an estimate may be
#: off; and the share of time that each further copy has to save below it: it has memories and tables of its own.
_COPIES, _WELL_USED, _WORTH = range(2, 17), 0.86, 0.05


def _can_repeat(design: Design) -> bool:
    """Can it have copies? Weights from outside come for one."""
    return bool(design.inputs) and all("streamed" not in each.options for each in design.operations.values())


def _fold_within_budget(design: Design, ways: _Ways, budget: int) -> tuple[Folding, float | None]:
    """The folding of one copy with the shortest interval within a budget, and that interval if it was followed."""
    hopeful = _fold_with_engines(design, ways, budget, waits=False)
    found = [_fold_with_engines(design, ways, budget, shared=shared) for shared in (True, False)]
    least = _fold_within_interval(design, ways, _slowest_interval(ways)).multipliers
    if budget >= least:
        found.insert(0, _fold_alone(design, ways, budget))
    safe = [each for each in found if each is not None]
    if not safe:
        sharing = sum(_dots_of(design, name) is not None for name in ways)
        least -= max(0, sharing - 1)
        raise FoldingError(f"{budget} multipliers are too few: the {len(ways)} layers need {least} at least")
    return _choose_fastest(design, hopeful, safe)


def _choose_fastest(design: Design, hopeful: Folding | None, safe: Sequence[Folding]) -> tuple[Folding, float | None]:
    """The folding with the shortest interval, and that interval if it was followed: layers that share an engine wait
    for each other's streams, so such a folding is followed beat by beat. hopeful: its layers count on the gaps of these
    streams; if the design is too large to be followed, it is not chosen. Of equal ones, the first of `safe` is."""
    best = min(safe, key=lambda each: each.interval)
    possible = safe if hopeful is None or hopeful.engines == best.engines else [*safe, hopeful]
    found, shortest, followed = best, inf, None
    for each in sorted(possible, key=lambda each: each.interval):
        if each.interval >= shortest:
            break
        shared = any(len(engine.operations) > 1 for engine in each.engines)
        interval = follow_interval(design, each) if shared else None
        if shared and interval is None:
            return best, None
        if (interval or each.interval) < shortest:
            found, shortest, followed = each, interval or each.interval, interval
    return found, followed


def _fold_alone(design: Design, ways: _Ways, budget: int) -> Folding:
    """The folding with the shortest interval within a budget if no layers share multipliers."""
    fastest = max(_fastest_interval(ways), _fewest_reads(ways))
    intervals = sorted(each for each in {fastest, *_possible_intervals(design, ways)} if each >= fastest)
    # Fewer cycles never need fewer multipliers, but folds that no converter delays may need a few more.
    first = bisect_left(intervals, True, key=lambda each: _least_multipliers(ways, each) <= budget) if intervals else 0
    found = (_fold_within_interval(design, ways, each) for each in intervals[first:])
    return next(
        (each for each in found if each.multipliers <= budget),
        _fold_within_interval(design, ways, _slowest_interval(ways)),
    )


def _dots_of(design: Design, name: str) -> Dots | None:
    operation = design.operations[name]
    dots = KINDS[operation.kind].dots
    return None if dots is None or "streamed" in operation.options else dots(design, operation)


def _fold_with_engines(
    design: Design, ways: _Ways, budget: int, *, waits: bool = True, shared: bool = True
) -> Folding | None:
    """The folding with the shortest interval within a budget if neighbours may share multipliers; None if there is
    none. waits: layers of an engine wait for each other's streams (`Dots.held`).  shared: if not, an engine has one
    layer, whose lanes need not divide its sizes."""
    dots = {name: each for name in ways if (each := _dots_of(design, name)) is not None}
    if not dots or budget < 1:
        return None
    sharing = _Sharing(dots, ways, budget, waits, shared)
    low = max(_fastest_interval(sharing.others), _fewest_reads(ways))
    high = max(sum(each.fastest(1, 1) for each in dots.values()), _slowest_interval(ways))
    spare = budget
    while spare > 0:
        if sharing.count(high) > spare:
            return None
        interval = bisect_left(range(low, high), True, key=lambda each: sharing.count(each) <= spare) + low
        found = _fold_groups(design, ways, sharing, interval)
        if found.multipliers <= budget:
            return found
        # Folds that no converter delays take more than was counted.
        spare -= found.multipliers - budget
    return None


def _fold_groups(design: Design, ways: _Ways, sharing: _Sharing, interval: int) -> Folding:
    """The folding with the engines for an interval."""
    engines = sharing.split(interval)[1]
    folds = {
        name: (sharing.dots[name].fold(engine.par_in, engine.par_out, interval, sharing.waits),)
        for engine in engines
        for name in engine.operations
    }
    within = _fold_within_interval(design, {**ways, **folds}, interval)
    multipliers = within.multipliers + sum(engine.par_in * engine.par_out for engine in engines)
    found = Folding(within.folds, within.interval, multipliers, engines)
    return replace(found, interval=round(max(within.interval, *found.busy.values())))


class _Sharing:
    """The splits of layers, in their order, into groups that share an engine, or stand alone."""

    def __init__(self, dots: Mapping[str, Dots], ways: _Ways, budget: int, waits: bool, shared: bool) -> None:
        self.dots, self.ways, self.budget, self.waits, self.names = dots, ways, budget, waits, tuple(dots)
        self.most = len(dots) if shared else 1
        ins, outs = (
            _lanes_that_matter([getattr(each, which) for each in dots.values()], budget)
            for which in ("length", "results")
        )
        self.lanes = torch.tensor([(each, other) for each in ins for other in outs if each * other <= budget])
        self.sizes = self.lanes.prod(1)
        self.held, self.fastest = (
            torch.tensor([[getattr(each, which)(*lanes) for lanes in self.lanes.tolist()] for each in dots.values()])
            for which in ("held" if waits else "cycles", "fastest")
        )
        helped = torch.tensor([[each.helped(*lanes) for lanes in self.lanes.tolist()] for each in dots.values()])
        self.helped, self.own = helped.unbind(-1)
        self.others = {name: folds for name, folds in ways.items() if name not in dots}

    def count(self, interval: int) -> int:
        """The fewest multipliers for an interval."""
        return self.split(interval)[0] + _least_multipliers(self.others, interval)

    def split(self, interval: int) -> tuple[int, tuple[Engine, ...]]:
        """The groups with the fewest multipliers for an interval: their number, and the engines.

        Layers that need few multipliers alone do so between the layers of a group if that is better: the lanes that
        suit their neighbours would be idle for most of their cycles. So do recurrent layers, which wait for themselves.
        """
        alone = [
            min((each.multipliers for each in self.ways[name] if each.cycles <= interval), default=inf)
            for name in self.names
        ]
        layers = range(len(self.names))
        light = [index for index in layers if alone[index] * _LIGHT <= self.budget]
        chained = [index for index in layers if self.dots[self.names[index]].chained]
        count, engines = self._split_layers(layers, interval, alone)
        sets = (tuple(sorted({*some, *others})) for some in ([], light) for others in ([], chained))
        for apart in filter(None, dict.fromkeys(sets)):
            heavy, others = self._split_layers([each for each in layers if each not in apart], interval, alone)
            if (fewer := heavy + sum(alone[each] for each in apart)) < count:
                count, engines = fewer, others
        return (_NONE if count == inf else int(count)), engines

    def _split_layers(
        self, layers: Sequence[int], interval: int, alone: Sequence[float]
    ) -> tuple[float, tuple[Engine, ...]]:
        """The groups of neighbours among some layers with the fewest multipliers: their number, and the engines."""
        best: list[tuple[float, tuple[Engine, ...]]] = [(0, ())] + [(inf, ())] * len(layers)
        for first, layer in enumerate(layers):
            before, engines = best[first]
            best[first + 1] = min(best[first + 1], (before + alone[layer], engines), key=lambda each: each[0])
            for end, place, own in self._groups_from(layers, first, interval):
                par_in, par_out = self.lanes[place].tolist()
                if (count := before + par_in * par_out + own) < best[end][0]:
                    engine = Engine(par_in, par_out, self._order_turns(layers[first:end]))
                    best[end] = count, (*engines, engine)
        return best[-1]

    def _order_turns(self, layers: Sequence[int]) -> tuple[str, ...]:
        """The layers of an engine, of which a later one comes first: recurrent layers do, which wait for themselves,
        the first of them before all others, so that it is ahead of what reads it."""
        names = [self.names[each] for each in layers]
        chained = [name for name in names if self.dots[name].chained]
        return *(name for name in names if name not in chained), *reversed(chained)

    def _groups_from(self, layers: Sequence[int], first: int, interval: int) -> Iterator[tuple[int, int, int]]:
        """The ends of the groups that begin with a layer, the places of their lanes, the smallest, then fastest, and
        the multipliers that their layers have beside."""
        cycles, own, possible = torch.zeros_like(self.sizes), torch.zeros_like(self.sizes), self.sizes > 0
        for end in range(first, min(first + self.most, len(layers))):
            layer = layers[end]
            cycles = cycles + self.held[layer]
            own = own + torch.where(self.fastest[layer] > interval, self.own[layer], 0)
            possible = possible & (self.helped[layer] <= interval) & (cycles <= interval)
            if not possible.any():
                return
            place = int(torch.where(possible, self.sizes + own + cycles / (interval + 1), inf).argmin())
            yield end + 1, place, int(own[place])


#: Times that the multipliers of a layer that may stand alone between others fit into the budget.
_LIGHT = 64
#: More multipliers than any budget: there is no such folding.
_NONE = 1 << 40


def _lanes_that_matter(sizes: Iterable[int], budget: int) -> list[int]:
    """The lanes with fewer of which some size takes more beats; small numbers, because streams may need a divisor."""
    found = {-(-size // beats) for size in sizes for beats in range(1, size + 1)} | set(range(1, _ALL_LANES + 1))
    return sorted(each for each in found if each <= budget)


_ALL_LANES = 16


def _possible_intervals(design: Design, ways: _Ways) -> set[int]:
    """Every number of cycles that an operation, or a converter before it, may take."""
    found = {each.cycles for folds in ways.values() for each in folds}
    for name, folds in ways.items():
        operation = design.operations[name]
        source = _folded_source(operation, design, ways)
        widths = set() if source is None else {each.par_out for each in ways[source]}
        reads = {each.par_in: each for each in folds}
        found |= {_converter_cycles(design, operation, before, each) for before in widths for each in reads.values()}
    return found


def _slowest_interval(ways: _Ways) -> int:
    return max((max(each.cycles for each in folds) for folds in ways.values()), default=1)


def _fastest_interval(ways: _Ways) -> int:
    """The fastest fold of the slowest layer: no interval is shorter."""
    return max((min(each.cycles for each in folds) for folds in ways.values()), default=1)


def _fewest_reads(ways: _Ways) -> int:
    """Cycles in which the outside memory gives the weights of all layers: no interval is shorter."""
    return sum(min(each.reads for each in folds) for folds in ways.values())


def _least_multipliers(ways: _Ways, interval: int) -> int:
    """The fewest multipliers of layers for an interval."""
    return sum(min(each.multipliers for each in folds if each.cycles <= interval) for folds in ways.values())


def _choose_folds(design: Design, ways: _Ways, interval: int) -> dict[str, Fold]:
    """The smallest folds within the interval: the fewest multipliers in total, then the fewest tables.

    A fold's cost depends only on the width of its input, so the search finds the best choices from the end
    backwards.
    """
    fitting = {name: _fitting_folds(name, folds, interval) for name, folds in ways.items()}
    sources = {name: _folded_source(design.operations[name], design, ways) for name in ways}
    readers: dict[str | None, list[str]] = {name: [] for name in (None, *ways)}
    for name, source in sources.items():
        readers[source].append(name)
    best: dict[tuple[str, int | None], tuple[tuple[int, ...], Fold]] = {}
    for name in reversed(tuple(ways)):
        source, operation = sources[name], design.operations[name]
        for before in (None,) if source is None else {each.par_out for each in fitting[source]}:
            costs = {
                each: _add_costs(
                    _fold_cost(design, operation, before, each, interval),
                    *(best[reader, each.par_out][0] for reader in readers[name]),
                )
                for each in fitting[name]
            }
            least = min(costs, key=lambda each: costs[each])
            best[name, before] = costs[least], least
    chosen: dict[str, Fold] = {}
    for name, source in sources.items():
        chosen[name] = best[name, None if source is None else chosen[source].par_out][1]
    return chosen


def _cycles_with_converter(design: Design, ways: _Ways, chosen: Mapping[str, Fold], name: str) -> int:
    """Cycles of a sample through an operation and the converter before it."""
    operation, own = design.operations[name], chosen[name]
    source = _folded_source(operation, design, ways)
    before = None if source is None else chosen[source].par_out
    return max(own.cycles, _converter_cycles(design, operation, before, own))


def _fitting_folds(name: str, folds: tuple[Fold, ...], interval: int) -> list[Fold]:
    fitting = [each for each in folds if each.cycles <= interval]
    if not fitting:
        fastest = min(each.cycles for each in folds)
        raise FoldingError(f"{name} takes {fastest} cycles at least; an interval of {interval} is too short for it")
    return fitting


def _folded_source(operation: Operation, design: Design, ways: _Ways) -> str | None:
    """The folded operation that decides the width of an operation's input."""
    while operation.inputs:
        operation = design.operations[operation.inputs[0]]
        if operation.name in ways:
            return operation.name
    return None


def _add_costs(*costs: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*costs, strict=True)))


def _fold_cost(design: Design, operation: Operation, before: int | None, fold: Fold, interval: int) -> tuple[int, ...]:
    """Whether the stream has to wait for a converter, then the size."""
    return int(_converter_cycles(design, operation, before, fold) > interval), *_fold_size(operation, before, fold)


def _fold_size(operation: Operation, before: int | None, fold: Fold) -> tuple[int, int, int, int]:
    """The quantities to minimise, in this order: multipliers, tables of lanes and converters, cycles."""
    tables = (_OF_LANE.get(operation.kind, _OF_OTHER_LANES) + fold.digit * fold.par_in // 2) * fold.par_out
    tables += _OF_FURTHER_ROOT * (fold.roots - 1)
    if before is not None and before != fold.par_in:
        tables += _OF_NARROWER * before if before > gcd(before, fold.par_in) else _OF_WIDER
    return fold.multipliers, tables, fold.cycles, -fold.par_in


#: Approximate tables of a lane of results, of a lane that a converter narrows, of a converter that widens, and of each
#: root beyond the first.
_OF_LANE = {"norm": 600, "softmax": 250, "blocks": 120, "floats": 120, "linear": 80, "conv2d": 80, "matmul": 80}
_OF_OTHER_LANES, _OF_NARROWER, _OF_WIDER, _OF_FURTHER_ROOT = 20, 16, 10, 200


def _converter_cycles(design: Design, operation: Operation, before: int | None, fold: Fold) -> int:
    """Cycles of a sample through a converter, which moves the greatest common divisor of both widths at a time."""
    if before is None or not operation.inputs:
        return 0
    return design.operations[operation.inputs[0]].out.size // gcd(before, fold.par_in)
