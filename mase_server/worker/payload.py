"""Writing a payload: from recordings to the columns that cross the wire."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mase_server.dependencies import Dependency
from mase_server.dtypes import SHORT
from mase_server.inputs.assumed import NOTHING_ASSUMED, Comment
from mase_server.inputs.found import Found
from mase_server.ir.build import used_calls
from mase_server.ops.cost import parameters_of, weights_of
from mase_server.ops.types import TensorType
from mase_server.snapshot import COLUMNS, MAX_SCOPES, SCHEMA, Payload, Problem
from mase_server.tracing.bindings import Event, Reports
from mase_server.tracing.probe import Wire
from mase_server.tracing.values import Value
from mase_server.visible import reveal, reveal_within
from mase_server.worker.live import Live, Origins, Sources
from mase_server.worker.nodes import NodeWriter
from mase_server.worker.places import Places
from mase_server.worker.request import TraceRequest
from mase_server.worker.traced import Traced


class PayloadWriter:
    """Writes what is known of one file; may be asked again once more is known. live: of the payload written last."""

    def __init__(self, request: TraceRequest, source: bytes, reports: Reports, places: Places) -> None:
        self.request, self.reports, self.places = request, reports, places
        self.sha256 = hashlib.sha256(source).hexdigest()
        self.live = Live(request, [])

    def write(
        self,
        traced: Sequence[Traced],
        problems: Sequence[Problem],
        *,
        seconds: float,
        complete: bool,
        dependencies: Sequence[Dependency] = (),
        preload: Sequence[str] = (),
        fit: bytes = b"",
    ) -> Payload:
        """The payload for these models and problems."""
        tables = _Tables(self.reports, self.places, [one.wire() for one in traced], Wire(None, final=complete))
        for index, one in enumerate(traced):
            tables.add_scopes(index, one)
        nodes = NodeWriter(self.places, tables)
        models = []
        for index, one in enumerate(traced):
            # The first glance is for the shapes: what a hover tells more follows with the symbols.
            flops = nodes.write(index, one) if complete else None
            tables.add_events(index, one, nodes.rows)
            models.append(model_map(one, flops, sum(used_calls(one.run)), self.places))
        tables.add_outside(traced)
        values = [tables.values[value] for value in tables.rows["value"]]
        self.live = Live(self.request, traced, tables.where, values)
        return {
            "schema": SCHEMA,
            "file": self.request.path,
            "sha256": self.sha256,
            "generation": self.request.generation,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "seconds": seconds,
            "complete": complete,
            "models": models,
            "files": self._files(),
            "values": tables.values,
            "scopes": tables.scopes,
            "classes": self.places.classes({kind for _, _, kind in tables.scopes}, self.request.folder),
            "problems": [asdict(problem.bounded()) for problem in problems],
            "dependencies": [[one.kind, one.path, one.seen] for one in dependencies],
            "preload": list(preload),
            "fit": fit,
            "weights": [weights_of(one.found.model) for one in traced],
            "transforms": [],
            "sites": tables.sites,
            "rows": tables.rows,
            "nodes": nodes.columns,
        }

    def _files(self) -> list[dict[str, Any]]:
        folder = self.request.folder.rstrip("/") + "/"
        return [
            {
                "path": path,
                "sha256": self.sha256 if path == self.request.path else _sha256(path),
                "library": not path.startswith(folder) or "/site-packages/" in path,
            }
            for path in self.places.files
        ]


def _sha256(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


class _Tables:
    """Sites, rows, values and scopes as they grow."""

    def __init__(self, reports: Reports, places: Places, wires: Sequence[Wire], other: Wire) -> None:
        self.reports, self.places, self.wires = reports, places, [*wires, other]
        self.values: list[Any] = []
        self.scopes: list[tuple[int, str, str]] = []
        self.sites: dict[str, list[Any]] = {name: [] for name in COLUMNS["sites"]}
        self.rows: dict[str, list[Any]] = {name: [] for name in COLUMNS["rows"]}
        self._site_rows: dict[int, int] = {}
        self._rows_at: dict[tuple[Any, ...], int] = {}
        self._value_rows: dict[Any, int] = {}
        self.where: list[Sources] = []
        self._kept: list[Sequence[Value]] = []
        self._first_scope: dict[int, int] = {}

    def add_scopes(self, model: int, traced: Traced) -> None:
        """The module instances that the recording went through."""
        self._first_scope[model] = len(self.scopes)
        self.scopes.extend((model, path, reveal(kind.__name__)) for path, kind in traced.run.scopes)

    def scope(self, model: int, scope: int) -> int:
        """The row of a recording's scope."""
        return self._first_scope[model] + scope

    def value(self, model: int, values: Sequence[Value]) -> int:
        """The row of a value, given as it is in each run of a model."""
        key = (model, *(id(value) if type(value) is TensorType else value for value in values))
        found = self._value_rows.get(key)
        if found is None:
            found = self._value_rows[key] = len(self.values)
            self._kept.append(values)
            self.values.append(self.wires[model].value(values, SHORT))
        return found

    def site(self, index: int) -> int:
        """The row of a site of the reports; code that was compiled again has its sites where they were."""
        found = self._site_rows.get(index)
        if found is None:
            path, site = self.reports.sites[index]
            row = (
                self.places.file(path), site.line, site.column, site.end_line, site.end_column,
                site.name, site.kind, site.function,
            )  # fmt: skip
            found = self._site_rows[index] = self._rows_at.setdefault(row, len(self._rows_at))
            if found == len(self.sites["file"]):
                for name, value in zip(COLUMNS["sites"], row, strict=True):
                    self.sites[name].append(value)
        return found

    def add_events(self, model: int, traced: Traced, node_rows: Sequence[int]) -> None:
        """Add the values that were bound while the model ran: equal values at one site become one row."""
        groups: dict[tuple[int, int], tuple[list[int], dict[int, None], int, Origins]] = {}
        where = Sources(list(node_rows))
        self.where.append(where)
        # What is shown only because nothing else shows it says nothing where something else does.
        taken = set(self.rows["site"]) if traced.found.rest else set()
        for events in aligned([run.events for run in traced.runs]):
            first = events[0]
            key = (self.site(first.site), self.value(model, [event.value for event in events]))
            if key[0] in taken:
                continue
            node = node_rows[first.node] if 0 <= first.node < len(node_rows) else -1
            count, scopes, _, origins = groups.setdefault(key, ([0], {}, node, []))
            count[0] += 1
            origins.append(first.calls)
            if len(scopes) < MAX_SCOPES:
                scopes[self.scope(model, first.scope)] = None
        for (site, value), (count, scopes, node, origins) in groups.items():
            where.rows[len(self.rows["site"])] = origins
            self._row(site, value, model, count[0], list(scopes), node)

    def add_outside(self, traced: Sequence[Traced]) -> None:
        """Add the values that were bound at import, in constructors and around the calls of the models."""
        groups: dict[tuple[int, int, int], Origins] = {}
        for event, kept in zip(self.reports.outside, self.reports.kept, strict=True):
            model = next((index for index, one in enumerate(traced) if one.knows(kept)), -1)
            values = traced[model].values_of(kept) if model >= 0 else [event.value]
            key = (self.site(event.site), self.value(model, values), model)
            groups.setdefault(key, []).append(traced[model].origins(kept) if model >= 0 else ())
        for (site, value, model), origins in groups.items():
            if model >= 0:
                self.where[model].rows[len(self.rows["site"])] = origins
            self._row(site, value, model, len(origins), [], -1)

    def _row(self, *row: Any) -> None:
        for name, value in zip(COLUMNS["rows"], row, strict=True):
            self.rows[name].append(value)


def aligned(runs: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, ...]]:
    """The events of all runs side by side; of the base alone where the runs did not bind the same names."""
    base = [event.site for event in runs[0]]
    same = [events for events in runs if [event.site for event in events] == base]
    return zip(*(same if len(same) == len(runs) else runs[:1]), strict=True)


def model_map(traced: Traced, flops: int | None, nodes: int, places: Places) -> dict[str, Any]:
    """One entry of "models"."""
    found, probed = traced.found, traced.probed
    parameters, parameter_bytes = parameters_of(found.model)
    line, column, end_line, end_column = places.model(found.name)
    wire = traced.wire()
    inputs = {
        name: wire.value([run.calls[index].value for run in traced.runs], SHORT)
        for name, index in traced.run.placeholders.items()
    }
    assumed = found.comment or NOTHING_ASSUMED
    if traced.error is not None:
        assumed = Comment(None, "the forward fails with the assumed inputs")
    comment = {**reveal_within(asdict(assumed)), **places.above(found.name), "written": written(found)}
    told = {} if found.form is None else {"form": found.form}
    return {
        "name": traced.name, "file_index": 0,
        "line": line, "column": column, "end_line": end_line, "end_column": end_column,
        "arguments": {name: plain(value) for name, value in found.arguments.items()},
        "inputs": inputs, "inputs_from": found.inputs_from, "arguments_from": found.arguments_from,
        "found": reveal(found.found), "mode": "train" if found.training else "eval", "rung": traced.session.rung,
        "nodes": nodes, "parameters": parameters, "parameter_bytes": parameter_bytes, "flops": flops,
        "generic": probed is not None and probed.generic,
        "symbols": {} if probed is None else dict(probed.symbols),
        "fixed": reveal_within(fixed_texts(traced)), "guards": reveal_within(traced.guards()),
        "seconds": traced.seconds,
        "rest": found.rest, "sets": list(found.sets), "set": found.set, "comment": comment, **told,
    }  # fmt: skip


def written(found: Found) -> list[dict[str, Any]]:
    """The comments about a model, each where it stands. own: is it for this model alone, not for the whole file?"""
    return [
        {"line": each.line, "column": each.start, "end_column": each.column + len(each.text), "set": each.set,
         "text": each.text, "own": each.owner is not None, "skip": each.skip or bool(each.data)}
        for each in found.written
        if each.line
    ]  # fmt: skip


_ROLE_WORDS = {"B": "batch", "T": "length", "S": "length", "U": "length", "H": "height", "W": "width", "N": "nodes"}


def fixed_texts(traced: Traced) -> list[str]:
    """The sizes that the graph is fixed to, with the reasons: "fixed to batch 2: ..."."""
    probed = traced.probed
    if probed is None:
        return []
    texts = []
    for name, reason in probed.fixed.items():
        if name == "B":
            texts.append(f"fixed to batch {probed.points[0][name]}: {reason}")
    if probed.symbols and probed.obstacles and traced.session.rung == "meta":
        sizes = ", ".join(f"{_ROLE_WORDS.get(name, name)} {size}" for name, size in probed.symbols.items())
        texts.append(f"fixed to {sizes}: {probed.obstacles[0]}")
    elif probed.obstacles:
        texts.append(probed.obstacles[0])
    return texts


def plain(value: Any) -> Any:
    """A constructor argument as data: numbers, texts and lists as they are, all else as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and len(value) <= 32:
        return [plain(item) for item in value]
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
