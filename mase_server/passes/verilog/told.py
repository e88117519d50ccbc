"""A model as hardware, and all that is told of it: the one function behind every way to ask for Verilog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mase_server.building import Build
from mase_server.hardware.design import Design
from mase_server.hardware.emission import Emitted, Top, random_inputs, top, whole
from mase_server.hardware.estimates import Estimates, added, estimate, resources
from mase_server.hardware.faults import OperationError
from mase_server.hardware.folding import Folding, FoldingError, fold
from mase_server.hardware.lowering import Lowering
from mase_server.hardware.netlist import netlist
from mase_server.hardware.page import describe_losses
from mase_server.hardware.parts import part
from mase_server.hardware.vectors import usual_count
from mase_server.ir.graph import MaseGraph
from mase_server.passes.verilog.accuracy import accuracy_of
from mase_server.passes.verilog.limits import candidates, excess
from mase_server.passes.verilog.places import Places, calls, members, modules, unsupported_in
from mase_server.passes.verilog.preparation import prepare
from mase_server.passes.verilog.samples import arguments_of, own_inputs

Tell = Callable[[str], None]

#: Scopes that are offered.
_OFFERED = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much of the hardware is made.

    folder: where everything is written; "" for the text alone, which makes no memories and no vectors.  vectors: random
    samples for the simulation; as many as a second is enough for, where it is None.  inputs: a file of samples in their
    place.
    """

    folder: str = ""
    vectors: int | None = None
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is made, of which model, and whose its weights are, in words."""

    build: Build
    title: str
    weights: str


def build(
    graph: MaseGraph,
    build: Build,
    title: str,
    *,
    folder: str = "",
    vectors: int | None = None,
    inputs: str = "",
    weights: str = "",
    tell: Tell = lambda stage: None,
) -> dict[str, Any]:
    """A map of `building.EMISSION_KEYS` of a graph with real weights, which may be quantised or not; it is changed.

    title: of the model.  folder, vectors, inputs: see `Wanted`.  weights: whose values they are, in words.  tell: gets
    what is being done.  rows are left empty here.  ValueError for what a person asked for that there is not, or that
    does not fit.
    """
    recorded = calls(graph.fx_graph)
    tell("quantising")
    graph, steps, calibrated = prepare(graph, build)
    asked, wanted = Asked(build, title, weights), Wanted(folder, vectors, inputs)
    plan, places, emitted, lowering = _made(graph, recorded, asked, wanted, tell)
    told = _told(plan, places)
    accuracy: dict[str, Any] = {}
    # Last, for the graph becomes another one, and what a design still works out reads it.
    if plan.emits:
        tell("measuring errors")
        accuracy = {**accuracy_of(graph, lowering, build.data), "calibrated": calibrated}
    if emitted is not None:
        tell("writing")
        page = emitted.files["README.md"] + describe_losses(accuracy, weights)
        emitted = replace(emitted, files={**emitted.files, "README.md": page})
        emitted.write(Path(folder))
    files = [[path, len(text.encode())] for path, text in emitted.files.items()] if emitted is not None else []
    return {
        "model": title,
        "build": build.to_wire(),
        "steps": steps,
        "weights": weights,
        "accuracy": accuracy,
        "files": files,
        "folder": str(Path(folder).absolute()) if files else None,
        **told,
    }


def _made(
    graph: MaseGraph, recorded: Mapping[str, str], asked: Asked, wanted: Wanted, tell: Tell
) -> tuple[Plan, Places, Emitted | None, Lowering]:
    """The hardware of a graph that is fit for it, its folder, and how the whole was lowered; without the operations
    whose kinds fail."""
    failed: dict[str, str] = {}
    while True:
        tell("lowering")
        lowering, places = Lowering(graph, failed), Places.of(graph, recorded)
        design = lowering.run()
        if asked.build.scope:
            design = _scope(design, places, asked.build.scope)
        try:
            tell("estimating")
            plan = Plan.of(design, asked)
            return plan, places, _emitted(plan, wanted, arguments_of(graph), tell), lowering
        except OperationError as error:
            node = error.node(design)
            if node is None or node in failed:
                raise
            failed[node] = str(error)


def _scope(design: Design, places: Places, scope: str) -> Design:
    return part(design, members(design, places, scope), {each.node for each in unsupported_in(design, places, scope)})


@dataclass(frozen=True, slots=True)
class Plan:
    """A design with its top module.

    impossible: why there is no such hardware: nothing has any, or no folding keeps to what was asked for.  excess: why
    it is not emitted although there could be some, see `limits`.  Both are None for what is emitted.
    """

    design: Design
    asked: Asked
    made: Top
    figures: Estimates
    impossible: str | None = None
    excess: str | None = None

    @classmethod
    def of(cls, design: Design, asked: Asked) -> Plan:
        """Of a design and what was asked for. What does not exist has no estimate."""
        folding, impossible = _folded(design, asked.build)
        made = top(design, folding, asked.title, asked.weights)
        if impossible is not None:
            return cls(design, asked, made, Estimates({}, {}), impossible)
        figures = estimate(design, folding, made.made)
        return cls(design, asked, made, figures, None, excess(asked.build, figures.totals, figures.operations))

    @property
    def emits(self) -> bool:
        """Is its Verilog given?"""
        return self.impossible is None and self.excess is None


def _folded(design: Design, build: Build) -> tuple[Folding, str | None]:
    """The folding, and why there is none as it was asked for; then it is the smallest."""
    if not design.outputs:
        return fold(design), "nothing of it has hardware"
    try:
        return fold(design, interval=build.interval, multipliers=build.multipliers), None
    except FoldingError as error:
        return fold(design), str(error)


def _buildable(plan: Plan, places: Places) -> list[str]:
    """The paths of modules that can be built alone as the whole was asked for, the largest first; each was tried."""
    found: list[str] = []
    sizes = resources(plan.design, plan.made.made)
    for path in candidates(plan.asked.build, modules(plan.design, places), sizes):
        if _exists(_scope(plan.design, places, path), plan.asked.build):
            found.append(path)
        if len(found) == _OFFERED:
            break
    return found


def _exists(design: Design, build: Build) -> bool:
    """Is a design whole, and can it be built as asked for, within the ceilings?"""
    try:
        folding, impossible = _folded(design, build)
        sizes = resources(design, netlist(design, folding))
    except OperationError:
        return False
    return not design.unsupported and impossible is None and excess(build, added(sizes.values()), sizes) is None


def _emitted(plan: Plan, wanted: Wanted, arguments: Mapping[str, str], tell: Tell) -> Emitted | None:
    """The folder, if one is wanted and there is such hardware; it is not written yet."""
    if not wanted.folder or not plan.emits:
        return None
    design = plan.design
    tell("packing memories")
    count = usual_count(plan.made.folding) if wanted.vectors is None else wanted.vectors
    given = own_inputs(wanted.inputs, design, arguments) if wanted.inputs else random_inputs(design, count)
    return whole(design, plan.made, given, plan.figures)


def _told(plan: Plan, places: Places) -> dict[str, Any]:
    design = plan.design
    missing = [{**asdict(each), "row": -1, "nodes": places.stood_for((each.node,))} for each in design.unsupported]
    scopes = _buildable(plan, places) if missing or not plan.emits else []
    return {
        "module": plan.made.name,
        "text": plan.made.text.text if plan.emits else "",
        "operations": [_operation(plan, places, name) for name in design.operations],
        "unsupported": missing,
        "totals": plan.figures.totals,
        "refusal": plan.impossible or (plan.excess and f"{plan.excess}. {_advice(scopes)}"),
        "scopes": scopes,
    }


def _advice(scopes: Sequence[str]) -> str:
    return f"Raise the ceiling{', or build one layer or scope alone' if scopes else ''}"


def _operation(plan: Plan, places: Places, name: str) -> dict[str, Any]:
    operation = plan.design.operations[name]
    lines = plan.made.text.lines.get(name, ()) if plan.emits else ()
    return {
        "name": name,
        "kind": operation.kind,
        "module": plan.made.component(name),
        "nodes": places.nodes(operation, plan.design),
        "rows": [],
        "lines": [list(each) for each in lines],
        "scope": places.path(operation),
        "estimate": plan.figures.operations.get(name, {}),
    }
