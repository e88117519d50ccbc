"""as_hardware: a quantised graph that gives exactly the numbers of its hardware; emit_verilog_top writes that
hardware."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn

from mase_server.hardware.arithmetic import Affine
from mase_server.hardware.design import Design, Operation, round_interval
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.functional import decode, encode
from mase_server.hardware.held import Whole
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.recurrent import path_of_result
from mase_server.hardware.lowering import Lowering, lower_graph
from mase_server.hardware.twin import Maker
from mase_server.ir.graph import MaseGraph
from mase_server.passes.completing import analysis, transform
from mase_server.passes.data import load
from mase_server.passes.declaration import Argument, Result, complete_options
from mase_server.passes.error import measure, original_of
from mase_server.protocol.records import Accuracy

_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
#: The module of the graph that holds the integers of tables and weights.
_HOLDER = "integers"
#: Bits of the integers that a floating-point type holds exactly, sign included.
_EXACT = {torch.float64: 54, torch.float32: 25, torch.float16: 12, torch.bfloat16: 9}

#: Kinds that compute nothing.
_MOVING = frozenset({"move", "take", "gather", "concat", "pad", "swap"})

_ELSEWHERE = "its samples are not in the first dimension, where the integer function has them"

#: Kinds that compute each row, or each number, by itself.
_BY_ROWS = frozenset({"linear", "norm", "softmax", "table"})


@transform("Compute as hardware does", needs={"weights"})
def as_hardware_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Make a quantised graph compute bit for bit as its hardware does, which shows the loss of accuracy.

    Operators whose hardware rounds differently from a rounded float (softmax, norms, tables such as GELU, means, sums
    too long to be exact) become the integer functions of `mase_server.hardware.functional`; the others are exact
    already. Operators without hardware stay as they are.  Gives {"replaced": node: kind of operation, "without": node:
    why it was left}.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=-1)), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    >>> passes.as_hardware_transform_pass(graph)[1]
    {'replaced': {'_1': 'softmax'}, 'without': {}}
    """
    complete_options("as_hardware_transform_pass", pass_args, _DEFAULTS)
    lowering = Lowering(graph)
    lowering.run()
    replaced, left = compute_as_hardware(graph, lowering)
    return graph, {
        "replaced": replaced,
        "without": {each.node: each.why for each in lowering.design.unsupported} | left,
    }


def compute_as_hardware(graph: MaseGraph, lowering: Lowering) -> tuple[dict[str, str], dict[str, str]]:
    """Insert the integer functions of hardware into a lowered graph; return the kinds by node, and why other nodes
    stay."""
    replacing = _Replacing(graph, lowering, lowering.design)
    return replacing.run(), replacing.left


class _Replacing:
    """Operations of a design that replace a graph's nodes."""

    def __init__(self, graph: MaseGraph, lowering: Lowering, design: Design) -> None:
        self.graph, self.lowering, self.design = graph.fx_graph, lowering, design
        self.root, self.nodes = graph.module, {node.name: node for node in graph.fx_graph.nodes}
        self.order = {node: index for index, node in enumerate(graph.fx_graph.nodes)}
        self.left: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Replace all nodes that compute differently; return the kinds by node."""
        found = dict(self._replace_layers())
        for name, operations in self._by_node().items():
            node, operation = self.nodes.get(name), operations[-1]
            if node is None or node in self.lowering.layers or self._is_exact(node, operations):
                continue
            if not self._is_placed(node, operation):
                self.left[node.name] = _ELSEWHERE
            else:
                self._replace(node, operation)
                found[node.name] = operation.kind
        return found

    def _replace_layers(self) -> Iterator[tuple[str, str]]:
        """Replace the results of recurrent layers, which are picked from tuples; yield the layers' nodes and kinds."""
        for node, held in list(self.lowering.held.items()):
            found = path_of_result(self.lowering, node)
            operation = self.design.operations.get(held.operation) if isinstance(held, Whole) else None
            if found is None or operation is None:
                continue
            if self.lowering.parts[found[0]] in self.lowering.layouts:
                self.left[found[0].name] = _ELSEWHERE
            else:
                self._replace(node, operation, self.lowering.layout(node).dim)
                yield found[0].name, "recurrent"

    def _by_node(self) -> dict[str, list[Operation]]:
        """The operations of each node, in their order: the last one gives its value."""
        found: dict[str, list[Operation]] = {}
        for operation in self.design.operations.values():
            if operation.nodes and operation.kind != "constant":
                found.setdefault(operation.nodes[0], []).append(operation)
        return found

    def _is_exact(self, node: fx.Node, operations: Sequence[Operation]) -> bool:
        """Is a node exact? Several operations round in between, unless all but one only move elements."""
        if sum(operation.kind not in _MOVING for operation in operations) > 1:
            return False
        return all(_is_exact(self.design, each, _type_of(self.lowering, node)) for each in operations)

    def _is_placed(self, node: fx.Node, operation: Operation) -> bool:
        """Does the integer function expect samples in the node's dimension, or accept them in any?"""
        if operation.kind in _BY_ROWS and "mask" not in operation.constants:
            return True
        return not any(each in self.lowering.layouts for each in (node, *node.all_input_nodes))

    def _replace(self, node: fx.Node, operation: Operation, batch: int = 0) -> None:
        """The node becomes the value of the integers; nodes that only it read are removed. batch: the dimension of its
        samples, if the integers have them elsewhere."""
        before = node.all_input_nodes
        with self.graph.inserting_before(node):
            integers = self._integers(node, operation)
            if batch:
                integers = self.graph.call_function(torch.movedim, (integers, 0, batch))
        dtype = _type_of(self.lowering, node)
        node.op, node.target, node.kwargs = "call_function", decode, {}
        node.args = (integers, str(operation.out.format), dtype)
        for each in sorted(before, key=self.order.__getitem__, reverse=True):
            self._drop(each)

    def _integers(self, node: fx.Node, operation: Operation) -> fx.Node:
        if _HOLDER not in dict(self.root.named_children()):
            self.root.add_module(_HOLDER, nn.Module())
        sources: dict[str, fx.Node] = {}
        maker = Maker(self.root.get_submodule(_HOLDER), self.graph, self.design, sources, f"{_HOLDER}.")
        for name in sorted(operation.inputs, key=self._is_constant):
            sources[name] = self._encoded(node, name, maker)
        # A ReLU is a node of its own here, and clamping after rounding is the same.
        plain = {**operation.options, **({"relu": False} if "relu" in operation.options else {})}
        return KINDS[operation.kind].node(maker, replace(operation, options=plain))

    def _encoded(self, node: fx.Node, name: str, maker: Maker) -> fx.Node:
        """The integers of an operand: of the last previous node that has its value."""
        source = self.design.operations[name]
        if source.kind == "swap":
            return self._encoded(node, source.inputs[0], maker)
        if source.kind == "constant":
            return KINDS[source.kind].node(maker, source)
        place = self.order[node]
        same = [each for each, held in self.lowering.held.items() if held == Whole(name) and self.order[each] < place]
        if not same and source.kind == "input":
            return self.graph.call_function(encode, (self.nodes[source.nodes[0]], str(source.out.format)))
        if not same:
            return self._inner(node, source, maker)
        before = [each for each in node.all_input_nodes if each in same] or same
        value = max(before, key=self.order.__getitem__)
        return self.graph.call_function(encode, (value, str(source.out.format)))

    def _inner(self, node: fx.Node, operation: Operation, maker: Maker) -> fx.Node:
        """The integers of an intermediate operation, whose value no node has."""
        sources = dict(maker.nodes)
        for name in sorted(operation.inputs, key=self._is_constant):
            sources[name] = self._encoded(node, name, Maker(maker.root, self.graph, self.design, sources, maker.prefix))
        inner = Maker(maker.root, self.graph, self.design, sources, maker.prefix)
        return KINDS[operation.kind].node(inner, operation)

    def _is_constant(self, name: str) -> bool:
        """Is an operation a constant? It takes the number of samples from the others."""
        return self.design.operations[name].kind == "constant"

    def _drop(self, node: fx.Node) -> None:
        """Remove an unused node, and then those before it."""
        if not node.users and node.op not in ("placeholder", "output"):
            before = node.all_input_nodes
            self.graph.erase_node(node)
            for each in before:
                self._drop(each)


def _type_of(lowering: Lowering, node: fx.Node) -> torch.dtype:
    dtype = getattr(torch, lowering.facts[node].dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _is_exact(design: Design, operation: Operation, dtype: torch.dtype) -> bool:
    """Do floats of a type, once rounded, equal the hardware's results?"""
    widths = _WIDTHS.get(operation.kind)
    return widths is not None and widths(design, operation) <= _EXACT.get(dtype, 0)


def _spare_bits_of_move(design: Design, operation: Operation) -> int:
    """Operations that move or choose elements: any format that fits the input fits the result."""
    return 0


def _of_products(design: Design, operation: Operation) -> int:
    """Bits of the longest sum."""
    formats = [design.operations[name].out.format for name in operation.inputs]
    weight, bias = operation.constants.get("weight"), operation.constants.get("bias")
    length = design.operations[operation.inputs[0]].out.shape[-1] if weight is None else weight.integers[0].numel()
    second = formats[1] if weight is None else weight.format
    affine = Affine(formats[0], second, None if bias is None else bias.format, operation.out.format)
    return affine.accumulator_width(length)


def _of_elements(design: Design, operation: Operation) -> int:
    first, second = (design.operations[name].out.format for name in operation.inputs)
    if operation.options["function"] == "mul":
        return first.width + second.width
    fraction = max(first.fraction_width, second.fraction_width)
    return max(each.width + fraction - each.fraction_width for each in (first, second)) + 1


def _of_pooling(design: Design, operation: Operation) -> int:
    """A mean is a quotient, which floats round once more, so it is never exact."""
    return 1 << 10 if operation.options["mean"] else 0


#: Kind -> bits of the longest integer that floats have to hold; kinds that are missing here round in their own way.
_WIDTHS: Mapping[str, Callable[[Design, Operation], int]] = {
    **dict.fromkeys(
        ("input", "constant", "move", "take", "gather", "concat", "pad", "swap", "embedding"), _spare_bits_of_move
    ),
    **dict.fromkeys(("requantise", "blocks"), _spare_bits_of_move),
    "linear": _of_products,
    "conv2d": _of_products,
    "matmul": _of_products,
    "elementwise": _of_elements,
    "pool2d": _of_pooling,
}


# emit_verilog_top: a quantised graph as a folder of SystemVerilog, with its simulation.

_EMIT_VERILOG_TOP_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"folder": None, "name": None, "multipliers": None, "interval": None, "vectors": 100}
)


@analysis(
    "Emit Verilog",
    arguments=(
        Argument("folder", "file", "Where to write the folder."),
        Argument("name", "text", "The top module's name; the model's by default."),
        Argument("multipliers", "integer", "The maximum number of multipliers.", minimum=1),
        Argument("interval", "integer", "The maximum number of cycles from one sample to the next.", minimum=1),
        Argument("vectors", "integer", "Random samples for the simulation.", default=100, minimum=1),
    ),
    needs={"weights"},
    menu=False,
)
def emit_verilog_top_analysis_pass(
    graph: MaseGraph, pass_args: Mapping[str, Any] = _EMIT_VERILOG_TOP_DEFAULTS
) -> Result:
    """Write a quantised graph as SystemVerilog that computes the same integers, with a simulation that compares them.

    The graph's values have to be rounded to signed fixed point, e.g. by quantize with `fixed(8,4)`.
    folder: where to write; nothing is written without it.  name: of the top module, else the model's.  multipliers: at
    most this many.  interval: at most this many cycles from one sample to the next.  vectors: random samples for the
    simulation.  Gives {"module", "multipliers", "interval", "files": text by relative path}.
    ValueError for a node without hardware, naming it and a remedy, and if multipliers and interval
    cannot both be satisfied.  Source: `chop.passes.graph.transforms.verilog.emit_verilog_top_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    >>> _, found = passes.emit_verilog_top_analysis_pass(graph, {"name": "Tiny", "multipliers": 4})
    >>> found["module"], found["multipliers"], found["interval"]
    ('tiny', 4, 2)
    """
    given = complete_options("emit_verilog_top_analysis_pass", pass_args, _EMIT_VERILOG_TOP_DEFAULTS)
    design = lower_graph(graph)
    _require_supported(design)
    folding = fold_design(design, interval=given["interval"], multipliers=given["multipliers"])
    name = given["name"] or type(graph.root).__name__
    emitted = emit_folder(design, folding, name, random_inputs(design, given["vectors"]))
    if given["folder"] is not None:
        emitted.write(Path(given["folder"]))
    figures = {"multipliers": folding.multipliers, "interval": round_interval(folding.interval)}
    return graph, {"module": emitted.name, **figures, "files": dict(emitted.files)}


def _require_supported(design: Design) -> None:
    """Raise ValueError with every node that has no hardware."""
    if design.unsupported:
        told = "; ".join(f"{each.node} ({each.operator}): {each.why}" for each in design.unsupported)
        raise ValueError(f"emit_verilog_top: {len(design.unsupported)} nodes have no hardware: {told}")


# The loss of a model as hardware: the error of its outputs, and the values outside the range of its formats.


def accuracy_of(graph: MaseGraph, lowering: Lowering, data: str) -> Accuracy:
    """A map of `building.ACCURACY_KEYS` without `calibrated`; afterwards the graph computes as the hardware does.

    graph: as it was lowered.  data: the data that it runs on, as for `data.load`; "" for None.  Saturated values are
    counted in the quantised graph; the error is that of the hardware's integers, whose softmax, norms and tables
    round in their own ways. Operators without hardware stay as they are.
    """
    found: Accuracy = {"sqnr": None, "max_error": None, "saturated": None, "inputs": None, "problem": None}
    try:
        original, batches = original_of(graph), load(graph, data or None)
        feeds = list(batches.feeds(graph))
        saturated = measure(original, graph.model, *feeds).saturation
        compute_as_hardware(graph, lowering)
        whole = measure(original, graph.model, *feeds).output
    except Exception as error:  # noqa: BLE001 - the border to the person's model, run on inputs that it may refuse
        return {**found, "problem": f"{type(error).__name__}: {error}".partition("\n")[0]}
    sqnr = "inf" if whole.sqnr == math.inf else whole.sqnr
    return {**found, "sqnr": sqnr, "max_error": whole.max_error, "saturated": saturated, "inputs": batches.words}
