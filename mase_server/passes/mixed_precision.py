"""Mixed precision: a format for each layer, within a budget of bits or of error.

Each rounding is put into one graph once, and a run sets each of them to a format or leaves it out. The effect of each
operator alone gives the first choice; after that only measured choices count.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import NumberFormat, Open, parse
from mase_server.ir.feeding import tensors_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import preserve_model
from mase_server.passes.completing import transform
from mase_server.passes.data import DATA, SAMPLES, Data, load
from mase_server.passes.declaration import Findings, Result, Selection, complete_options
from mase_server.passes.error import Sums, copy_tensors
from mase_server.passes.quantize.calibration import (
    METHODS,
    Closed,
    Closing,
    Method,
    calibrate_formats,
    has_values,
    of_tensor,
)
from mase_server.passes.quantize.config import Chooser, take_apart
from mase_server.passes.quantize.places import Places
from mase_server.passes.quantize.transform import Rounding, rewrite_graph
from mase_server.protocol.arguments import Argument

FORMATS = ("fixed(4,auto)", "fixed(6,auto)", "fixed(8,auto)", "fixed(12,auto)")
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "bits": None, "sqnr": None, "formats": FORMATS, "calibrate": "mse", "percentile": 99.9, "data": None,
        "samples": None, "only": None,
    }
)  # fmt: skip


@transform(
    "Search a format for each layer",
    arguments=(
        Argument(
            "bits",
            "number",
            "maximum average width; the pass then makes the error as small as it can",
            minimum=1,
            maximum=64,
        ),
        Argument("sqnr", "number", "minimum SQNR of the outputs in dB; the pass then uses as few bits as it can"),
        Argument("formats", "texts", "formats to choose from", list(FORMATS)),
        Argument("calibrate", "choice", "how data determine a parameter that is `auto`", "mse", choices=METHODS),
        Argument(
            "percentile",
            "number",
            "the percentage of the values that the format must hold",
            99.9,
            minimum=50,
            maximum=100,
        ),
        DATA,
        SAMPLES,
    ),
    needs={"weights", "data"},
    selects=True,
)
def mixed_precision_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Quantise each operator to one of several formats, so that a budget is met with the least error.

    bits: the greatest average width, over all elements of parameters, results and rounded inputs; then the error is
    made as small as possible.  sqnr: the least signal to noise ratio of the outputs in dB; then the bits are made as
    few as possible. One of the two is needed; with both, the search uses bits, and sqnr is only checked.
    formats: the choices.  calibrate, percentile, data, samples, only: as in quantize.

    Every value is in the format of the operator that gives it. The effect of each operator at each format on the
    outputs is measured alone. This gives a first choice, which is improved by measuring neighbouring choices.
    Gives {"quantised": formats by node, "bits": the average, "sqnr", "max_error": of the outputs, measured, "met": is
    the budget?, "problem": why not, "inputs": their source}.  If the budget cannot be met, the graph has the nearest
    choice.  ValueError for pass_args that cannot be read, and for a model on meta.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = MaseGraph(model, {"input": torch.randn(9, 4)})
    >>> graph, found = passes.mixed_precision_transform_pass(graph, {"bits": 6})
    >>> found["met"], found["bits"] <= 6
    (True, True)
    """
    given = complete_options("mixed_precision_transform_pass", pass_args, _DEFAULTS)
    levels = _parse_levels(given)
    if not has_values(graph):
        raise ValueError("mixed_precision measures errors, so it needs the model's weights; this one is on meta")
    data = load(graph, given["data"], given["samples"])
    knobs = _make_knobs(graph, levels, given, Method(given["calibrate"], given["percentile"]), data)
    if not knobs:
        raise ValueError("mixed_precision: none of the selected nodes computes with floating-point data")
    trials = Trials(graph.module, knobs, data.feeds(graph))
    units = _measure_units(knobs, levels, trials)
    choice = _choose_levels(units, given, trials, sum(knob.elements for knob in knobs))
    for knob, level in zip(knobs, choice, strict=True):
        _set_formats(knob.texts[level])
    return graph, _describe_choice(knobs, choice, levels, trials, given) | {"inputs": data.words}


def _parse_levels(given: Mapping[str, Any]) -> list[NumberFormat]:
    if given["bits"] is None and given["sqnr"] is None:
        raise ValueError("mixed_precision: there is no budget; give bits (on average, at most) or sqnr (dB, at least)")
    levels = [parse(text) for text in given["formats"]]
    if not levels:
        raise ValueError("mixed_precision: formats is empty, expected some to choose from, e.g. fixed(4,auto)")
    return sorted(levels, key=lambda level: level.bits)


def _make_knobs(
    graph: MaseGraph, levels: Sequence[NumberFormat], given: Mapping[str, Any], method: Method, data: Any
) -> list[Knob]:
    """Insert roundings, all in one format for now; return the knobs that set them."""
    chooser = Chooser({"default": str(levels[0])}, graph.module)
    take_apart(graph, chooser, given["only"])
    places = Places.of(graph, chooser, Selection.of(given["only"]).checked(graph.fx_graph))
    nodes = dict.fromkeys(node for place in places.found for node, _ in place.values)
    values = Closings(levels, method)
    values.find(graph, nodes, data)
    done = rewrite_graph(graph, places, Closing(values.closed, method, None))
    return knobs_of(graph, done.roundings, levels, values)


def _measure_units(knobs: Sequence[Knob], levels: Sequence[NumberFormat], trials: Trials) -> list[Unit]:
    """Measure the cost and the noise of each knob alone, at each level."""
    found = []
    for index, knob in enumerate(knobs):
        alone = [[level if other == index else None for other in range(len(knobs))] for level in range(len(levels))]
        costs = tuple(level.bits * knob.elements for level in levels)
        found.append(Unit(costs, tuple(trials.noise(choice) for choice in alone)))
    return found


def _choose_levels(units: Sequence[Unit], given: Mapping[str, Any], trials: Trials, elements: int) -> Choice:
    if given["bits"] is not None:
        return search_within_budget(units, given["bits"] * elements, trials.noise)
    return search_within_noise(units, 10 ** (-given["sqnr"] / 10), trials.noise)


def _set_formats(texts: Mapping[fx.Node, str]) -> None:
    for node, text in texts.items():
        node.update_arg(1, text)


def _describe_choice(
    knobs: Sequence[Knob], choice: Choice, levels: Sequence[NumberFormat], trials: Trials, given: Mapping[str, Any]
) -> Findings:
    elements = sum(knob.elements for knob in knobs)
    bits = sum(levels[level].bits * knob.elements for knob, level in zip(knobs, choice, strict=True)) / elements
    error = trials.measured(choice).error()
    problem = _why_budget_missed(given, bits, error.sqnr)
    return {
        "quantised": {knob.name: str(levels[level]) for knob, level in zip(knobs, choice, strict=True)},
        "bits": bits, "sqnr": error.sqnr, "max_error": error.max_error, "met": problem is None, "problem": problem,
    }  # fmt: skip


def _why_budget_missed(given: Mapping[str, Any], bits: float, sqnr: float | None) -> str | None:
    """The reason why the budget is not met; None if it is."""
    if given["bits"] is not None and bits > given["bits"]:
        return f"the narrowest formats take {bits:.2f} bits on average, more than {given['bits']:g}"
    if given["sqnr"] is not None and (sqnr is None or sqnr < given["sqnr"]):
        reached = "no known ratio" if sqnr is None else f"{sqnr:.1f} dB"
        return f"the outputs reach {reached}, less than {given['sqnr']:g} dB: wider formats or more bits are needed"
    return None


# The search: each unit's level, from the cost and noise of levels.

#: Levels, one for each unit.
Choice = list[int]
#: Measures the noise of the output for a choice.
Measure = Callable[[Choice], float]
#: The most measurements after that of the first choice.
TRIES = 200
#: The most choices kept for the units so far.
KEPT = 1500
#: How far the sum of the units' own noises may exceed the limit for a move to be measured.
SLACK = 1.5


@dataclass(frozen=True, slots=True)
class Unit:
    """costs, noises: for each level. The noise is that of the output if only this unit is at that level."""

    costs: tuple[float, ...]
    noises: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A choice for some units. cost, noise: sums over them.  level: of the last one.  before: the choice for the
    others."""

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


def find_frontier(units: Sequence[Unit]) -> list[Point]:
    """The choices that no other one beats in both cost and noise, assuming that noises add up; the cheapest first.

    If there are very many, only an even sample is kept.
    """
    points = [Point()]
    for unit in units:
        levels = list(enumerate(zip(unit.costs, unit.noises, strict=True)))
        more = [Point(point.cost + c, point.noise + n, level, point) for point in points for level, (c, n) in levels]
        points = _drop_beaten(more)
    return points


def _drop_beaten(points: list[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, point.noise)):
        if not kept or point.noise < kept[-1].noise:
            kept.append(point)
    if len(kept) <= KEPT:
        return kept
    return [kept[round(index * (len(kept) - 1) / (KEPT - 1))] for index in range(KEPT)]


def cost_of(units: Sequence[Unit], choice: Choice) -> float:
    """The cost of a choice."""
    return sum(unit.costs[level] for unit, level in zip(units, choice, strict=True))


def search_within_budget(units: Sequence[Unit], budget: float, measure: Measure) -> Choice:
    """The least noise for at most `budget` cost; the cheapest choice if even that costs more."""
    points = find_frontier(units)
    fitting = [point for point in points if cost_of(units, point.choice) <= budget]
    return _improve_choice(units, (fitting or points[:1])[-1].choice, budget, measure)


def _improve_choice(units: Sequence[Unit], choice: Choice, budget: float, measure: Measure) -> Choice:
    """Move units within the budget as long as measurements improve, trying the most promising moves first."""
    noise, tries, better = measure(choice), 0, True
    while better:
        better = False
        spent = cost_of(units, choice)
        fitting = [move for move in _iterate_moves(units, choice) if spent + move.cost <= budget]
        for move in heapq.nsmallest(TRIES - tries, fitting, key=lambda move: move.noise):
            tries, other = tries + 1, move.of(choice)
            if (found := measure(other)) < noise:
                choice, noise, better = other, found, True
                break
    return choice


@dataclass(frozen=True, slots=True)
class _Move:
    """A change of the level of one unit, or of one that costs more and one that costs less.

    cost, noise: the increase, from the units alone.
    """

    levels: tuple[tuple[int, int], ...]
    cost: float
    noise: float

    def of(self, choice: Choice) -> Choice:
        """The choice after the move."""
        return _apply_move(choice, self.levels)


def _iterate_moves(units: Sequence[Unit], choice: Choice) -> Iterator[_Move]:
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


def search_within_noise(units: Sequence[Unit], noise: float, measure: Measure) -> Choice:
    """The least cost with at most `noise`; the cleanest choice if even that has more."""
    choices = [point.choice for point in find_frontier(units)]
    first = bisect_left(choices, True, key=lambda choice: measure(choice) <= noise)
    return _lower_cost(units, choices[min(first, len(choices) - 1)], noise, measure)


def _lower_cost(units: Sequence[Unit], choice: Choice, limit: float, measure: Measure) -> Choice:
    """Move units so that they cost less, as long as measurements allow it, trying those first that save most for their
    noise."""
    tries, saved = 0, True
    while saved:
        saved, noise = False, measure(choice)
        promising = [
            move for move in _iterate_moves(units, choice) if move.cost < 0 and noise + move.noise <= SLACK * limit
        ]
        for move in heapq.nsmallest(
            TRIES - tries, promising, key=lambda move: move.cost / max(move.noise, limit / 1e6)
        ):
            tries, other = tries + 1, move.of(choice)
            if measure(other) <= limit:
                choice, saved = other, True
                break
    return choice


def _apply_move(choice: Choice, taken: Sequence[tuple[int, int]]) -> Choice:
    made = list(choice)
    for index, level in taken:
        made[index] = level
    return made


# A graph whose roundings can be set to one of several formats, or left out, from run to run.


@dataclass(frozen=True, slots=True)
class Knob:
    """One unit. texts: for each level, the format of each of its roundings.  elements: the number that they round
    together."""

    name: str
    texts: tuple[Mapping[fx.Node, str], ...]
    elements: int


def knobs_of(
    graph: MaseGraph, roundings: Iterable[Rounding], levels: Sequence[NumberFormat], values: Closings
) -> list[Knob]:
    """A knob for each node that owns roundings, in order."""
    owned: dict[fx.Node, list[Rounding]] = {}
    for each in roundings:
        owned.setdefault(each.owner, []).append(each)
    facts = graph.facts
    return [
        Knob(
            owner.name,
            tuple({each.node: values.text(each.value, level) for each in own} for level in levels),
            sum(prod(facts[each.node].shape) for each in own),
        )
        for owner, own in owned.items()
    ]


class Closings:
    """The formats of each value at each level, chosen from data."""

    def __init__(self, levels: Sequence[NumberFormat], method: Method) -> None:
        self.open = [level for level in levels if isinstance(level, Open)]
        self.method = method
        self.closed: Closed = {}

    def find(self, graph: MaseGraph, nodes: Iterable[fx.Node], data: Data) -> None:
        """Run the graph before it is rewritten."""
        if self.open:
            self.closed = calibrate_formats(graph, dict.fromkeys(nodes, self.open), data, self.method)

    def text(self, value: fx.Node | Tensor, level: NumberFormat) -> str:
        """The format of one value at one level."""
        if not isinstance(level, Open):
            return str(level)
        return str(self.closed[value, level] if isinstance(value, fx.Node) else of_tensor(level, value, self.method))


class Trials:
    """Runs a graph with its knobs at given levels and compares its outputs with the unrounded ones."""

    def __init__(self, module: fx.GraphModule, knobs: Sequence[Knob], feeds: Iterable[Sequence[Any]]) -> None:
        self.module, self.knobs, self.feeds = module, knobs, [list(values) for values in feeds]
        self.random = torch.get_rng_state()
        self.references = [self._run(values, {}) for values in self.feeds]
        self._known: dict[tuple[int | None, ...], Sums] = {}

    def measured(self, choice: Sequence[int | None]) -> Sums:
        """The error sums of the outputs; None leaves a unit unrounded."""
        key = tuple(choice)
        if key not in self._known:
            self._known[key] = self._measured(key)
        return self._known[key]

    def _measured(self, choice: tuple[int | None, ...]) -> Sums:
        texts: dict[fx.Node, str | None] = {}
        for knob, level in zip(self.knobs, choice, strict=True):
            texts |= {} if level is None else knob.texts[level]
        sums = Sums()
        for values, reference in zip(self.feeds, self.references, strict=True):
            for path, tensor in self._run(values, texts).items():
                sums.add(reference[path], tensor)
        return sums

    def noise(self, choice: Choice | Sequence[int | None]) -> float:
        """The squared error of the outputs relative to their power; infinite if something is not finite."""
        sums = self.measured(choice)
        return sums.noise / (sums.signal or 1.0) if sums.known else float("inf")

    def _run(self, values: Sequence[Any], texts: Mapping[fx.Node, str | None]) -> dict[str, Tensor]:
        with preserve_model(self.module), torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            out = _Set(self.module, self._all(), texts).run(*map(copy_tensors, values), enable_io_processing=False)
        return {path: tensor.detach().clone() for path, tensor in tensors_of(out).items() if tensor.is_floating_point()}

    def _all(self) -> frozenset[fx.Node]:
        return frozenset(node for knob in self.knobs for node in knob.texts[0])


class _Set(fx.Interpreter):
    """Runs a graph in which some roundings round to a given text, or not at all."""

    def __init__(self, module: fx.GraphModule, nodes: frozenset[fx.Node], texts: Mapping[fx.Node, str | None]) -> None:
        super().__init__(module)
        self.nodes, self.texts = nodes, texts

    def run_node(self, n: fx.Node) -> Any:
        """Run one node."""
        if n not in self.nodes:
            return super().run_node(n)
        (source,) = n.all_input_nodes
        text, value = self.texts.get(n), self.env[source]
        return value if text is None else parse(text).round(value)
