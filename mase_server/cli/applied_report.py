"""What `mase-server apply` prints: what was applied, the layers, the errors and sizes; as text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from mase_server.cli.applying import Applied
from mase_server.cli.listing import problem_line
from mase_server.cli.report import problem_map
from mase_server.cli.tables import columns
from mase_server.daemon.graph_snapshot import NodeView
from mase_server.lsp.figures import in_bytes, ratio

#: Keys of the JSON of one layer, and the heads of its column.
LAYER_KEYS = {
    "name": "layer", "path": "", "mase_op": "operator", "format": "format", "bits": "bits", "sqnr": "SQNR dB",
    "max_error": "max error", "note": "",
}  # fmt: skip
_NUMBERS = ("bits", "sqnr", "max_error")


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
        "failure": applied.failure or told.get("problem"),
        "inputs": told.get("inputs", ""),
        "weights": told.get("weights", ""),
        "summary": told.get("summary") or {},
        "layers": [_layer(node, told.get("formats", {})) for node in applied.layers],
        "problems": [problem_map(problem) for problem in applied.outcome.problems],
    }
    return found if applied.code is None else {**found, "code": applied.code}


def print_json(applied: Applied) -> None:
    """One object."""
    print(json.dumps(report(applied), ensure_ascii=False))


def _layer(node: NodeView, formats: Mapping[str, float]) -> dict[str, Any]:
    facts = {key: getattr(node, key) for key in ("name", "mase_op", "format", "sqnr", "max_error", "note")}
    path = node.details.get("module_path") or (node.scope[0] if node.scope else "")
    return {key: {**facts, "path": path, "bits": formats.get(node.format or "")}[key] for key in LAYER_KEYS}


def print_text(applied: Applied) -> None:
    """For people; colours only on a terminal."""
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    told = report(applied)
    for line in _head(told):
        console.print(line)
    if rows := _shown(told["layers"]):
        for line in _table(rows, told["summary"]):
            console.print(line)
    for line in _sizes(told["summary"]):
        console.print(line)
    for problem in applied.outcome.problems:
        console.print(problem_line(applied.outcome.file, problem))
    if told["failure"]:
        console.print(f"error: {told['failure']}", style="bold red")


def _head(told: Mapping[str, Any]) -> Iterator[str]:
    if told["model"] is not None:
        yield f"{told['file']}: {told['model']}"
    for number, step in enumerate(told["steps"], 1):
        yield f"{number}. {step['text']}  {1000 * (step['seconds'] or 0):.0f} ms"
        yield from (f"   {line}" for line in (step["report"] or step["info"] or "").splitlines())
    if told["weights"] or told["inputs"]:
        yield f"measured with {told['weights']} on {told['inputs']}"


def _shown(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Layers with a format or a note; where no layer has any, those that now give something else."""
    changed = [layer for layer in layers if layer["format"] or layer["note"]]
    return changed or [layer for layer in layers if layer["sqnr"] not in (None, "inf")]


def _table(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[str]:
    keys = [key for key in LAYER_KEYS if key != "path" and any(row[key] is not None for row in rows)]
    cells = [[row["path"] if key == "name" and row["path"] else _cell(row[key]) for key in keys] for row in rows]
    if summary.get("sqnr") is not None:
        output = {"name": "output", "sqnr": summary["sqnr"], "max_error": summary["max_error"]}
        cells.append([_cell(output.get(key)) for key in keys])
    return columns([LAYER_KEYS[key] for key in keys], cells, [keys.index(key) for key in _NUMBERS if key in keys])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _sizes(summary: Mapping[str, Any]) -> Iterator[str]:
    if "parameter_bytes" in summary:
        before, after = summary["parameter_bytes"]
        yield f"parameters: {in_bytes(before)} -> {in_bytes(after)}{_times(before, after)}"
    for key, name in (("data_bits", "data"), ("weight_bits", "weights")):
        if key in summary:
            before, after = summary[key]
            yield f"bits of {name} on average: {_cell(float(before))} -> {_cell(float(after))}"


def _times(before: float, after: float) -> str:
    text = ratio(before, after) if before and after else ""
    return f", {text}" if text else ""
