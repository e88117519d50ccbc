"""mixed_precision_transform_pass: each layer in one of several formats, within a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.arguments import Argument
from mase_server.formats import NumberFormat, parse
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.data import DATA, SAMPLES, load
from mase_server.passes.declaration import Pass
from mase_server.passes.mixed_precision.knobs import Closings, Knob, Trials, knobs_of
from mase_server.passes.mixed_precision.search import Choice, Unit, reaching, within
from mase_server.passes.quantize.closing import Closing, has_values
from mase_server.passes.quantize.composed import take_apart
from mase_server.passes.quantize.config import Chooser
from mase_server.passes.quantize.methods import METHODS, Method
from mase_server.passes.quantize.places import Places
from mase_server.passes.quantize.rewriting import rewrite
from mase_server.passes.selection import Selection

FORMATS = ("fixed(4,auto)", "fixed(6,auto)", "fixed(8,auto)", "fixed(12,auto)")
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "bits": None, "sqnr": None, "formats": FORMATS, "calibrate": "mse", "percentile": 99.9, "data": None,
        "samples": None, "only": None,
    }
)  # fmt: skip


@transform
def mixed_precision_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Quantise each operator to one of several formats, so that a budget is met and as little as possible is lost.

    bits: the average width at most, over all elements of parameters, results and rounded inputs; then the error is
    made as small as can be.  sqnr: the signal to noise ratio of the outputs in dB at least; then the bits are made as
    few as can be. One of the two is needed; with both, bits are what is searched for, and sqnr is only checked.
    formats: to choose from.  calibrate, percentile, data, samples, only: as in quantize.

    Every value is in the format of the operator that gives it. What each operator at each format does to the outputs is
    measured alone; from that follows a first choice, which is improved by measuring choices beside it.
    Gives {"quantised": formats by node, "bits": the average, "sqnr", "max_error": of the outputs, measured, "met": is
    the budget?, "problem": why not, "inputs": on what}.  Where the budget cannot be met, the graph has what comes
    nearest.  ValueError for pass_args that cannot be read, and for a model on meta.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = MaseGraph(model, {"input": torch.randn(9, 4)})
    >>> graph, found = passes.mixed_precision_transform_pass(graph, {"bits": 6})
    >>> found["met"], found["bits"] <= 6
    (True, True)
    """
    given = options("mixed_precision_transform_pass", pass_args, _DEFAULTS)
    levels = _levels(given)
    if not has_values(graph):
        raise ValueError("mixed_precision measures errors, so it needs the model's weights; this one is on meta")
    data = load(graph, given["data"], given["samples"])
    knobs = _turned(graph, levels, given, Method(given["calibrate"], given["percentile"]), data)
    if not knobs:
        raise ValueError("mixed_precision: none of the selected nodes computes with floating-point data")
    trials = Trials(graph.module, knobs, data.feeds(graph))
    units = _units(knobs, levels, trials)
    choice = _chosen(units, given, trials, sum(knob.elements for knob in knobs))
    for knob, level in zip(knobs, choice, strict=True):
        _set(knob.texts[level])
    return graph, _found(knobs, choice, levels, trials, given) | {"inputs": data.words}


def _levels(given: Mapping[str, Any]) -> list[NumberFormat]:
    if given["bits"] is None and given["sqnr"] is None:
        raise ValueError("mixed_precision: there is no budget; give bits (on average, at most) or sqnr (dB, at least)")
    levels = [parse(text) for text in given["formats"]]
    if not levels:
        raise ValueError("mixed_precision: formats is empty, expected some to choose from, e.g. fixed(4,auto)")
    return sorted(levels, key=lambda level: level.bits)


def _turned(
    graph: MaseGraph, levels: Sequence[NumberFormat], given: Mapping[str, Any], method: Method, data: Any
) -> list[Knob]:
    """The graph with roundings, all to one format for now, and the knobs that set them."""
    chooser = Chooser({"default": str(levels[0])}, graph.module)
    take_apart(graph, chooser, given["only"])
    places = Places.of(graph, chooser, Selection.of(given["only"]).checked(graph.fx_graph))
    nodes = dict.fromkeys(node for place in places.found for node, _ in place.values)
    values = Closings(levels, method)
    values.find(graph, nodes, data)
    done = rewrite(graph, places, Closing(values.closed, method, None))
    return knobs_of(graph, done.roundings, levels, values)


def _units(knobs: Sequence[Knob], levels: Sequence[NumberFormat], trials: Trials) -> list[Unit]:
    """What each knob alone costs and does, at each level."""
    found = []
    for index, knob in enumerate(knobs):
        alone = [[level if other == index else None for other in range(len(knobs))] for level in range(len(levels))]
        costs = tuple(level.bits * knob.elements for level in levels)
        found.append(Unit(costs, tuple(trials.noise(choice) for choice in alone)))
    return found


def _chosen(units: Sequence[Unit], given: Mapping[str, Any], trials: Trials, elements: int) -> Choice:
    if given["bits"] is not None:
        return within(units, given["bits"] * elements, trials.noise)
    return reaching(units, 10 ** (-given["sqnr"] / 10), trials.noise)


def _set(texts: Mapping[fx.Node, str]) -> None:
    for node, text in texts.items():
        node.update_arg(1, text)


def _found(
    knobs: Sequence[Knob], choice: Choice, levels: Sequence[NumberFormat], trials: Trials, given: Mapping[str, Any]
) -> dict[str, Any]:
    elements = sum(knob.elements for knob in knobs)
    bits = sum(levels[level].bits * knob.elements for knob, level in zip(knobs, choice, strict=True)) / elements
    error = trials.measured(choice).error()
    problem = _problem(given, bits, error.sqnr)
    return {
        "quantised": {knob.name: str(levels[level]) for knob, level in zip(knobs, choice, strict=True)},
        "bits": bits, "sqnr": error.sqnr, "max_error": error.max_error, "met": problem is None, "problem": problem,
    }  # fmt: skip


def _problem(given: Mapping[str, Any], bits: float, sqnr: float | None) -> str | None:
    """Why the budget is not met; None where it is."""
    if given["bits"] is not None and bits > given["bits"]:
        return f"the narrowest formats take {bits:.2f} bits on average, more than {given['bits']:g}"
    if given["sqnr"] is not None and (sqnr is None or sqnr < given["sqnr"]):
        reached = "no known ratio" if sqnr is None else f"{sqnr:.1f} dB"
        return f"the outputs reach {reached}, less than {given['sqnr']:g} dB: wider formats or more bits are needed"
    return None


PASS = Pass(
    name="mixed_precision",
    title="Search a format for each layer",
    kind="transform",
    function=mixed_precision_transform_pass,
    arguments=(
        Argument("bits", "number", "average width at most; the error is made small", minimum=1, maximum=64),
        Argument("sqnr", "number", "dB of the outputs at least; the bits are made few"),
        Argument("formats", "texts", "formats to choose from", list(FORMATS)),
        Argument("calibrate", "choice", "how data choose what a format leaves to them (auto)", "mse", choices=METHODS),
        Argument("percentile", "number", "percent of the values that it holds", 99.9, minimum=50, maximum=100),
        DATA,
        SAMPLES,
    ),
    needs=frozenset({"weights", "data"}),
    selects=True,
)
