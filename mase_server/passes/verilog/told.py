"""A model as hardware, and all that is told of it: the one function behind every way to ask for Verilog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mase_server.building import Build
from mase_server.hardware.design import Design
from mase_server.hardware.emission import Top, random_inputs, top, whole
from mase_server.hardware.folding import Folding, FoldingError, fold
from mase_server.hardware.lowering import lower
from mase_server.ir.graph import MaseGraph
from mase_server.passes.verilog.places import Places, calls
from mase_server.passes.verilog.preparation import prepare

Tell = Callable[[str], None]


def build(
    graph: MaseGraph,
    build: Build,
    title: str,
    *,
    folder: str = "",
    vectors: int = 100,
    inputs: str = "",
    tell: Tell = lambda stage: None,
) -> dict[str, Any]:
    """A map of `building.EMISSION_KEYS` of a graph with real weights, which may be quantised or not; it is changed.

    title: of the model.  folder: where everything is written; "" for the text alone, which makes no memories and no
    vectors.  vectors: random samples for the simulation.  inputs: a file of samples in their place.  tell: gets what is
    being done.  rows are left empty here.  ValueError for what a person asked for that there is not.
    """
    recorded = calls(graph.fx_graph)
    tell("quantising")
    graph, steps = prepare(graph, build)
    tell("lowering")
    design = lower(graph)
    asked = _Asked(build, title, Places.of(graph, recorded), folder, vectors, inputs)
    told = asked.refused_or_made(design, tell)
    return {"model": title, "build": build.to_wire(), "steps": steps, **told}


@dataclass(frozen=True, slots=True)
class _Asked:
    build: Build
    title: str
    places: Places
    folder: str
    vectors: int
    inputs: str

    def refused_or_made(self, design: Design, tell: Tell) -> dict[str, Any]:
        """What is told of a design, and the design written where that was asked for."""
        tell("estimating")
        folding, refusal = self._folded(design)
        made = top(design, folding, self.title)
        files: list[list[Any]] = []
        if self.folder and refusal is None:
            tell("packing memories")
            files = self._written(design, made, tell)
        return {
            "module": made.name,
            "text": "" if refusal else made.text.text,
            "files": files,
            "folder": str(Path(self.folder).absolute()) if files else None,
            "operations": [self._operation(design, made, name) for name in design.operations],
            "unsupported": [
                {"node": each.node, "operator": each.operator, "why": each.why, "row": -1}
                for each in design.unsupported
            ],
            "totals": _totals(folding),
            "refusal": refusal,
            "scopes": [],
        }

    def _folded(self, design: Design) -> tuple[Folding, str | None]:
        """The folding, and why the one that was asked for there is not; then it is the smallest."""
        try:
            return fold(design, interval=self.build.interval, multipliers=self.build.multipliers), None
        except FoldingError as error:
            return fold(design), str(error)

    def _written(self, design: Design, made: Top, tell: Tell) -> list[list[Any]]:
        emitted = whole(design, made, random_inputs(design, self.vectors))
        tell("writing")
        emitted.write(Path(self.folder))
        return [[path, len(text.encode())] for path, text in emitted.files.items()]

    def _operation(self, design: Design, made: Top, name: str) -> dict[str, Any]:
        operation = design.operations[name]
        instances = [each for each in made.made.instances if each.operation == name]
        main = next((each.module for each in instances if each.name == f"{name}_i"), "")
        fold = made.folding.folds.get(name)
        return {
            "name": name,
            "kind": operation.kind,
            "module": main,
            "nodes": self.places.nodes(operation),
            "rows": [],
            "lines": [list(lines) for lines in made.text.lines.get(name, ())],
            "scope": self.places.path(operation),
            "estimate": {
                "multipliers": fold.multipliers if fold else 0,
                "luts": 0,
                "memory_bits": 0,
                "cycles": fold.cycles if fold else 0,
                "latency": 0,
            },
        }


def _totals(folding: Folding) -> Mapping[str, Any]:
    return {
        "multipliers": folding.multipliers,
        "luts": 0,
        "memory_bits": 0,
        "interval": folding.interval,
        "latency": 0,
        "bottlenecks": list(folding.bottlenecks),
    }
