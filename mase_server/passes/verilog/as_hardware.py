"""as_hardware: a quantised graph that gives the very numbers of its hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn

from mase_server.hardware.arithmetic import Affine
from mase_server.hardware.design import Design, Operation
from mase_server.hardware.functional import decode, encode
from mase_server.hardware.held import Whole
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.lowering import Lowering
from mase_server.hardware.twin import Maker
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
#: The module of the graph that holds integers of tables and weights.
_HOLDER = "integers"
#: Bits of the integers that a type of numbers holds exactly, sign included.
_EXACT = {torch.float64: 54, torch.float32: 25, torch.float16: 12, torch.bfloat16: 9}

#: Kinds that compute nothing.
_MOVING = frozenset({"move", "take", "gather", "concat", "pad", "swap"})

#: Kinds that compute each row, or each number, for itself.
_BY_ROWS = frozenset({"linear", "norm", "softmax", "table"})


@transform
def as_hardware_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Have a quantised graph compute what its hardware computes, bit for bit, and say what that costs in accuracy.

    Operators whose hardware rounds otherwise than a rounded float (softmax, norms, tables such as GELU, means, sums too
    long to be exact) become the integer functions of `mase_server.hardware.functional`; the rest is exact as it is.
    Operators without hardware stay as they are.  Gives {"replaced": node: kind of operation, "without": node: why it
    was left}.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=-1)), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    >>> passes.as_hardware_transform_pass(graph)[1]
    {'replaced': {'_1': 'softmax'}, 'without': {}}
    """
    options("as_hardware_transform_pass", pass_args, _DEFAULTS)
    lowering = Lowering(graph)
    lowering.run()
    replaced, left = compute_as_hardware(graph, lowering)
    return graph, {
        "replaced": replaced,
        "without": {each.node: each.why for each in lowering.design.unsupported} | left,
    }


def compute_as_hardware(graph: MaseGraph, lowering: Lowering) -> tuple[dict[str, str], dict[str, str]]:
    """Put the integer functions of hardware into a graph that was lowered; the kinds by node, and why others stay."""
    replacing = _Replacing(graph, lowering, lowering.design)
    return replacing.run(), replacing.left


class _Replacing:
    """Operations of a design that take the place of a graph's nodes."""

    def __init__(self, graph: MaseGraph, lowering: Lowering, design: Design) -> None:
        self.graph, self.lowering, self.design = graph.fx_graph, lowering, design
        self.root, self.nodes = graph.module, {node.name: node for node in graph.fx_graph.nodes}
        self.order = {node: index for index, node in enumerate(graph.fx_graph.nodes)}
        self.left: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Replace all that computes otherwise; the kinds by node."""
        found = {}
        for name, operations in self._by_node().items():
            node, operation = self.nodes.get(name), operations[-1]
            if node is None or self._is_exact(node, operations):
                continue
            if not self._is_placed(node, operation):
                self.left[node.name] = "its samples are not in the first dimension, as its integers' are"
            else:
                self._replace(node, operation)
                found[node.name] = operation.kind
        return found

    def _by_node(self) -> dict[str, list[Operation]]:
        """The operations of each node, in their order: the last one gives its value."""
        found: dict[str, list[Operation]] = {}
        for operation in self.design.operations.values():
            if operation.nodes and operation.kind != "constant":
                found.setdefault(operation.nodes[0], []).append(operation)
        return found

    def _is_exact(self, node: fx.Node, operations: Sequence[Operation]) -> bool:
        """Several operations round in between, unless all but one only move."""
        if sum(operation.kind not in _MOVING for operation in operations) > 1:
            return False
        return all(_is_exact(self.design, each, _type_of(self.lowering, node)) for each in operations)

    def _is_placed(self, node: fx.Node, operation: Operation) -> bool:
        """Are samples where the integer function expects them, or may they be anywhere?"""
        if operation.kind in _BY_ROWS and "mask" not in operation.constants:
            return True
        return not any(each in self.lowering.layouts for each in (node, *node.all_input_nodes))

    def _replace(self, node: fx.Node, operation: Operation) -> None:
        """The node becomes the value of the integers; what only it read goes."""
        before = node.all_input_nodes
        with self.graph.inserting_before(node):
            integers = self._integers(node, operation)
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
        """The integers of an operand: of the last node before that has its value."""
        source = self.design.operations[name]
        if source.kind == "swap":
            return self._encoded(node, source.inputs[0], maker)
        if source.kind == "constant":
            return KINDS[source.kind].node(maker, source)
        same = [each for each, held in self.lowering.held.items() if held == Whole(name)]
        if not same and source.kind == "input":
            return self.graph.call_function(encode, (self.nodes[source.nodes[0]], str(source.out.format)))
        if not same:
            return self._inner(node, source, maker)
        before = [each for each in node.all_input_nodes if each in same] or same
        value = max((each for each in before if self.order[each] < self.order[node]), key=self.order.__getitem__)
        return self.graph.call_function(encode, (value, str(source.out.format)))

    def _inner(self, node: fx.Node, operation: Operation, maker: Maker) -> fx.Node:
        """The integers of an operation in between: no node has its value."""
        sources = dict(maker.nodes)
        for name in sorted(operation.inputs, key=self._is_constant):
            sources[name] = self._encoded(node, name, Maker(maker.root, self.graph, self.design, sources, maker.prefix))
        inner = Maker(maker.root, self.graph, self.design, sources, maker.prefix)
        return KINDS[operation.kind].node(inner, operation)

    def _is_constant(self, name: str) -> bool:
        """What stands still takes the number of samples from what does not."""
        return self.design.operations[name].kind == "constant"

    def _drop(self, node: fx.Node) -> None:
        """Take out a node that nobody reads any more, and then those before it."""
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
    """Do floats of a type, once rounded, give what the hardware gives?"""
    widths = _WIDTHS.get(operation.kind)
    return widths is not None and widths(design, operation) <= _EXACT.get(dtype, 0)


def _nothing(design: Design, operation: Operation) -> int:
    """Moves and chooses: any format that fits the input fits the result."""
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
    """A mean is a quotient, which floats round before they are rounded again."""
    return 1 << 10 if operation.options["mean"] else 0


#: Kind -> bits of the longest integer that floats have to hold; what is not named here rounds in a way of its own.
_WIDTHS: Mapping[str, Callable[[Design, Operation], int]] = {
    **dict.fromkeys(("input", "constant", "move", "take", "gather", "concat", "pad", "swap", "embedding"), _nothing),
    "requantise": _nothing,
    "linear": _of_products,
    "conv2d": _of_products,
    "matmul": _of_products,
    "elementwise": _of_elements,
    "pool2d": _of_pooling,
}

PASS = Pass(
    name="as_hardware",
    title="Compute as hardware does",
    kind="transform",
    function=as_hardware_transform_pass,
    needs=frozenset({"weights"}),
)
