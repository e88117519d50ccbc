"""From a quantised graph to a design: every rounding to fixed point and what stands between two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Design, Operation, Stream, Unsupported, row_major
from mase_server.hardware.names import identifier
from mase_server.ir.build import attribute
from mase_server.ir.facts import Produced, call_of, map_nodes
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType


class NoHardware(Exception):
    """A node cannot be built; its text says what would be needed."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A value that an operation gives: integers of a format."""

    operation: str


@dataclass(frozen=True, slots=True)
class Unrounded:
    """What some rounding has still to finish: what the operation will be, but for its output's format.

    node: computes it, and gives the name.  also: further nodes that it is.
    """

    kind: str
    inputs: tuple[str, ...]
    node: fx.Node
    constants: Mapping[str, Constant] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Floating:
    """An input or a parameter that nobody has rounded yet."""

    node: fx.Node


@dataclass(frozen=True, slots=True)
class Moved:
    """Elements of an input that were moved before anybody rounded them, which changes nothing. move: its inputs are
    still missing."""

    source: Floating | Moved
    move: Unrounded


Held = Whole | Unrounded | Floating | Moved | Constant


def lower(graph: MaseGraph) -> Design:
    """The design of a graph whose values are rounded to signed fixed point (see quantize_transform_pass).

    Sizes are those of the recorded inputs; their first dimension is the batch, and hardware takes one sample at a time.
    Nodes without hardware, and all that needs them, are left out and listed.  Parameters must have values.
    """
    return _Lowering(graph).run()


class _Lowering:
    def __init__(self, graph: MaseGraph) -> None:
        self.graph, self.model, self.facts = graph.fx_graph, graph.module, graph.facts
        self.operations: dict[str, Operation] = {}
        self.held: dict[fx.Node, Held] = {}
        self.inputs: dict[fx.Node, str] = {}
        self.unsupported: list[Unsupported] = []
        #: Nodes that have no hardware, and those that need them.
        self.missing: set[fx.Node] = set()
        self.outputs: tuple[str, ...] = ()

    def run(self) -> Design:
        """The operations of all nodes that have some."""
        for node in self.graph.nodes:
            if not self.missing.isdisjoint(node.all_input_nodes):
                self.missing.add(node)  # told where it began
                continue
            try:
                held = self._lower(node)
            except NoHardware as why:
                self.missing.add(node)
                self.unsupported.append(Unsupported(node.name, operator_of(node, self.model), str(why)))
                continue
            if held is not None:
                self.held[node] = held
        return Design(dict(self.operations), self.outputs, tuple(self.unsupported))

    def _lower(self, node: fx.Node) -> Held | None:
        """What a node gives; None for what is no tensor of the data."""
        if node.op == "output":
            tensors = [each for each in node.all_input_nodes if isinstance(self.facts.get(each), TensorType)]
            self.outputs = tuple(self.whole(each) for each in tensors)
            return None
        if not isinstance(self.facts.get(node), TensorType):
            return None
        if node.op in ("placeholder", "get_attr"):
            return Floating(node)
        if (text := format_text(node)) is not None:
            return self._rounded(node, text)
        name = operator_of(node, self.model)
        if name not in RULES:
            raise NoHardware(f"there is no component for {name}; there are some for {', '.join(sorted(RULES))}")
        return RULES[name](self, node, named_arguments(call_of(node, self.facts, self.model)))

    # What rules use

    def whole(self, node: fx.Node) -> str:
        """The operation that gives a node's value; NoHardware where that is not rounded."""
        held = self.held[node]
        if isinstance(held, Whole):
            return held.operation
        raise NoHardware(f"{node.name} is not rounded to fixed point; quantise it first, e.g. to fixed(8,4)")

    def constant(self, node: fx.Node) -> Constant:
        """A rounded parameter; NoHardware for anything else."""
        held = self.held[node]
        if isinstance(held, Constant):
            return held
        raise NoHardware(f"{node.name} has to be a parameter that is rounded to fixed point")

    def stream(self, name: str) -> Stream:
        """What an operation gives."""
        return self.operations[name].out

    def places(self, node: fx.Node, source: fx.Node) -> Tensor:
        """For each element of a sample of a node that only moves: its row-major index in its source's sample."""
        before, after = self.facts[source], self.facts[node]
        indices = torch.arange(prod(before.shape)).reshape(before.shape)
        moved = run(node, self.model, lambda each: indices if each is source else self.facts[each])
        rows = moved.reshape(moved.shape[0], -1)
        first = torch.arange(len(rows)) * prod(before.shape[1:])
        if moved.shape[:1] != before.shape[:1] or not torch.equal(rows - first[:, None], rows[:1].expand_as(rows)):
            raise NoHardware(f"it mixes samples: {list(before.shape)} becomes {list(after.shape)}, the batch first")
        return rows[0]

    def add(self, unrounded: Unrounded, format: FixedPoint, *rounded: str) -> Whole:
        """A new operation, named as the node that computes it. rounded: the nodes that round it."""
        node = unrounded.node
        nodes = (node.name, *unrounded.also, *rounded)
        order = ORDERS.get(unrounded.kind, _as_given)
        out = order(self, unrounded, Stream(format, sample(self.facts[node])))
        given = unrounded.inputs, out, nodes, unrounded.constants, unrounded.options
        name = identifier(node.name, self.operations)
        self.operations[name] = Operation(name, unrounded.kind, *given)
        if unrounded.kind == "input":
            self.inputs[node] = name
        return Whole(name)

    def _rounded(self, node: fx.Node, text: str) -> Held:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return self._round(self.held[source], _fixed(text), node)

    def _round(self, held: Held, format: FixedPoint, node: fx.Node) -> Held:
        match held:
            case Moved(before, move):
                rounded = self._round(before, format, node)
                assert isinstance(rounded, Whole)
                return self.add(replace(move, inputs=(rounded.operation,)), format, node.name)
            case Floating(given) if given.op == "get_attr":
                return Constant(_encoded(attribute(self.model, str(given.target)), format, given), format)
            case Floating(given):
                return self._input(given, format, node.name)
            case Unrounded() as unrounded:
                return self.add(unrounded, format, node.name)
            case Whole(name) as whole if self.stream(name).format == format:
                return whole
            case Whole(name):
                return self.add(Unrounded("requantise", (name,), node, options={"relu": False}), format)
            case Constant(integers, before):
                return Constant(format.encode(before.decode(integers)), format)

    def _input(self, given: fx.Node, format: FixedPoint, rounded: str) -> Whole:
        if given not in self.inputs:
            return self.add(Unrounded("input", (), given), format, rounded)
        known = self.inputs[given]
        if (other := self.stream(known).format) != format:
            raise NoHardware(f"the input {given.name} is rounded to {other} and to {format}; one is needed")
        return Whole(known)


Rule = Callable[[_Lowering, fx.Node, Mapping[str, Any]], Held]


def _linear(lowering: _Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = lowering.whole(node_of(given["data_in_0"]))
    bias = given.get("bias")
    if not vectors_in_order(lowering.stream(source)):
        raise NoHardware("its vectors do not come one after the other; that takes a transpose buffer")
    constants = {"weight": lowering.constant(node_of(given["weight"]))}
    if bias is not None:
        constants["bias"] = lowering.constant(node_of(bias))
    return Unrounded("linear", (source,), node, constants, {"relu": False})


def _relu(lowering: _Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Part of what computes its input, where nobody else wants that; otherwise a rounding of its own."""
    source = node_of(given["data_in_0"])
    held = lowering.held[source]
    if isinstance(held, Unrounded) and "relu" in held.options and len(source.users) == 1:
        return replace(held, options={**held.options, "relu": True}, also=(*held.also, node.name))
    name = lowering.whole(source)
    before = lowering.operations[name]
    if "relu" in before.options and _alone(source, before, lowering):
        nodes = (*before.nodes, node.name)
        lowering.operations[name] = replace(before, options={**before.options, "relu": True}, nodes=nodes)
        return Whole(name)
    return lowering.add(Unrounded("requantise", (name,), node, options={"relu": True}), before.out.format)


def _alone(source: fx.Node, before: Operation, lowering: _Lowering) -> bool:
    """Does only one node use what an operation gives, under whatever name?"""
    same = [each for each, held in lowering.held.items() if held == Whole(before.name)]
    users = {user for each in same for user in each.users} - set(same)
    return len(users) == 1 and len(source.users) == 1


def _same(lowering: _Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    return lowering.held[node_of(given["data_in_0"])]


def _move(lowering: _Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Elements under another shape or name: nothing moves here, but who reads may want them at other times."""
    source = node_of(given["data_in_0"])
    held, places = lowering.held[source], lowering.places(node, source)
    if sample(lowering.facts[source]) == sample(lowering.facts[node]) and row_major(places) is None:
        return held
    move = Unrounded("move", (), node, options={"places": places})
    if isinstance(held, Floating | Moved):
        return Moved(held, move)
    name = lowering.whole(source)
    return lowering.add(replace(move, inputs=(name,)), lowering.stream(name).format)


Order = Callable[["_Lowering", Unrounded, Stream], Stream]


def _as_given(lowering: _Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """In the order of the first operand, where that has the same shape; row-major without one."""
    given = [lowering.stream(name) for name in unrounded.inputs[:1]]
    return replace(out, order=given[0].order) if given and given[0].shape == out.shape else out


def _as_moved(lowering: _Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    return lowering.stream(unrounded.inputs[0]).moved(unrounded.options["places"], out.shape)


def _row_major(lowering: _Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    return out


#: Kind of an operation -> in which order its results flow.
ORDERS: Mapping[str, Order] = {
    "linear": _row_major,
    "move": _as_moved,
}


#: MASE's operator -> what gives its hardware.
RULES: Mapping[str, Rule] = {
    "linear": _linear,
    "relu": _relu,
    "dropout": _same,
    "identity": _same,
    "contiguous": _same,
    **dict.fromkeys(
        ("flatten", "unflatten", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose", "movedim", "t"),
        _move,
    ),
}


def node_of(value: Any) -> fx.Node:
    """The node that gives an argument; NoHardware for a part of a tuple, or a plain number."""
    if isinstance(value, Produced) and value.node is not None and not value.path:
        return value.node
    raise NoHardware("one of its operands is no tensor of the graph's own")


def sample(fact: TensorType) -> tuple[int, ...]:
    """The shape of one sample; NoHardware for a tensor without a batch."""
    if not fact.shape:
        raise NoHardware("it is a single number for the whole batch")
    return tuple(fact.shape[1:])


def vectors_in_order(stream: Stream) -> bool:
    """Do the vectors along the last dimension come one after the other, in their order, each in the same order?"""
    rows = stream.indices.reshape(-1, stream.shape[-1])
    first = torch.arange(len(rows)) * stream.shape[-1]
    return torch.equal(rows - first[:, None], rows[:1].expand_as(rows))


def run(node: fx.Node, model: nn.Module, value_of: Callable[[fx.Node], Any]) -> Tensor:
    """What a node gives for other values of its operands."""
    args, kwargs = map_nodes(node.args, value_of), map_nodes(node.kwargs, value_of)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)  # type: ignore[no-any-return]
    target = attribute(model, str(node.target)) if node.op == "call_module" else node.target
    return target(*args, **kwargs)  # type: ignore[no-any-return, operator]


def _fixed(text: str) -> FixedPoint:
    format = parse(text)
    if isinstance(format, FixedPoint) and format.is_signed:
        return format
    raise NoHardware(f"{text} has no hardware; integers of signed fixed point have, e.g. fixed(8,4)")


def _encoded(parameter: Tensor, format: FixedPoint, node: fx.Node) -> Tensor:
    if parameter.is_meta:
        raise NoHardware(f"the parameter {node.target} has no values; build the model with its weights")
    return format.encode(parameter)
