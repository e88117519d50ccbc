"""The output of `mase-server apply`: the passes, the layers, their errors and sizes; as text or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mase_server.cli.applying import Applied
from mase_server.cli.lines import print_lines, print_styled
from mase_server.cli.listing import problem_line
from mase_server.cli.report import problem_map
from mase_server.cli.tables import columns
from mase_server.cli.terminal import say_json
from mase_server.daemon.graph_snapshot import NodeView
from mase_server.lsp.figures import in_bytes, ratio
from mase_server.lsp.pipelines import random_weights, share_text
from mase_server.visible import reveal

#: Keys of the JSON of one layer, and the heads of its column.
LAYER_KEYS = {
    "name": "layer", "path": "", "mase_op": "operator", "family": "", "format": "format", "bits": "bits",
    "sqnr": "SQNR dB", "max_error": "max error", "saturated": "saturated", "note": "",
}  # fmt: skip
_NUMBERS = ("bits", "sqnr", "max_error", "saturated")
#: Operators that only move or make values.
_MOVING = frozenset({"shape", "index", "creation"})
#: Below this, in dB, a fixed point whose place nobody chose by data is the likeliest reason.
_BAD = 10.0
#: What a pass did that gives nothing to tell of.
_NOTHING = "nothing to report"
_FIXED = re.compile(r"\b(?:fixed|integer)\((\d+),-?\d+")


def report(applied: Applied) -> dict[str, Any]:
    """As maps of plain values. sqnr is in dB, "inf" where nothing differs, None where it was not measured."""
    told: Mapping[str, Any] = applied.model.get("transform") or {}
    found = {
        "file": applied.outcome.file,
        "model": applied.model.get("title"),
        "steps": [
            {"text": text, **{key: step.get(key) for key in ("title", "seconds", "info", "report")}}
            for text, step in zip(told.get("texts", ()), told.get("steps", ()), strict=False)
        ],
        "failure": applied.failure or (None if applied.was_applied else told.get("problem")),
        "warning": told.get("problem") if applied.was_applied else None,
        "inputs": told.get("inputs", ""),
        "weights": told.get("weights", ""),
        "summary": told.get("summary") or {},
        "layers": [_layer(node, told.get("formats", {})) for node in applied.layers],
        "problems": [problem_map(problem) for problem in applied.outcome.problems],
    }
    return found if applied.code is None else {**found, "code": applied.code}


def print_json(applied: Applied) -> None:
    """One object."""
    say_json(report(applied))


def _layer(node: NodeView, formats: Mapping[str, float]) -> dict[str, Any]:
    facts = {key: getattr(node, key) for key in LAYER_KEYS if key not in ("path", "bits")}
    path = node.details.get("module_path") or (node.scope[0] if node.scope else "")
    return {key: {**facts, "path": path, "bits": formats.get(node.format or "")}[key] for key in LAYER_KEYS}


def print_text(applied: Applied, everything: bool) -> None:
    """For people; colours only on a terminal. everything: operators that only move values, too."""
    told = report(applied)
    rows = _shown(told["layers"], everything)
    for line in (*_head(told), *(_table(rows) if rows else ()), *_end(told)):
        print_styled(line)
    for problem in applied.outcome.problems:
        print_lines([problem_line(applied.outcome.file, problem)])
    for severity, style in (("warning", "yellow"), ("failure", "bold red")):
        if told[severity]:
            print_styled(f"{severity.replace('failure', 'error')}: {told[severity]}", style)


def _head(told: Mapping[str, Any]) -> Iterator[str]:
    if told["model"] is not None:
        yield reveal(f"{told['file']}: {told['model']}")
    for number, step in enumerate(told["steps"], 1):
        yield f"{number}. {step['text']}  {1000 * (step['seconds'] or 0):.0f} ms"
        yield from (f"   {line}" for line in (step["report"] or step["info"] or _NOTHING).splitlines())
    if told["weights"] or told["inputs"]:
        yield f"measured with {told['weights']} on {told['inputs']}"


def _shown(layers: Sequence[Mapping[str, Any]], everything: bool) -> list[Mapping[str, Any]]:
    """Layers with a format or a note; where no layer has any, those that now give something else."""
    computing = [layer for layer in layers if everything or layer["note"] or not _only_moves(layer)]
    changed = [layer for layer in computing if layer["format"] or layer["note"]]
    return changed or [layer for layer in computing if layer["sqnr"] not in (None, "inf")]


def _only_moves(layer: Mapping[str, Any]) -> bool:
    return layer["family"] in _MOVING or "dropout" in layer["mase_op"]


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    told = {key for row in rows for key, value in row.items() if value not in (None, "")}
    keys = [key for key, head in LAYER_KEYS.items() if (head or key == "note") and key in told]
    cells = [[_told_cell(row, key) for key in keys] for row in rows]
    return columns([LAYER_KEYS[key] for key in keys], cells, [keys.index(key) for key in _NUMBERS if key in keys])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _told_cell(row: Mapping[str, Any], key: str) -> str:
    if key == "saturated" and row[key] is not None:
        return share_text(row[key])
    return str(row["path"]) if key == "name" and row["path"] else _cell(row[key])


def _end(told: Mapping[str, Any]) -> Iterator[str]:
    """The most important figure in one line, and what to try if it is bad."""
    if told["summary"]:
        yield " · ".join(_figures(told["summary"], told["weights"]))
    sqnr = told["summary"].get("sqnr")
    widths = [match[1] for step in told["steps"] if (match := _FIXED.search(step["text"]))]
    if widths and isinstance(sqnr, int | float) and sqnr < _BAD:
        yield f"hint: values often saturate where the SQNR is that low; try fixed({widths[-1]},auto)"


def _figures(summary: Mapping[str, Any], weights: str) -> Iterator[str]:
    random = f" ({random_weights(weights)})" if random_weights(weights) else ""
    if summary.get("sqnr") == "inf":
        yield f"output unchanged{random}"
    elif summary.get("sqnr") is not None:
        yield f"output: SQNR {summary['sqnr']:.1f} dB, max error {_cell(float(summary['max_error']))}{random}"
    if summary.get("saturated") is not None:
        yield f"{share_text(summary['saturated'])} of the values saturated"
    if "data_bits" in summary:
        data, weights = (" -> ".join(_times(*summary[key])) for key in ("data_bits", "weight_bits"))
        yield f"bits on average: data {data}, weights {weights}"
    if "parameter_bytes" in summary:
        before, after = summary["parameter_bytes"]
        changed = ratio(before, after) if before and after else ""
        sizes = in_bytes(before) if before == after else f"{in_bytes(before)} -> {in_bytes(after)}"
        yield f"parameters: {sizes}" + (f", {changed}" if changed else "")


def _times(before: float, after: float) -> list[str]:
    """A number, or two where it changed."""
    return [_cell(float(each)) for each in dict.fromkeys((before, after))]
