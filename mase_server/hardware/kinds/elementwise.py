"""Element-wise operations: sums, differences and products (`fixed_add`, `fixed_multiply`), functions of one number
(`fixed_table`), and conversions between fixed-point formats (`fixed_cast`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.arithmetic import look_up, table
from mase_server.hardware.arithmetic.elements import WIDEST_TABLE
from mase_server.hardware.design import MOST_SERIAL, Constant, Design, Fold, Operation, Stream, find_divisors, row_major
from mase_server.hardware.functional import integer_add, integer_multiply, integer_requantise
from mase_server.hardware.held import Held, Known, NoHardware, Unrounded, Whole, node_of
from mase_server.hardware.kinds.entry import constant_stream
from mase_server.hardware.kinds.gather import arrange_elements
from mase_server.hardware.kinds.kind import Kind, Rule
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.masks import add_mask
from mase_server.hardware.memories import Words
from mase_server.hardware.verilog import Parameters, Tap, precision_parameters, stream_ports
from mase_server.ir.facts import mark_producer
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _elementwise_rule(function: str) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        if given.get("alpha", 1) != 1:
            raise NoHardware(f"alpha is {given['alpha']}; multiply first, and quantise that")
        scaled = by_number(lowering, node)
        if scaled is not None:
            return scaled
        if function == "div":
            raise NoHardware("one tensor divided by another has no hardware; divide by a number, or multiply")
        operands = [node_of(given[name]) for name in ("data_in_0", "data_in_1")]
        for scores, other in (operands, operands[::-1]):
            mask = lowering.held[other]
            if function == "add" and isinstance(mask, Known):
                return add_mask(lowering, node, scores, mask.values)
        sources = tuple(like_each_other(lowering, node, operands))
        return Unrounded("elementwise", sources, node, options={"function": function, "relu": False})

    return rule


def like_each_other(lowering: Lowering, node: fx.Node, operands: list[fx.Node]) -> Iterator[str]:
    """The streams of operands in the shape of a node's sample and in one order: that of the first one with that
    shape."""
    shape = lowering.sample(node)
    names = {each: lowering.whole(each) for each in operands if not isinstance(lowering.held[each], Constant)}
    whole = [lowering.stream(name) for name in names.values() if lowering.stream(name).shape == shape]
    order = whole[0].indices if whole else torch.arange(prod(shape))
    for each in operands:
        held = lowering.held[each]
        if isinstance(held, Constant):
            same = Constant(lowering.same_for_all(held.integers, node), held.format)
            yield constant_stream(lowering, each, same, Stream(held.format, shape, row_major(order)))
        elif lowering.stream(names[each]).shape == shape:
            yield in_order(lowering, names[each], order)
        else:
            yield arrange_elements(lowering, names[each], _broadcast_places(lowering, each, node), shape, order)


def _broadcast_places(lowering: Lowering, source: fx.Node, node: fx.Node) -> Tensor:
    """For each element of a node's sample, the row-major index of the source's element that is broadcast there."""
    before, after = lowering.facts[source].shape, lowering.facts[node].shape
    if len(before) != len(after) or lowering.layout(source) != lowering.layout(node):
        raise NoHardware(f"it broadcasts {list(before)} to {list(after)}, where dimension 0 is no longer the batch")
    layout = lowering.layout(node)
    shape = layout.sample(before)
    return torch.arange(prod(shape)).reshape(shape).expand(layout.sample(after)).reshape(-1)


def _elementwise_node(maker: Maker, operation: Operation) -> fx.Node:
    options, formats = operation.options, (maker.format_in(operation), maker.format_in(operation, 1))
    given = (*maker.inputs(operation), formats, str(operation.out.format), options["relu"])
    if options["function"] == "mul":
        return maker.call(operation, integer_multiply, *given)
    return maker.call(operation, integer_add, *given, options["function"] == "sub")


def _elementwise_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """A product has a beat a cycle, or a few lanes bit by bit, without multipliers; a sum is at the pace of its
    neighbours."""
    if operation.options["function"] != "mul":
        return
    beat = design.operations[operation.inputs[1]].out.format.width + 1
    for lanes in find_divisors(operation.out.size):
        cycles = operation.out.size // lanes
        yield Fold(lanes, lanes, cycles, lanes)
        if lanes <= MOST_SERIAL:
            yield Fold(lanes, lanes, cycles * beat, 0, serial=True)


def _build_elementwise(builder: Builder, operation: Operation) -> Tap:
    options, multiplies = operation.options, operation.options["function"] == "mul"
    if multiplies:
        fold = builder.folding.folds[operation.name]
        lanes, more = fold.par_in, {"SERIAL": int(fold.serial)}
    else:
        lanes = max(builder.lanes_of(operation, 0), builder.lanes_of(operation, 1))
        more = {"SUBTRACT": 1} if options["function"] == "sub" else {}
    taps = [builder.waiting(operation, index, builder.read(operation, lanes, index)) for index in (0, 1)]
    to = builder.wires(operation.name, lanes, operation.out.format.width)
    before = [builder.design.operations[name].out.format for name in operation.inputs]
    parameters: Parameters = {
        **precision_parameters("DATA_IN_0", before[0]),
        **precision_parameters("DATA_IN_1", before[1]),
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        **precision_parameters("DATA_OUT_0", operation.out.format),
        "RELU": int(options["relu"]),
        **more,
    }
    module = "fixed_multiply" if multiplies else "fixed_add"
    builder.instance(f"{operation.name}_i", module, parameters, builder.pair(taps, to), operation.name)
    return to


ELEMENTWISE_KIND = Kind(
    "elementwise",
    _elementwise_node,
    _build_elementwise,
    {name: _elementwise_rule(name) for name in ("add", "sub", "mul", "div")},
    folds=_elementwise_folds,
    mixes=0,
)


# Functions of one number, looked up in a table: `fixed_table`.


def _lower_table(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """The node itself fills the table, so that all its settings apply."""
    source = node_of(given["data_in_0"])
    name = lowering.whole(source)
    if (width := lowering.stream(name).format.width) > WIDEST_TABLE:
        raise NoHardware(f"its table would have 2**{width} words; quantise its input to {WIDEST_TABLE} bits or fewer")

    known = {
        each: value.double() for each in node.all_input_nodes if (value := _float_operand(lowering, each)) is not None
    }

    def function(values: Tensor) -> Tensor:
        """Apply the node; 0 for an undefined value, such as the root of a negative number, where the graph has NaN."""
        found = lowering.evaluated(node, {source: values, **known})
        return found.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)

    function(torch.zeros(1, dtype=torch.float64))  # reports errors of the function now
    return Unrounded("table", (name,), node, options={"function": function})


def _float_operand(lowering: Lowering, node: fx.Node) -> Tensor | None:
    """A constant operand that is no integer; None for any other."""
    fact = lowering.facts.get(node)
    is_float = isinstance(fact, TensorType) and fact.dtype.startswith(("float", "bfloat"))
    return lowering.values(node) if is_float else None


def by_number(lowering: Lowering, node: fx.Node) -> Held | None:
    """Lower a node with one tensor and otherwise numbers as operands to a function of one number. None for any other
    node."""
    tensors = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType)]
    tensors = [each for each in tensors if lowering.values(each) is None or prod(lowering.facts[each].shape) != 1]
    if len(tensors) != 1:
        return None
    return _lower_table(lowering, node, {"data_in_0": mark_producer(lowering.facts[tensors[0]], tensors[0])})


def _table_words(operation: Operation, before: Any) -> Tensor:
    function: Callable[[Tensor], Tensor] = operation.options["function"]
    return table(function, before, operation.out.format)


def _table_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    before = maker.design.operations[operation.inputs[0]].out.format
    return maker.call(
        operation, look_up, source, maker.buffer(f"{operation.name}_words", _table_words(operation, before))
    )


def _build_table(builder: Builder, operation: Operation) -> Tap:
    source, width = builder.read(operation), operation.out.format.width
    before = builder.design.operations[operation.inputs[0]].out.format
    to = builder.wires(f"{operation.name}_cast", source.lanes, width)
    words = Words(1 << before.width, width, lambda: _table_words(operation, before)[:, None])
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        "DATA_OUT_0_PRECISION_0": width,
        "FILE": builder.file(operation, "words", width, words),
    }
    builder.instance(f"{operation.name}_i", "fixed_table", parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


#: Functions of one number; their other operands are numbers or constants of one element.
_SERVED = (
    "gelu", "silu", "sigmoid", "tanh", "exp", "elu", "selu", "celu", "mish", "softplus", "softsign", "hardswish",
    "hardsigmoid", "hardtanh", "leaky_relu", "relu6", "logsigmoid", "erf", "abs", "neg", "sin", "cos", "square",
    "softshrink", "hardshrink", "tanhshrink", "threshold", "prelu", "pow", "sqrt", "rsqrt", "reciprocal", "log", "exp2",
    "log2", "log10", "log1p", "expm1", "clamp", "clip", "sign", "round", "floor", "ceil", "trunc", "erfc", "tan",
    "atan", "sinh", "cosh", "asinh", "rsub", "rrelu",
)  # fmt: skip

TABLE_KIND = Kind("table", _table_node, _build_table, dict.fromkeys(_SERVED, _lower_table), mixes=0)


# Conversion from one format to another, and ReLU: `fixed_cast`.


def _lower_relu(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """ReLU is part of the operation that computes its input if nothing else reads that, otherwise a conversion of its
    own."""
    source = node_of(given["data_in_0"])
    held = lowering.held[source]
    if isinstance(held, Unrounded) and "relu" in held.options and len(source.users) == 1:
        return replace(held, options={**held.options, "relu": True}, also=(*held.also, node.name))
    name = lowering.whole(source)
    before = lowering.operations[name]
    if "relu" in before.options and _is_used_alone(source, before, lowering):
        nodes = (*before.nodes, node.name)
        lowering.operations[name] = replace(before, options={**before.options, "relu": True}, nodes=nodes)
        return Whole(name)
    return lowering.add(Unrounded("requantise", (name,), node, options={"relu": True}), before.out.format)


def _is_used_alone(source: fx.Node, before: Operation, lowering: Lowering) -> bool:
    """Does only one node use the result of an operation, under all of its names?"""
    same = [each for each, held in lowering.held.items() if held == Whole(before.name)]
    users = {user for each in same for user in each.users} - set(same)
    return len(users) == 1 and len(source.users) == 1


def _requantise_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(operation, integer_requantise, source, *formats, operation.options["relu"])


def _build_requantise(builder: Builder, operation: Operation) -> Tap:
    source = builder.read(operation)
    cast = builder.wires(f"{operation.name}_cast", source.lanes, operation.out.format.width)
    parameters = {
        **precision_parameters("DATA_IN_0", builder.design.operations[operation.inputs[0]].out.format),
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        **precision_parameters("DATA_OUT_0", operation.out.format),
        "RELU": int(operation.options["relu"]),
    }
    builder.instance(f"{operation.name}_i", "fixed_cast", parameters, stream_ports(source, cast), operation.name)
    return builder.skid(operation, cast)


REQUANTISE_KIND = Kind("requantise", _requantise_node, _build_requantise, {"relu": _lower_relu}, mixes=0)
