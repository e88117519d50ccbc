"""The effect of a pipeline on a model, as an overlay of the payload: `snapshot.TRANSFORM_KEYS`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mase_server.ir.annotate import Annotator
from mase_server.ir.number_formats import number_formats
from mase_server.passes import calculate_avg_bits_mg_analysis_pass
from mase_server.passes.bits.operands import stored_parameters
from mase_server.passes.error import Error, Errors
from mase_server.snapshot import TRANSFORM_NODES
from mase_server.worker.live import Live, Sources
from mase_server.worker.transforms.pipeline import Applied


@dataclass(frozen=True, slots=True)
class Measured:
    """Errors against the original, and of what. inputs, weights: in words."""

    errors: Errors
    inputs: str
    weights: str


@dataclass(frozen=True, slots=True)
class OverlayWriter:
    """Writes overlays of one model. index: of the model.  original: its graph before any step."""

    live: Live
    index: int
    original: Applied

    def write(
        self, applied: Applied, measured: Measured | None, *, complete: bool, problem: str = ""
    ) -> dict[str, Any]:
        """The overlay of a graph after its steps. problem: why there is no more, where no step is at fault."""
        nodes = applied.nodes()
        formats = number_formats(applied.graph.fx_graph, applied.graph.module)
        texts = {index: str(formats[node]) for index, node in nodes.items() if node in formats}
        stopped = applied.stopped
        return {
            "model": self.index,
            "steps": applied.steps,
            "rows": self._rows(self.live.sources[self.index], texts),
            "nodes": self._nodes(self.live.sources[self.index], texts, applied, measured),
            "formats": {str(format): format.bits for format in formats.values()},
            "summary": self._summary(applied, measured),
            "inputs": "" if measured is None else measured.inputs,
            "weights": "" if measured is None else measured.weights,
            "complete": complete,
            "problem": stopped.text if stopped is not None else problem or None,
            "failed": None if stopped is None else stopped.index,
        }

    def _rows(self, sources: Sources, texts: Mapping[int, str]) -> list[list[Any]]:
        rows, values = [], []
        for row, origins in sources.rows.items():
            value = self.live.values[row]
            formats = [_told([texts.get(calls[place]) for calls in origins]) for place in range(len(origins[0]))]
            if any(formats):
                rows.append(row)
                values.append(with_formats(value, iter(formats)))
        return [rows, values]

    def _nodes(
        self, sources: Sources, texts: Mapping[int, str], applied: Applied, measured: Measured | None
    ) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {name: [] for name in TRANSFORM_NODES}
        errors = {} if measured is None else measured.errors.nodes
        builder = applied.recording.builder
        for call, row in enumerate(sources.nodes):
            node = builder.nodes[call]
            error = _numbers(errors.get(node.name)) if node is not None else (None, None)
            saturated = None if measured is None or node is None else measured.errors.saturated.get(node.name)
            facts = (texts.get(call), *error, applied.notes.get(call), saturated)
            if row >= 0 and any(fact is not None for fact in facts):
                for name, fact in zip(TRANSFORM_NODES, (row, *facts), strict=True):
                    found[name].append(fact)
        return found

    def _summary(self, applied: Applied, measured: Measured | None) -> dict[str, Any]:
        before, after = _figures(self.original), _figures(applied)
        sqnr, largest = _numbers(None if measured is None else measured.errors.output)
        saturated = None if measured is None else measured.errors.saturation
        figures = {key: [before[key], after[key]] for key in before}
        return {**figures, "sqnr": sqnr, "max_error": largest, "saturated": saturated}


def _figures(applied: Applied) -> dict[str, Any]:
    graph = applied.graph
    stored = stored_parameters(graph).values()
    # The types are known since the last step: annotating anew would find them again.
    Annotator(graph.module, graph.facts, graph.custom_ops, None).annotate()
    bits = calculate_avg_bits_mg_analysis_pass(graph)[1]
    return {
        "nodes": len(graph.fx_graph.nodes), "parameters": sum(each.elements for each in stored),
        "parameter_bytes": round(sum(each.elements * min(each.bits, each.stored) for each in stored) / 8),
        "data_bits": bits["data_avg_bit"], "weight_bits": bits["w_avg_bit"],
    }  # fmt: skip


def _numbers(error: Error | None) -> tuple[float | str | None, float | None]:
    """SQNR in dB, "inf" where nothing differs, and the largest error; None where it is not known."""
    if error is None:
        return None, None
    return "inf" if error.sqnr == math.inf else error.sqnr, error.max_error


def _told(texts: Sequence[str | None]) -> list[str | None]:
    """The formats that a tensor was seen in, in the order seen; nothing where it was never in one."""
    return list(dict.fromkeys(texts)) if any(texts) else []


def with_formats(value: Any, formats: Iterator[Sequence[str | None]]) -> Any:
    """A payload's value with number formats for the element types of its tensors; formats: one list for each tensor.

    Several stand for a place that ran several times: "fixed(8,4)|f32".
    """
    if isinstance(value, list | tuple):
        seen = next(formats, ())
        return ["|".join(text or value[0] for text in seen) or value[0], *value[1:]]
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [with_formats(item, formats) for item in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: with_formats(item, formats) for key, item in value["dict"].items()}}
    return value
