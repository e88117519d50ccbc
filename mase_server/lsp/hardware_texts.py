"""Texts about the hardware of a model, for the lens, for cards and beside its own Verilog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server.lsp.pipelines import sqnr_of_weights
from mase_server.lsp.wording import format_count
from mase_server.notebooks import is_notebook
from mase_server.protocol.snapshot import share_text
from mase_server.visible import escape_code, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission

#: Maximum number of bottlenecks in a lens.
_MOST = 2
#: Maximum number of names in a row of a card.
_MOST_IN_CARD = 8
_LONGEST = 90
_BITS = ("kbit", "Mbit", "Gbit")


def lens_texts(emission: Emission) -> tuple[str, ...]:
    """`Verilog: 52 multipliers · 128 cycles · SQNR 38.2 dB (random weights) · 0.4 % saturated`, and shorter forms.

    If nodes have no hardware it says how many, and if nothing was emitted it says why.
    """
    told, missing = emission.told, len(emission.told["unsupported"])
    parts = ["stale"] if emission.stale else []
    if told["refusal"]:
        parts += ["not emitted", _shorten_refusal(told["refusal"])]
    else:
        parts += [f"{format_count(missing, 'node')} without hardware"] if missing else []
        pace = [format_count(told["totals"]["interval"], "cycle"), *_copies_part(told["totals"])]
        parts += _of_rest(told, [*_cost_parts(told["totals"]), *pace, *_rate_parts(told)])
        waiting = len(told["totals"].get("waiting", ()))
        parts += [f"{format_count(waiting, 'layer')} wait{'s' * (waiting == 1)} for memory"] if waiting else []
        parts += _accuracy(told)
    name = f"Verilog{_built_part_text(told)}"
    return f"{name}: {' · '.join(parts)}", f"{name}: {parts[0]}", name


def totals_text(emission: Emission) -> str:
    """`52 multipliers · ... · 128 cycles per sample · latency 412 · slowest: fc1 · random weights (seed 0)`."""
    told, totals = emission.told, emission.told["totals"]
    slowest = [f"slowest: {_list_first_names(totals['bottlenecks'], _MOST)}"] if totals.get("bottlenecks") else []
    figures = _of_rest(told, [*_cost_parts(totals), *_pace_parts(totals, "interval")])
    parts = [*figures, *slowest, *_accuracy(told)[:2], told["weights"]]
    return " · ".join(part for part in parts if part)


def _rate_parts(told: Mapping[str, Any], escape: Callable[[str], str] = str) -> Iterator[str]:
    """`586,000 samples/s on ecp5-85k at 75 MHz`, an estimate; nothing without a target."""
    if "samples" in (totals := told["totals"]):
        target = escape(told["build"]["target"])
        yield f"{totals['samples']:,.0f} samples/s on {target} at {totals['clock'] / 1e6:,.0f} MHz"


def operation_text(operation: Mapping[str, Any]) -> str:
    """`64 multipliers · 320 LUTs · 16.0 kbit · 128 cycles per sample · latency 20 · works 47 % of the time`.

    Zero parts are left out. With weights from outside: `... · weights read in 96 cycles`, and `waits for them`.
    """
    estimate = operation["estimate"]
    share = round(100 * estimate.get("utilisation", 0))
    works = ["works all the time" if share == 100 else f"works {share} % of the time"] if share else []
    reads = [f"weights read in {format_count(estimate['reads'], 'cycle')}"] if estimate.get("reads") else []
    waits = ["waits for them"] if estimate.get("waits") else []
    return " · ".join([*_cost_parts(estimate), *_pace_parts(estimate, "cycles"), *works, *reads, *waits])


def model_rows(emission: Emission) -> Iterator[tuple[str, str]]:
    """The rows of a model's card: module, cost, pace, missing nodes."""
    told, totals = emission.told, emission.told["totals"]
    yield "module", f"{escape_code(told['module'])}{_built_part_text(told, escape_code)}"
    if totals:
        rest = " of the rest" if told["unsupported"] else ""
        yield f"cost{rest}", " · ".join(_cost_parts(totals)) or "unknown"
        yield f"pace{rest}", ", ".join([*_pace_parts(totals, "interval"), *_rate_parts(told, escape_code)]) or "unknown"
    if totals.get("bottlenecks"):
        yield "slowest", _list_first_names(list(map(escape_code, totals["bottlenecks"])), _MOST_IN_CARD)
    if totals.get("reads"):
        waiting = _list_first_names(list(map(escape_code, totals["waiting"])), _MOST_IN_CARD) or "no layer"
        yield "weights from outside", f"read in {format_count(totals['reads'], 'cycle')}; waiting for them: {waiting}"
    if accuracy := _accuracy(told):
        yield "accuracy", " · ".join(accuracy)
    if measured := told["accuracy"].get("inputs"):
        yield "measured on", escape_markdown(measured)
    if calibrated := told["accuracy"].get("calibrated"):
        yield "calibrated on", escape_markdown(calibrated)
    if told["unsupported"]:
        yield (
            "without hardware",
            _list_first_names([escape_code(each["node"]) for each in told["unsupported"]], _MOST_IN_CARD),
        )
    if told["weights"]:
        yield "weights", escape_markdown(told["weights"])


def source_text(operation: Mapping[str, Any], place: tuple[str, int] | None) -> str:
    """`fc1 · net.py:12 · 64 multipliers · 128 cycles per sample`. place: (path, line from 1); None for notebooks.

    A notebook's lines are counted through all its cells, and no editor shows such numbers.
    """
    where = ""
    if place is not None:
        name = Path(place[0]).name
        where = name if is_notebook(name) else f"{name}:{place[1]}"
    return " · ".join(part for part in (operation["name"], where, operation_text(operation)) if part)


def simulation_text(title: str, told: Mapping[str, Any], emitted: Mapping[str, Any] | None) -> str:
    """`Net: 100 vectors, 0 mismatches, 128.0 cycles per vector (estimate 128), latency 412 cycles (estimate 410)`.

    told: as in `building.SIMULATION_KEYS`.  emitted: the simulated hardware as in `building.EMISSION_KEYS`; None if
    unknown. The text says so if only a part of the model was simulated, or nodes are missing.
    """
    what, totals = title, None
    if emitted is not None:
        missing, totals = len(emitted["unsupported"]), emitted["totals"]
        gap = f", but for {format_count(missing, 'node')} without hardware" if missing else ""
        what = f"{title}{_built_part_text(emitted)}{gap}"
    if told["status"] in ("failed", "stood still"):
        return f"{what}: the simulation {told['status']}. {_shorten_refusal(_last_line(told['log']))}".rstrip()
    parts = [f"{format_count(told['vectors'], 'vector')}, {_mismatches_text(told)}"]
    if told["cycles_per_vector"] is not None:
        parts.append(f"{told['cycles_per_vector']:,.1f} cycles per vector{_estimate_text(totals, 'interval')}")
    parts.append(f"latency {format_count(told['latency'], 'cycle')}{_estimate_text(totals, 'latency')}")
    # Of equal vectors, the log tells why there is no waveform.
    further = f". {_shorten_refusal(_last_line(told['log']))}" if told["status"] == "equal" and told["log"] else ""
    return f"{what}: {', '.join(parts)}{_first_mismatch_text(told['first'])}{further}"


def _mismatches_text(told: Mapping[str, Any]) -> str:
    count = told["mismatches"]
    return "0 mismatches" if count == 0 else f"{format_count(count, 'element')} differ{'s' if count == 1 else ''}"


def _first_mismatch_text(first: Mapping[str, Any] | None) -> str:
    if first is None:
        return ""
    where = f"output {first['output']}, vector {first['vector']}, element {first['element']}"
    return f". The first: {where} is {first['got']}, expected {first['expected']}"


def _estimate_text(totals: Mapping[str, Any] | None, name: str) -> str:
    return f" (estimate {totals[name]:,})" if totals and totals.get(name) else ""


def _accuracy(told: Mapping[str, Any]) -> list[str]:
    """`SQNR 38.2 dB (random weights)` and `0.4 % saturated`."""
    accuracy = told["accuracy"]
    if accuracy.get("sqnr") is None:
        return []
    saturated = accuracy["saturated"]
    parts = [sqnr_of_weights(accuracy["sqnr"], told["weights"])]
    return parts if saturated is None else [*parts, f"{share_text(saturated)} saturated"]


def _of_rest(told: Mapping[str, Any], figures: Sequence[str]) -> list[str]:
    """The figures; if some nodes have no hardware, the first figure says that it is of the rest."""
    return [f"the rest: {figures[0]}", *figures[1:]] if told["unsupported"] and figures else [*figures]


def _cost_parts(figures: Mapping[str, Any]) -> Iterator[str]:
    """Multipliers, LUTs and memory, without zero figures."""
    if figures.get("multipliers"):
        yield format_count(figures["multipliers"], "multiplier")
    if figures.get("luts"):
        yield format_count(figures["luts"], "LUT")
    if figures.get("memory_bits"):
        yield in_bits(figures["memory_bits"])


def _pace_parts(figures: Mapping[str, Any], cycles: str) -> Iterator[str]:
    """Cycles a sample, under that key, and latency, as far as they are known."""
    if figures.get(cycles):
        yield f"{format_count(figures[cycles], 'cycle')} per sample"
    if figures.get("latency"):
        yield f"latency {figures['latency']:,}"
    yield from _copies_part(figures)


def _copies_part(totals: Mapping[str, Any]) -> Iterator[str]:
    if "copies" in totals:
        yield f"{totals['copies']} copies in turn"


def _built_part_text(told: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """` of fc alone` if it is only a part of the model."""
    scope = told["build"]["scope"]
    return f" of {quote(scope)} alone" if scope else ""


def _list_first_names(names: Sequence[str], most: int) -> str:
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])])


def in_bits(number: float) -> str:
    """Bits with a prefix of thousands: `960 bits`, `16.4 kbit`."""
    if number < 1000:
        return format_count(round(number), "bit")
    scale = -1
    while number >= 1000 and scale + 1 < len(_BITS):
        number, scale = number / 1000, scale + 1
    return f"{number:.{max(0, 3 - len(str(int(number))))}f} {_BITS[scale]}"


def operation_rows(operations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The rows of a card: each component that a node becomes, with its cost."""
    for operation in operations:
        text = operation_text(operation)
        module = escape_code(operation["module"])
        yield "hardware", f"{module} · {text}" if text else module


def _last_line(text: str) -> str:
    lines = str(text or "").strip().splitlines()
    return lines[-1] if lines else ""


def _shorten_refusal(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
