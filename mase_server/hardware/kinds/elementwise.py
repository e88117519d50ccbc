"""Sums, differences and products of two streams: `fixed_add`, `fixed_multiply`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Constant, Operation, Stream, row_major
from mase_server.hardware.functional import integer_add, integer_multiply
from mase_server.hardware.held import Held, Known, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.constant import constant_stream
from mase_server.hardware.kinds.gather import arranged
from mase_server.hardware.kinds.kind import Kind, Rule
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.kinds.table import by_number
from mase_server.hardware.masks import added
from mase_server.hardware.wiring import Parameters, Tap, precision

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _rule(function: str) -> Rule:
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
                return added(lowering, node, scores, mask.values)
        sources = tuple(like_each_other(lowering, node, operands))
        return Unrounded("elementwise", sources, node, options={"function": function, "relu": False})

    return rule


def like_each_other(lowering: Lowering, node: fx.Node, operands: list[fx.Node]) -> Iterator[str]:
    """The streams of operands in the shape of a node's sample and in one order: that of the first one which has it."""
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
            yield arranged(lowering, names[each], _spread(lowering, each, node), shape, order)


def _spread(lowering: Lowering, source: fx.Node, node: fx.Node) -> Tensor:
    """For each element of a sample of a node: the row-major index of what is broadcast there."""
    before, after = lowering.facts[source].shape, lowering.facts[node].shape
    if len(before) != len(after) or lowering.layout(source) != lowering.layout(node):
        raise NoHardware(f"it broadcasts {list(before)} to {list(after)}, where dimension 0 is no longer the batch")
    layout = lowering.layout(node)
    shape = layout.sample(before)
    return torch.arange(prod(shape)).reshape(shape).expand(layout.sample(after)).reshape(-1)


def _node(maker: Maker, operation: Operation) -> fx.Node:
    options, formats = operation.options, (maker.format_in(operation), maker.format_in(operation, 1))
    given = (*maker.inputs(operation), formats, str(operation.out.format), options["relu"])
    if options["function"] == "mul":
        return maker.call(operation, integer_multiply, *given)
    return maker.call(operation, integer_add, *given, options["function"] == "sub")


def _build(builder: Builder, operation: Operation) -> Tap:
    lanes = max(builder.lanes_of(operation, 0), builder.lanes_of(operation, 1))
    taps = [builder.waiting(operation, index, builder.read(operation, lanes, index)) for index in (0, 1)]
    to, options = builder.wires(operation.name, lanes, operation.out.format.width), operation.options
    before = [builder.design.operations[name].out.format for name in operation.inputs]
    parameters: Parameters = {
        **precision("DATA_IN_0", before[0]),
        **precision("DATA_IN_1", before[1]),
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        **precision("DATA_OUT_0", operation.out.format),
        "RELU": int(options["relu"]),
    }
    module = "fixed_multiply" if options["function"] == "mul" else "fixed_add"
    if options["function"] == "sub":
        parameters["SUBTRACT"] = 1
    builder.instance(f"{operation.name}_i", module, parameters, builder.pair(taps, to), operation.name)
    return to


KIND = Kind("elementwise", _node, _build, {name: _rule(name) for name in ("add", "sub", "mul", "div")}, mixes=0)
