"""What the hardware of a model says of itself, in the lens, in cards and beside its own text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server.lsp.figures import counted
from mase_server.lsp.pipelines import random_weights, share_text, sqnr_text
from mase_server.notebooks import is_notebook
from mase_server.visible import escape_code, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission

#: Most bottlenecks that a lens names.
_MOST = 2
#: Most names in a row of a card.
_MOST_IN_CARD = 8
_LONGEST = 90
_BITS = ("kbit", "Mbit", "Gbit")


def lens_text(emission: Emission) -> str:
    """`Verilog: 52 multipliers · 128 cycles · SQNR 38.2 dB · 0.4 % saturated · random weights`; what is missing of it,
    or why there is none."""
    told, missing = emission.told, len(emission.told["unsupported"])
    parts = ["stale"] if emission.stale else []
    if told["refusal"]:
        parts += ["not emitted", _short(told["refusal"])]
    else:
        parts += [f"{counted(missing, 'node')} without hardware"] if missing else []
        parts += _of_rest(told, [*_cost(told["totals"]), counted(told["totals"]["interval"], "cycle")])
        parts += _accuracy(told)
    return f"Verilog{_part(told)}: {' · '.join(parts)}"


def totals_text(emission: Emission) -> str:
    """`52 multipliers · ... · 128 cycles a sample · latency 412 · slowest: fc1 · random weights (seed 0)`."""
    told, totals = emission.told, emission.told["totals"]
    slowest = [f"slowest: {_listed(totals['bottlenecks'], _MOST)}"] if totals.get("bottlenecks") else []
    figures = _of_rest(told, [*_cost(totals), *_pace(totals, "interval")])
    parts = [*figures, *slowest, *_accuracy(told)[:2], told["weights"]]
    return " · ".join(part for part in parts if part)


def operation_text(operation: Mapping[str, Any]) -> str:
    """`64 multipliers · 320 LUTs · 16.0 kbit · 128 cycles a sample · latency 20`; what it has none of is left out."""
    estimate = operation["estimate"]
    return " · ".join([*_cost(estimate), *_pace(estimate, "cycles")])


def model_rows(emission: Emission) -> Iterator[tuple[str, str]]:
    """The rows of a model's card: module, cost, pace, what is missing."""
    told, totals = emission.told, emission.told["totals"]
    yield "module", f"{escape_code(told['module'])}{_part(told, escape_code)}"
    if totals:
        rest = " of the rest" if told["unsupported"] else ""
        yield f"cost{rest}", " · ".join(_cost(totals)) or "unknown"
        yield f"pace{rest}", ", ".join(_pace(totals, "interval")) or "unknown"
    if totals.get("bottlenecks"):
        yield "slowest", _listed(list(map(escape_code, totals["bottlenecks"])), _MOST_IN_CARD)
    if accuracy := _accuracy(told):
        yield "accuracy", " · ".join(accuracy)
    if measured := told["accuracy"].get("inputs"):
        yield "measured on", escape_markdown(measured)
    if calibrated := told["accuracy"].get("calibrated"):
        yield "calibrated on", escape_markdown(calibrated)
    if told["unsupported"]:
        yield "without hardware", _listed([escape_code(each["node"]) for each in told["unsupported"]], _MOST_IN_CARD)
    if told["weights"]:
        yield "weights", escape_markdown(told["weights"])


def source_text(operation: Mapping[str, Any], place: tuple[str, int] | None) -> str:
    """`fc1 · net.py:12 · 64 multipliers · 128 cycles a sample`. place: (path, line from 1); none for notebooks.

    Lines of a notebook are counted through all its cells, which no editor shows.
    """
    where = ""
    if place is not None:
        name = Path(place[0]).name
        where = name if is_notebook(name) else f"{name}:{place[1]}"
    return " · ".join(part for part in (operation["name"], where, operation_text(operation)) if part)


def simulation_text(title: str, told: Mapping[str, Any], emitted: Mapping[str, Any] | None) -> str:
    """`Net: 100 vectors, 0 mismatches, 128.0 cycles a vector (estimate 128), latency 412 cycles (estimate 410)`.

    told: as `building.SIMULATION_KEYS` has it.  emitted: what was simulated, as `building.EMISSION_KEYS` has it; None
    where that is not known. A part, or what is not whole, is said to be.
    """
    what, totals = title, None
    if emitted is not None:
        missing, totals = len(emitted["unsupported"]), emitted["totals"]
        gap = f", but for {counted(missing, 'node')} without hardware" if missing else ""
        what = f"{title}{_part(emitted)}{gap}"
    if told["status"] in ("failed", "stood still"):
        return f"{what}: the simulation {told['status']}. {_short(_last_line(told['log']))}".rstrip()
    parts = [f"{counted(told['vectors'], 'vector')}, {_mismatches(told)}"]
    if told["cycles_per_vector"] is not None:
        parts.append(f"{told['cycles_per_vector']:,.1f} cycles a vector{_estimate(totals, 'interval')}")
    parts.append(f"latency {counted(told['latency'], 'cycle')}{_estimate(totals, 'latency')}")
    return f"{what}: {', '.join(parts)}{_first(told['first'])}"


def _mismatches(told: Mapping[str, Any]) -> str:
    count = told["mismatches"]
    return "0 mismatches" if count == 0 else f"{counted(count, 'element')} differ{'s' if count == 1 else ''}"


def _first(first: Mapping[str, Any] | None) -> str:
    if first is None:
        return ""
    where = f"output {first['output']}, vector {first['vector']}, element {first['element']}"
    return f". The first: {where} is {first['got']}, expected {first['expected']}"


def _estimate(totals: Mapping[str, Any] | None, name: str) -> str:
    return f" (estimate {totals[name]:,})" if totals and totals.get(name) else ""


def _accuracy(told: Mapping[str, Any]) -> list[str]:
    """`SQNR 38.2 dB`, `0.4 % saturated` and, where they are, `random weights`."""
    accuracy = told["accuracy"]
    if accuracy.get("sqnr") is None:
        return []
    saturated = accuracy["saturated"]
    parts = [f"SQNR {sqnr_text(accuracy['sqnr'])}", "" if saturated is None else f"{share_text(saturated)} saturated"]
    return [part for part in (*parts, random_weights(told["weights"])) if part]


def _of_rest(told: Mapping[str, Any], figures: Sequence[str]) -> list[str]:
    """The figures; where some nodes have no hardware, the first one says whose they are."""
    return [f"the rest: {figures[0]}", *figures[1:]] if told["unsupported"] and figures else [*figures]


def _cost(figures: Mapping[str, Any]) -> Iterator[str]:
    """Multipliers, LUTs and memory, as far as there are any."""
    if figures.get("multipliers"):
        yield counted(figures["multipliers"], "multiplier")
    if figures.get("luts"):
        yield counted(figures["luts"], "LUT")
    if figures.get("memory_bits"):
        yield in_bits(figures["memory_bits"])


def _pace(figures: Mapping[str, Any], cycles: str) -> Iterator[str]:
    """Cycles a sample, under that key, and latency, as far as they are known."""
    if figures.get(cycles):
        yield f"{counted(figures[cycles], 'cycle')} a sample"
    if figures.get("latency"):
        yield f"latency {figures['latency']:,}"


def _part(told: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """` of fc alone` where it is not the whole."""
    scope = told["build"]["scope"]
    return f" of {quote(scope)} alone" if scope else ""


def _listed(names: Sequence[str], most: int) -> str:
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])


def in_bits(number: float) -> str:
    """Bits with a prefix of thousands: `960 bits`, `16.4 kbit`."""
    if number < 1000:
        return counted(round(number), "bit")
    scale = -1
    while number >= 1000 and scale + 1 < len(_BITS):
        number, scale = number / 1000, scale + 1
    return f"{number:.{max(0, 3 - len(str(int(number))))}f} {_BITS[scale]}"


def operation_rows(operations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The rows of a card: the component and what it costs, one for each operation that a node becomes."""
    for operation in operations:
        text = operation_text(operation)
        module = escape_code(operation["module"])
        yield "hardware", f"{module} · {text}" if text else module


def _last_line(text: str) -> str:
    lines = str(text or "").strip().splitlines()
    return lines[-1] if lines else ""


def _short(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
