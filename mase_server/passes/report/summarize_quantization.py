"""summarize_quantization: the effect of quantisation on every operator, as a table."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.dtypes import short
from mase_server.formats import NumberFormat
from mase_server.ir.facts import call_of, fact_leaves
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_of, format_text, number_formats, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType
from mase_server.passes.bits import stored_parameters
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Result, complete_options, path_of
from mase_server.passes.error import GIVES, Error, Errors, measure, original_of
from mase_server.passes.quantize.calibration import has_values
from mase_server.passes.report.report_graph import format_table, log_report

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"original_graph": None, "save_dir": None, "measure": None})
_HEAD = (
    "node", "layer", "mase_op", "arguments", "original", "format", "bits_before", "bits_after", "changed", "sqnr",
    "max_error", "saturated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One operator.  arguments: formats by MASE's names, those of parameters included.  original, format: of the
    result, before and after.  bits_before, bits_after: of its arguments and result, per element.  sqnr: dB.
    saturated: the share of its parameters and results outside the range of their formats."""

    node: str
    layer: str
    mase_op: str
    arguments: Mapping[str, str]
    original: str
    format: str
    bits_before: float
    bits_after: float
    changed: bool
    sqnr: float | None = None
    max_error: float | None = None
    saturated: float | None = None


@analysis(
    "Summarise quantisation",
    arguments=(
        Argument("save_dir", "file", "a folder for the tables as CSV and JSON"),
        Argument(
            "measure",
            "boolean",
            "run the original and the quantised graph, and report errors; by default if both can run",
        ),
    ),
    needs={"weights"},
)
def summarize_quantization_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """A table of every operator on floating-point numbers: the formats of its arguments and results, before and after.

    original_graph: the graph before; without it, the graph as it was recorded.  measure: run both on the inputs that
    the graph was annotated on, and report each operator's error and saturated values; without it, where all have values
    and the original is known.  save_dir: a folder for quantize_table.csv,
    quantize_histogram.csv (how many operators of each kind changed) and quantize_summary.json; it is made.
    Gives {"rows": one dict for each operator, "histogram": {operator: {"total", "changed", "unchanged"}}, "parameters":
    {"original_bytes", "bytes"}, "sqnr", "max_error": of all outputs, "saturated": of all values, each None where
    nothing was measured, "report": text}.
    ValueError for a graph without a recording and without original_graph.
    Source: `chop.passes.graph.transforms.quantize.summary.summarize_quantization_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    >>> _, found = passes.summarize_quantization_analysis_pass(graph)
    >>> found["histogram"]["linear"], found["rows"][0]["arguments"]["weight"]
    ({'total': 1, 'changed': 1, 'unchanged': 0}, 'fixed(8,4)')
    """
    given = complete_options("summarize_quantization_analysis_pass", pass_args, _DEFAULTS)
    before = given["original_graph"]
    can_measure = has_values(graph) and (before is not None or graph.recording is not None)
    errors = _measure_errors(graph, before) if given["measure"] or (given["measure"] is None and can_measure) else None
    lines = list(_compare_operators(graph, before, errors))
    whole = Error(None, None) if errors is None else errors.output
    found = {
        "rows": [asdict(line) for line in lines],
        "histogram": count_changes(lines),
        "parameters": _count_parameter_bytes(graph),
        "sqnr": whole.sqnr,
        "max_error": whole.max_error,
        "saturated": None if errors is None else errors.saturation,
    }
    if given["save_dir"] is not None:
        _save_tables(Path(given["save_dir"]), lines, found)
    text = log_report(format_table(_HEAD, map(_line_cells, lines)), None)
    return graph, {**found, "report": text if errors is None else f"{text}\n{_measured(errors)}"}


def _measured(errors: Errors) -> str:
    """The error of the whole, in one line."""
    parts = [] if errors.output.sqnr is None else [f"SQNR {errors.output.sqnr:.1f} dB"]
    parts += [] if errors.saturation is None else [f"{100 * errors.saturation:.2g} % of the values saturated"]
    return f"output: {', '.join(parts)}" if parts else "output: its error is not known"


def _measure_errors(graph: MaseGraph, before: MaseGraph | None) -> Errors:
    original = original_of(graph) if before is None else before.model
    return measure(original, graph.model, graph.knowledge.feed(graph.arguments))


def _count_parameter_bytes(graph: MaseGraph) -> dict[str, int]:
    """The bytes of the parameters, as the model stores them and in their formats."""
    sizes = stored_parameters(graph).values()
    return {
        "original_bytes": round(sum(each.elements * each.stored for each in sizes) / 8),
        "bytes": round(sum(each.elements * each.bits for each in sizes) / 8),
    }


def _compare_operators(graph: MaseGraph, before: MaseGraph | None, errors: Errors | None) -> Iterator[Line]:
    first = iterate_operators(graph, rounded=False) if before is None else iterate_operators(before)
    originals = {each.gives: each for each in first}
    for each in iterate_operators(graph):
        was = originals.get(each.gives, each)
        error = (None if errors is None else errors.nodes.get(each.gives)) or Error(None, None)
        yield Line(
            node=each.node.name,
            layer=path_of(each.node),
            mase_op=operator_of(each.node, graph.module),
            arguments={name: value.format for name, value in each.arguments.items()},
            original=was.result.format,
            format=each.result.format,
            bits_before=was.average_bits,
            bits_after=each.average_bits,
            changed=was.formats != each.formats,
            sqnr=error.sqnr,
            max_error=error.max_error,
            saturated=None if errors is None else errors.saturated.get(each.gives),
        )


def count_changes(lines: Iterable[Line]) -> dict[str, dict[str, int]]:
    """The number of operators of each kind, and how many of them changed."""
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        counts = found.setdefault(line.mase_op, {"total": 0, "changed": 0, "unchanged": 0})
        counts["total"] += 1
        counts["changed" if line.changed else "unchanged"] += 1
    return found


def _line_cells(line: Line) -> list[str]:
    return [_cell_text(getattr(line, name)) for name in _HEAD]


def _cell_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _save_tables(folder: Path, lines: Sequence[Line], found: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "quantize_table.csv", [_HEAD, *map(_line_cells, lines)])
    counts = [(name, *counts.values()) for name, counts in found["histogram"].items()]
    _write_csv(folder / "quantize_histogram.csv", [("mase_op", "total", "changed", "unchanged"), *counts])
    text = json.dumps(_replace_infinity(found), indent=2)
    (folder / "quantize_summary.json").write_text(f"{text}\n", encoding="utf-8")


def _replace_infinity(value: Any) -> Any:
    """The same with "inf" for infinity, for which JSON has no number."""
    if isinstance(value, Mapping):
        return {key: _replace_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_infinity(item) for item in value]
    return "inf" if value == math.inf else value


def _write_csv(file: Path, rows: Iterable[Sequence[Any]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)


# The number formats of each operator's arguments and results.


@dataclass(frozen=True, slots=True)
class Value:
    """A floating-point tensor.  format: its text, or the short name of its element type.  bits: of an element."""

    format: str
    elements: int
    bits: float

    @classmethod
    def of(cls, tensor: TensorType, format: NumberFormat | None) -> Value:
        """A value of a type, in a format or unrounded."""
        if format is None:
            return cls(short(tensor.dtype), tensor.numel, float(sum(format_of(tensor.dtype)[1])))
        return cls(str(format), tensor.numel, format.bits)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator on floating-point numbers.  gives: the name of the original's node with this value.  arguments:
    by MASE's names, those of parameters included."""

    node: fx.Node
    gives: str
    arguments: Mapping[str, Value]
    result: Value

    @property
    def formats(self) -> tuple[Any, ...]:
        """The formats that quantisation can change."""
        return {name: value.format for name, value in self.arguments.items()}, self.result.format

    @property
    def average_bits(self) -> float:
        """Average bits of an element over its arguments and results."""
        values = [*self.arguments.values(), self.result]
        return sum(each.elements * each.bits for each in values) / max(sum(each.elements for each in values), 1)


def iterate_operators(graph: MaseGraph, *, rounded: bool = True) -> Iterator[Operator]:
    """Every operator with a floating-point result, except roundings. rounded: False ignores all roundings."""
    facts, model = graph.facts, graph.module
    formats = number_formats(graph.fx_graph, model) if rounded else {}
    for node in graph.fx_graph.nodes:
        results = list(floating_types(facts.get(node)))
        if node.op.startswith("call_") and format_text(node) is None and results:
            named = named_arguments(call_of(node, facts, model))
            arguments = {
                name: Value.of(tensor, formats.get(getattr(tensor, "node", node)))
                for name, value in named.items()
                for tensor in floating_types(value)
            }
            result = Value.of(results[0], formats.get(node))
            yield Operator(node, str(node.meta.get(GIVES, node.name)), arguments, result)


def floating_types(value: Any) -> Iterator[TensorType]:
    """The floating-point tensors of a fact."""
    for each in fact_leaves(value):
        if isinstance(each, TensorType) and each.dtype.startswith(("float", "bfloat")):
            yield each
