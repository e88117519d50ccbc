"""A model as hardware, with everything that is reported about it: the one function behind every way to ask for
Verilog.

Hardware that does not exist has no estimate: `Plan` decides once. A part is offered only after it was folded and sized.
Accuracy is measured last, because that changes the graph which lazy tables still read.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, fx

from mase_server.building import BUSES, Build
from mase_server.formats import Open, parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed import COMPUTING
from mase_server.hardware.copies import join_netlists
from mase_server.hardware.design import (
    Design,
    Folding,
    Operation,
    OperationError,
    Unsupported,
    can_stream,
    cut_part,
    stream_weights,
)
from mase_server.hardware.emission import (
    Emitted,
    Top,
    build_folder,
    build_top,
    describe_losses,
    random_inputs,
    usual_count,
)
from mase_server.hardware.estimates import Estimates, added, estimate, list_rams, resources
from mase_server.hardware.folding import FoldingError, fold_design
from mase_server.hardware.held import argument_name, is_given
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.blocks import WithExponents
from mase_server.hardware.lowering import Lowering
from mase_server.ir.build import attribute
from mase_server.ir.facts import Produced, call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import Formats, format_text, number_formats, operator_of
from mase_server.ops.table import NAMES, named_arguments
from mase_server.passes.attention import attention_swap_transform_pass
from mase_server.passes.data import read_batches
from mase_server.passes.declaration import PassArguments, Result, path_of
from mase_server.passes.error import GIVES, PART_OF
from mase_server.passes.fusion import (
    conv_bn_fusion_transform_pass,
    fold_weights_transform_pass,
    norm_fusion_transform_pass,
    norm_to_conv_transform_pass,
    remove_dropout_transform_pass,
    remove_loss_transform_pass,
)
from mase_server.passes.granularity import lower_granularity_transform_pass
from mase_server.passes.quantize.config import COMPUTES
from mase_server.passes.quantize.transform import quantize_transform_pass
from mase_server.passes.verilog.as_hardware import accuracy_of
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import EmissionRecord, MissingHardware, Totals
from mase_server.protocol.records import Operation as OperationRecord
from mase_server.suggestions import suggest

Tell = Callable[[str], None]

#: The most scopes that are offered.
_OFFERED = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """How much of the hardware is made.

    folder: the folder to write; "" for the text alone, which makes no memories and no vectors.  vectors: random
    samples for the simulation; None for as many as take about a second.  inputs: a file of samples to use instead.
    """

    folder: str = ""
    vectors: int | None = None
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The build, the title of the model, and the source of its weights, in words."""

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
) -> EmissionRecord:
    """A map of `building.EMISSION_KEYS` of a graph with real weights, quantised or not; the graph is changed.

    title: of the model.  folder, vectors, inputs: see `Wanted`.  weights: the source of their values, in words.
    tell: is called with the current stage.  rows are left empty here.  ValueError for a request that names something
    unknown, or does not fit.
    """
    recorded = node_names_by_path(graph.fx_graph)
    tell("quantising")
    graph, steps, calibrated = prepare_graph(graph, build)
    asked, wanted = Asked(build, title, weights), Wanted(folder, vectors, inputs)
    plan, places, emitted, lowering = _make_plan_and_files(graph, recorded, asked, wanted, tell)
    told = _describe_plan(plan, places, steps)
    # This is last, because it changes the graph that unfinished parts of a design still read.
    if plan.emits:
        tell("measuring errors")
        told["accuracy"] = {**accuracy_of(graph, lowering, build.data), "calibrated": calibrated}
    if emitted is not None:
        tell("writing")
        page = emitted.files["README.md"] + describe_losses(told["accuracy"], weights)
        emitted = replace(emitted, files={**emitted.files, "README.md": page})
        emitted.write(Path(folder))
        told["files"] = [[path, len(content)] for path, content in emitted.contents.items()]
        told["folder"] = str(Path(folder).absolute())
    return told


def _make_plan_and_files(
    graph: MaseGraph, recorded: Mapping[str, str], asked: Asked, wanted: Wanted, tell: Tell
) -> tuple[Plan, Places, Emitted | None, Lowering]:
    """The hardware of a prepared graph, its folder, and its lowering; without the operations whose kinds fail."""
    failed: dict[str, str] = {}
    while True:
        tell("lowering")
        lowering, places = Lowering(graph, failed), Places.of(graph, recorded)
        design = lowering.run()
        if asked.build.scope:
            design = _cut_scope(design, places, asked.build.scope)
        try:
            tell("estimating")
            plan = Plan.of(design, asked)
            return plan, places, _emitted(plan, wanted, arguments_of(graph), tell), lowering
        except OperationError as error:
            node = error.node(design)
            if node is None or node in failed:
                raise
            failed[node] = str(error)


def _cut_scope(design: Design, places: Places, scope: str) -> Design:
    return cut_part(
        design,
        operations_in_scope(design, places, scope),
        {each.node for each in unsupported_in(design, places, scope)},
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A design with its top module.

    impossible: why there is no such hardware: no node has any, or no folding satisfies the request.  excess: why
    it is not emitted although it exists: it exceeds a ceiling.  Both are None for hardware that is emitted.
    """

    design: Design
    asked: Asked
    made: Top
    figures: Estimates
    impossible: str | None = None
    excess: str | None = None

    @classmethod
    def of(cls, design: Design, asked: Asked) -> Plan:
        """The plan of a design and a request. A design that does not exist has no estimate."""
        design, folding, impossible = _fold_with_weights(design, asked.build)
        made = build_top(design, folding, asked.title, asked.weights)
        if impossible is not None:
            return cls(design, asked, made, Estimates({}, {}), impossible)
        figures = estimate(design, folding, made.made)
        too_much = excess(asked.build, figures.totals, figures.operations) or exceeds_part(asked.build, design, figures)
        if part := asked.build.part:
            rates: Totals = {"clock": part.clock, "samples": part.clock / max(figures.totals["interval"], 1)}
            if part.process:
                whole = join_netlists(design, folding, made.made)
                rates["rams"] = [[ram.words, ram.bits, ram.count] for ram in list_rams(whole)]
            figures = replace(figures, totals=figures.totals | rates)
        return cls(design, asked, made, figures, None, too_much)

    @property
    def emits(self) -> bool:
        """Is its Verilog given?"""
        return self.impossible is None and self.excess is None


def _fold_with_weights(design: Design, build: Build) -> tuple[Design, Folding, str | None]:
    """The design with the weights outside that have to be there, and its folding; or why there is none."""
    sizes = {
        each.name: each.constants["weight"].given.numel() * each.constants["weight"].format.width
        for each in design.operations.values()
        if build.weights and can_stream(each)
    }
    names = sorted(sizes, key=lambda name: -sizes[name])
    if build.weights and not names:
        return design, fold_design(design), _NONE_OUTSIDE
    if build.limits is None:
        chosen = stream_weights(design, names, BUSES[build.weights], 1.0) if names else design
        return chosen, *_fold_or_smallest(chosen, build)
    found = _fold_for_part(design, build, [])
    if not names or _fits(build, *found):
        return found
    for share in _SHARES:
        found = _fold_for_part(design, build, names, share)
        if _fits(build, *found):
            counts = range(len(names))
            fewest = bisect_left(
                counts, True, lo=1, key=lambda count: _fits(build, *_fold_for_part(design, build, names[:count], share))
            )
            return _fold_for_part(design, build, names[:fewest], share)
    return found


_NONE_OUTSIDE = "no weights of it can come from outside: those of linear layers and convolutions without groups can"
#: The shares of a part's memory for the vectors that share a reading: the smaller, the more often weights are read.
_SHARES = (0.6, 0.4, 0.25, 0.1, 0.02)


def _fold_for_part(
    design: Design, build: Build, outside: Sequence[str], share: float = 1.0
) -> tuple[Design, Folding, str | None]:
    """The design with some weights outside, and its fastest folding that fits, if any does."""
    part = build.limits
    assert part is not None
    if outside:
        width = BUSES[build.weights]
        pace = min(1.0, 8 * part.bandwidth / part.clock / width)
        design = stream_weights(design, outside, width, pace, share * part.memory_bits)
    folding, impossible = _fold_or_smallest(design, build)
    return design, folding if impossible else _fit_part(design, build, folding), impossible


def _fits(build: Build, design: Design, folding: Folding, impossible: str | None) -> bool:
    return impossible is None and _lacks(build, _sizes_of(design, folding)) is None


def _sizes_of(design: Design, folding: Folding) -> dict[str, int]:
    return added(resources(design, join_netlists(design, folding)).values())


def _fold_or_smallest(design: Design, build: Build) -> tuple[Folding, str | None]:
    """The folding, and the reason why the requested one is impossible; it is then the smallest."""
    if not design.outputs:
        return fold_design(design), "no part of it has hardware"
    budget = build.multipliers
    if build.limits:
        budget = build.limits.multipliers if budget is None else min(budget, build.limits.multipliers)
    try:
        return fold_design(design, interval=build.interval, multipliers=budget, copies=build.copies), None
    except FoldingError as error:
        return fold_design(design), str(error)


def _fit_part(design: Design, build: Build, folding: Folding) -> Folding:
    """The fastest folding that fits a part, of those with fewer and fewer multipliers; the given one if none does."""
    found = folding
    while build.interval is None and found.multipliers > 1:
        if _lacks(build, _sizes_of(design, found)) is None:
            return found
        # Copies go first, half of them at a time, then multipliers.
        fewer = found.multipliers if found.copies > 1 else min(found.multipliers - 1, round(found.multipliers * _FEWER))
        try:
            found = fold_design(design, multipliers=fewer, copies=max(1, found.copies // 2))
        except FoldingError:
            break
    return folding


#: The share of its multipliers that a folding has after one that does not fit.
_FEWER = 0.8


def _lacks(build: Build, sizes: Mapping[str, int]) -> str | None:
    """The key of the estimate of which a part has too little for hardware of this size; None for nothing."""
    part = build.limits
    return None if part is None else next((key for key, _ in _OF_PART if sizes[key] > getattr(part, key)), None)


_OF_PART = (("memory_bits", "bits of memory"), ("multipliers", "multipliers"), ("luts", "LUTs"))


def exceeds_part(build: Build, design: Design, figures: Estimates) -> str | None:
    """Why hardware does not fit the target; None if it does, or there is none."""
    part, lacks = build.limits, _lacks(build, _sizes(figures.totals))
    if part is None or lacks is None:
        return None
    constants = (each for operation in design.operations.values() for each in operation.constants.values())
    weights = sum(each.format.width * each.given.numel() for each in constants)
    if lacks == "memory_bits" and weights > part.memory_bits and not build.weights:
        return (
            f"{_bits_text(weights)} of weights; {part.name} has {_bits_text(part.memory_bits)}: have them come from a "
            "memory outside (weights: axi64)"
        )
    has = getattr(part, lacks)
    return f"it takes {_sizes(figures.totals)[lacks]:,} {dict(_OF_PART)[lacks]}, and {part.name} has {has:,}"


def _sizes(totals: Totals) -> dict[str, int]:
    return {"multipliers": totals["multipliers"], "luts": totals["luts"], "memory_bits": totals["memory_bits"]}


def _bits_text(bits: int) -> str:
    return f"{bits / (8 << 20):.1f} MiB" if bits > 1 << 19 else f"{bits / 1000:.1f} kbit"


def _buildable(plan: Plan, places: Places) -> list[str]:
    """The paths of modules that can be built alone under the same request, the largest first; each was tried."""
    found: list[str] = []
    sizes = resources(plan.design, plan.made.made)
    for path in candidates(plan.asked.build, operations_by_module(plan.design, places), sizes):
        if _exists(_cut_scope(plan.design, places, path), plan.asked.build):
            found.append(path)
        if len(found) == _OFFERED:
            break
    return found


def _exists(design: Design, build: Build) -> bool:
    """Is a design complete, can it be built as requested, and is it within the ceilings?"""
    try:
        design, folding, impossible = _fold_with_weights(design, build)
        sizes = resources(design, join_netlists(design, folding))
    except OperationError:
        return False
    whole = added(sizes.values())
    fits = excess(build, whole, sizes) is None and _lacks(build, whole) is None
    return not design.unsupported and impossible is None and fits


def _emitted(plan: Plan, wanted: Wanted, arguments: Mapping[str, str], tell: Tell) -> Emitted | None:
    """The folder, if one is wanted and the hardware exists; it is not written yet."""
    if not wanted.folder or not plan.emits:
        return None
    design = plan.design
    tell("packing memories")
    count = usual_count(plan.made.folding) if wanted.vectors is None else wanted.vectors
    given = own_inputs(wanted.inputs, design, arguments) if wanted.inputs else random_inputs(design, count)
    return build_folder(design, plan.made, given, plan.figures, plan.asked.build)


def _describe_plan(plan: Plan, places: Places, steps: list[str]) -> EmissionRecord:
    design = plan.design
    missing: list[MissingHardware] = [
        {
            "node": each.node, "operator": each.operator, "why": each.why, "row": -1,
            "nodes": places.stood_for((each.node,)),
        }
        for each in design.unsupported
    ]  # fmt: skip
    scopes = _buildable(plan, places) if missing or not plan.emits else []
    return {
        "model": plan.asked.title,
        "build": plan.asked.build.to_wire(),
        "steps": steps,
        "weights": plan.asked.weights,
        "accuracy": {},
        "files": [],
        "folder": None,
        "module": plan.made.module,
        "text": plan.made.text.text if plan.emits else "",
        "operations": [_describe_operation_in_plan(plan, places, name) for name in design.operations],
        "unsupported": missing,
        "totals": plan.figures.totals,
        "refusal": plan.impossible or (plan.excess and f"{plan.excess}. {_advice(plan, scopes)}"),
        "scopes": scopes,
    }


def _advice(plan: Plan, scopes: Sequence[str]) -> str:
    remedy = "Take a larger part" if plan.asked.build.limits else "Raise the limit"
    return f"{remedy}{', or build one layer or scope alone' if scopes else ''}"


def _describe_operation_in_plan(plan: Plan, places: Places, name: str) -> OperationRecord:
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


# Hardware that is too large to be emitted, and parts of it that may be small enough.

_NAMED = 3

#: Of one operation, or of the whole: the numbers of `building.ESTIMATE_KEYS`.
Figures = Mapping[str, Any]


def excess(build: Build, totals: Figures, operations: Mapping[str, Figures]) -> str | None:
    """The ceilings that hardware of this size exceeds, and its largest operations; None if it is within them."""
    told = [
        f"it takes {totals[key]:,} {words}, and {getattr(build, ceiling):,} are allowed ({ceiling}); "
        f"most are of {_largest_operations(operations, key)}"
        for key, words, ceiling in _CEILINGS
        if totals[key] > getattr(build, ceiling)
    ]
    return "; ".join(told) or None


_CEILINGS = (
    ("multipliers", "multipliers", "max_multipliers"),
    ("memory_bits", "bits of memory", "max_memory_bits"),
)


def _largest_operations(operations: Mapping[str, Figures], key: str) -> str:
    ranked = sorted(operations, key=lambda name: -operations[name][key])
    return ", ".join(f"{name} ({operations[name][key]:,})" for name in ranked[:_NAMED])


def candidates(build: Build, modules: Mapping[str, Sequence[str]], operations: Mapping[str, Figures]) -> list[str]:
    """The paths of modules that may be within the ceilings, judged by their operations' sizes in the whole; the largest
    first.

    modules: the operations of each.  Of modules with exactly the same operations the innermost one counts.
    """
    sizes = {path: _sum_sizes(names, operations) for path, names in modules.items()}
    innermost = {tuple(names): path for path, names in sorted(modules.items(), key=lambda each: len(each[0]))}
    fits = [path for path in innermost.values() if _is_within_ceilings(build, sizes[path])]
    return sorted(fits, key=lambda path: (*(-number for number in sizes[path].values()), path))


def _is_within_ceilings(build: Build, size: Mapping[str, int]) -> bool:
    return all(size[key] <= getattr(build, ceiling) for key, _, ceiling in _CEILINGS)


def _sum_sizes(names: Sequence[str], operations: Mapping[str, Figures]) -> dict[str, int]:
    return {key: sum(operations[name][key] for name in names) for key in ("memory_bits", "multipliers")}


# The module of each operation of a design, and the parts of a design that could be built alone.


@dataclass(frozen=True, slots=True)
class Places:
    """For each node its module's path, and the nodes that it represents: those that became a part of it, and the one
    that it rounds. calls: recorded nodes by path."""

    paths: Mapping[str, str]
    gives: Mapping[str, str]
    rounds: Mapping[str, str]
    calls: Mapping[str, str]

    @classmethod
    def of(cls, graph: MaseGraph, recorded: Mapping[str, str]) -> Places:
        """The places of a graph that is ready to be lowered. recorded: path -> node of modules that were one call; see
        `calls`."""
        nodes = list(graph.fx_graph.nodes)
        gives = {node.name: str(node.meta[key]) for key in (PART_OF, GIVES) for node in nodes if key in node.meta}
        rounds = {node.name: node.all_input_nodes[0].name for node in nodes if format_text(node) is not None}
        return cls({node.name: _path_of_work(node) for node in nodes}, gives, rounds, recorded)

    def nodes(self, operation: Operation, design: Design) -> list[str]:
        """The names of the operation's nodes and of those that they represent; for a buffer, those of its source."""
        while not operation.nodes and operation.inputs:
            operation = design.operations[operation.inputs[0]]
        return self.stood_for(operation.nodes)

    def stood_for(self, names: Sequence[str]) -> list[str]:
        """The names of some nodes, and of the recorded ones that they represent."""
        found = list(names)
        for of in (self.gives, self.rounds):
            found += [of[name] for name in names if name in of]
        path = next((self.paths[name] for name in names if name in self.paths), "")
        above = [each for each in self.calls if path == each or path.startswith(f"{each}.")]
        return list(dict.fromkeys([*found, *([self.calls[max(above, key=len)]] if above else [])]))

    def path(self, operation: Operation) -> str:
        """The path of an operation's module: the module that computes, not the one whose result it rounds."""
        return next((self.paths[name] for name in operation.nodes if name in self.paths), "")


def _path_of_work(node: fx.Node) -> str:
    """The path of a node's module; of a rounding that of the layer whose result it rounds, or of the one that reads in
    another format what has been rounded already."""
    if (own := path_of(node)) or format_text(node) is None:
        return own
    source = node.all_input_nodes[0]
    if format_text(source) is not None:
        return next(filter(None, map(path_of, node.users)), "")
    while source.target is operator.getitem:
        source = source.all_input_nodes[0]
    return path_of(source)


def node_names_by_path(graph: fx.Graph) -> dict[str, str]:
    """Path of a module -> name of the node that calls it, before a pass takes it apart."""
    return {str(node.target): node.name for node in graph.nodes if node.op == "call_module"}


def operations_in_scope(design: Design, places: Places, scope: str) -> set[str]:
    """The names of the operations in a scope: a module's path, or a node's name.

    ValueError for an unknown scope, or one without hardware.
    """
    found = {
        each.name
        for each in design.operations.values()
        if each.kind != "input" and (scope in each.nodes or _is_in_scope(places.path(each), scope))
    }
    if not found:
        raise ValueError(_explain_unknown_scope(design, places, scope))
    return found


def unsupported_in(design: Design, places: Places, scope: str) -> list[Unsupported]:
    """The nodes of a scope that have no hardware."""
    return [each for each in design.unsupported if scope == each.node or _is_in_scope(places.paths[each.node], scope)]


def _is_in_scope(path: str, scope: str) -> bool:
    return path == scope or path.startswith(f"{scope}.")


def _explain_unknown_scope(design: Design, places: Places, scope: str) -> str:
    if missing := unsupported_in(design, places, scope):
        return f"{scope} has no hardware: " + "; ".join(f"{each.operator}: {each.why}" for each in missing)
    if scope in places.paths or scope in places.paths.values():
        return f"{scope} computes nothing that has hardware of its own; name a layer, or a module above it"
    known = sorted(
        {*operations_by_module(design, places), *(name for each in design.operations.values() for name in each.nodes)}
    )
    return f"there is no module or node {scope!r} in the model{suggest(scope, known)}"


def operations_by_module(design: Design, places: Places) -> dict[str, list[str]]:
    """Path -> the operations inside, of every module that has some."""
    found: dict[str, list[str]] = {}
    for operation in design.operations.values():
        if operation.kind != "input":
            for path in _enclosing_paths(places.path(operation)):
                found.setdefault(path, []).append(operation.name)
    return found


def _enclosing_paths(path: str) -> Iterator[str]:
    """A path and those of all modules around it, without the whole model."""
    while path:
        yield path
        path = path.rpartition(".")[0]


# Preparing a model for hardware: the passes that its own pipeline has not applied.

_Transform = Callable[[MaseGraph, Mapping[str, Any]], Result]

#: Pass, its arguments, its function, and its finding to report; in the order in which they make sense.
_STRUCTURE: tuple[tuple[str, Mapping[str, Any], _Transform, str], ...] = (
    ("remove_dropout", {}, remove_dropout_transform_pass, "removed"),
    ("remove_loss", {}, remove_loss_transform_pass, "removed"),
    ("fold_weights", {}, fold_weights_transform_pass, "folded"),
    ("lower_granularity", {}, lower_granularity_transform_pass, "lowered"),
    ("norm_fusion", {}, norm_fusion_transform_pass, "fused"),
    ("attention_swap", {"to": "eager"}, attention_swap_transform_pass, "swapped"),
    ("conv_bn_fusion", {}, conv_bn_fusion_transform_pass, "fused"),
    ("norm_to_conv", {}, norm_to_conv_transform_pass, "made"),
)

#: Further operators whose results hardware rounds, although a default of quantize does not.
_FURTHER = (
    frozenset(name for kind in ("table", "reduce", "linear", "matmul") for name in KINDS[kind].rules) | COMPUTING
) & NAMES - COMPUTES - {"amax"}
#: Those that keep the format of their operand except for the lowest number: user-chosen formats stay there.
_KEEPS = frozenset({"neg", "abs"})


def prepare_graph(graph: MaseGraph, build: Build) -> tuple[MaseGraph, list[str], str | None]:
    """The graph fit for hardware, the steps that made it so, as texts, and the data on which open formats were
    calibrated.

    Existing roundings of the graph stay; `build.precision` is for unrounded operators.
    ValueError for a precision that is no format of fixed point.
    """
    steps, calibrated = [], None
    for name, arguments, function, key in _STRUCTURE:
        graph, found = function(graph, arguments)
        if found[key]:
            graph.propagate()
            steps.append(Step(name, arguments))
    half = _half_rounded(graph)
    for choose in (_complete_roundings, _quantise_arguments):
        if (wanted := choose(graph, build, half)) is not None:
            graph, found = quantize_transform_pass(graph, wanted)
            calibrated = found["calibrated"] or calibrated
            graph.propagate()
            steps.append(Step("quantize", wanted))
    return graph, [str(step) for step in steps], calibrated


def _complete_roundings(graph: MaseGraph, build: Build, half: Container[str]) -> PassArguments | None:
    """The arguments of quantize for fixed point where a person's roundings leave it out; None if they do nowhere.

    Streams are in it before blocks that share an exponent, and so is what operations that are half rounded read and
    give. half: the names of these operations.
    """
    precision, formats = parse(build.precision), number_formats(graph.fx_graph, graph.module)
    example = precision.example if isinstance(precision, Open) else precision
    if not isinstance(example, FixedPoint):
        told = f"hardware's numbers are fixed point, such as fixed(8,auto), and the precision is {build.precision}"
        raise ValueError(f"{told}; apply quantize(default={build.precision!r}) first, which rounds layers to it")
    blocks = [node for node in _find_blocks(graph) if not isinstance(formats.get(node.all_input_nodes[0]), FixedPoint)]
    parts = {node: {"data_in"} for node in blocks}
    parts |= {node: _unrounded_parts(graph, node, formats) for node in graph.fx_graph.nodes if node.name in half}
    keys = {"width": example.width, "frac_width": "auto" if example is not precision else example.fraction_width}
    configs = {
        node.name: {f"{part}_{key}": value for part in sorted(names) for key, value in keys.items()}
        for node, names in parts.items()
    }
    entries = {name: {"config": {"name": "fixed", **config}} for name, config in configs.items() if config}
    return {"by": "name", **entries, **({"data": build.data} if build.data else {})} if entries else None


def _find_blocks(graph: MaseGraph) -> list[fx.Node]:
    """The roundings of data to formats with exponents: mxint and minifloats."""
    data: set[fx.Node] = set()
    for node in graph.fx_graph.nodes:
        if node.op == "placeholder" or not data.isdisjoint(node.all_input_nodes):
            data.add(node)
    texts = {node: format_text(node) for node in graph.fx_graph.nodes if node in data}
    return [node for node, text in texts.items() if text is not None and isinstance(parse(text), WithExponents)]


def _half_rounded(graph: MaseGraph) -> set[str]:
    """The computing operations that a person has rounded in part: their parameters, or blocks that they read, but not
    their results; or what layers give, but not their parameters."""
    formats, computing, blocks = number_formats(graph.fx_graph, graph.module), COMPUTES | _FURTHER, _find_blocks(graph)
    chosen = {*blocks, *(each for each in formats if format_text(each) and each.all_input_nodes[0].op == "get_attr")}
    calls = (each for each in graph.fx_graph.nodes if each.op.startswith("call"))
    return {
        each.name
        for each in calls
        if (_has_parameters(graph, each) if each in formats else not chosen.isdisjoint(each.all_input_nodes))
        and operator_of(each, graph.module) in computing
    }


def _has_parameters(graph: MaseGraph, node: fx.Node) -> bool:
    """Does a node call a layer with parameters? Those of a layer that was rounded are operands of a function."""
    return node.op == "call_module" and next(attribute(graph.module, str(node.target)).parameters(), None) is not None


def _unrounded_parts(graph: MaseGraph, node: fx.Node, formats: Formats) -> set[str]:
    """The names that configurations have for what an operation reads and gives unrounded."""
    given = named_arguments(call_of(node, graph.facts, graph.module))
    sources = {name: value.node for name, value in given.items() if isinstance(value, Produced) and not value.path}
    found = {"data_in" if name.startswith("data_in") else name for name, each in sources.items() if each not in formats}
    if _has_parameters(graph, node):
        found |= {"weight", "bias"}
    # A ReLU whose result is rounded is rounded together with its operand.
    later = [each for each in node.users if each in formats and operator_of(each, graph.module) == "relu"]
    gives = node not in formats and not (later and len(later) == len(node.users))
    return (found & {"data_in", "weight", "bias"}) | ({"data_out"} if gives else set())


def _quantise_arguments(graph: MaseGraph, build: Build, half: Container[str]) -> PassArguments | None:
    """The arguments of quantize; None if every operator is rounded already."""
    formats = number_formats(graph.fx_graph, graph.module)
    named = {node: operator_of(node, graph.module) for node in graph.fx_graph.nodes if node.op.startswith("call")}
    computing = [node for node, operator in named.items() if operator in COMPUTES | _FURTHER]
    unrounded = [node for node in computing if node not in formats]
    whole = len(unrounded) == len(computing)
    wanted = [node for node in unrounded if (whole or named[node] not in _KEEPS) and node.name not in half]
    if not wanted:
        return None
    further = sorted({named[node] for node in wanted} - COMPUTES)
    arguments: PassArguments = {"default": build.precision, **dict.fromkeys(further, build.precision)}
    if build.data:
        arguments["data"] = build.data
    return arguments if whole else {**arguments, "only": [node.name for node in wanted]}


# User-provided samples as integers for the inputs of a design.


def own_inputs(path: str, design: Design, arguments: Mapping[str, str]) -> list[Tensor]:
    """Integers for each input, [samples, ...], of a .npz, .npy, .pt or .safetensors file.

    arguments: node of an input -> the name of the forward's argument.  Entries are matched by either name; if none
    has the name of an input, by the order of the inputs.  Floating-point numbers are rounded to the input's format;
    integers are taken as integers of the format. ValueError for a file, a shape or a value that does not fit.
    """
    given = _read_entries(path)
    names = [_possible_names(operation, arguments) for operation in design.inputs]
    by_name = [next((given[name] for name in each if name in given), None) for each in names]
    named = sum(each is not None for each in by_name)
    chosen = by_name if named else list(given.values())
    if len(chosen) != len(names) or named not in (0, len(names)):
        wanted = ", ".join(each[0] for each in names)
        raise ValueError(f"{path} holds {', '.join(given) or 'nothing'}; it needs one array for each of {wanted}")
    found = [
        _integers_of_samples(values, operation, f"{each[0]} in {path}")
        for values, operation, each in zip(chosen, design.inputs, names, strict=True)
    ]
    if len(counts := {len(each) for each in found}) > 1:
        raise ValueError(f"{path} has {' and '.join(map(str, sorted(counts)))} samples; every input needs as many")
    return found


def arguments_of(graph: MaseGraph) -> dict[str, str]:
    """Node of an input -> the forward's argument, or the input's key inside of one."""
    facts = graph.facts
    return {node.name: argument_name(node) for node in graph.fx_graph.nodes if is_given(node, facts)}


def _read_entries(path: str) -> dict[str, object]:
    """The arrays of a file by name, or by number if they have none."""
    try:
        batches = read_batches(path)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("data: ")) from error
    if len(batches) == 1 and isinstance(batches[0], Mapping):
        return dict(batches[0])
    return {str(index): each for index, each in enumerate(batches)}


def _possible_names(operation: Operation, arguments: Mapping[str, str]) -> list[str]:
    """The possible names of an input: the forward's argument first."""
    known = [arguments[name] for name in operation.nodes if name in arguments]
    return [*known, operation.name, *operation.nodes]


def _integers_of_samples(values: Any, operation: Operation, where: str) -> Tensor:
    stream = operation.out
    if not isinstance(values, Tensor) or values.is_complex():
        kind = type(values).__name__ if not isinstance(values, Tensor) else str(values.dtype)
        raise ValueError(f"{where} is {kind}; an array of real numbers is needed")
    if values.shape == stream.shape:
        values = values[None]
    if values.shape[1:] != stream.shape or not len(values):
        raise ValueError(f"{where} is {list(values.shape)}; a batch of samples of {list(stream.shape)} is needed")
    is_index = "below" in operation.options
    if values.is_floating_point() and (why := _no_number(values, is_index)):
        raise ValueError(f"{where} holds {why}")
    if values.is_floating_point() and not is_index:
        return stream.format.encode(values)
    low, high = stream.format.integers
    high = operation.options.get("below", high + 1) - 1
    integers: Tensor = values.long()
    if not (low <= int(integers.min()) and int(integers.max()) <= high):
        worst = int(integers.max()) if int(integers.max()) > high else int(integers.min())
        raise ValueError(f"{where} holds the integer {worst}; {_accepted_range(stream.format, low, high, is_index)}")
    return integers


def _no_number(values: Tensor, is_index: bool) -> str | None:
    """A value that cannot be rounded, or is no index; None if there is none."""
    wrong = values.isnan() if not is_index else ~values.isfinite() | (values != values.round())
    if not wrong.any():
        return None
    place = wrong.nonzero()[0].tolist()
    what = "NaN" if values[tuple(place)].isnan() else f"{values[tuple(place)]:g}"
    return f"{what} at {place}" + ("; an index is a whole number" if is_index else "; hardware has no such number")


def _accepted_range(form: FixedPoint, low: int, high: int, is_index: bool) -> str:
    if is_index:
        return f"an index is {low} to {high}"
    unit = f"integers are those of {form}, {low} to {high}, each worth {2.0**-form.fraction_width:g}"
    return f"{unit}; numbers with a point are rounded to it"
