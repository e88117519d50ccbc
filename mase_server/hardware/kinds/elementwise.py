"""Sums, differences and products of two streams: `fixed_add`, `fixed_multiply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.hardware.design import Constant, Operation, Stream
from mase_server.hardware.functional import integer_add, integer_multiply
from mase_server.hardware.held import Held, NoHardware, Unrounded, Whole, node_of
from mase_server.hardware.kinds.constant import constant_stream
from mase_server.hardware.kinds.kind import Kind, Rule
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.kinds.table import by_number
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
        nodes = [node_of(given[name]) for name in ("data_in_0", "data_in_1")]
        streams = [lowering.held[each] for each in nodes if not isinstance(lowering.held[each], Constant)]
        if len(streams) == 1 and isinstance(streams[0], Whole):
            like = lowering.stream(streams[0].operation)
            sources = tuple(_stream(lowering, each, like) for each in nodes)
        else:
            sources = tuple(lowering.whole(each) for each in nodes)
        first, second = (lowering.stream(name) for name in sources)
        if function == "div":
            raise NoHardware("one tensor divided by another has no hardware; divide by a number, or multiply")
        if first.shape != second.shape:
            raise NoHardware(f"it broadcasts {list(first.shape)} with {list(second.shape)}; give both one shape")
        sources = sources[0], in_order(lowering, sources[1], first.indices)
        return Unrounded("elementwise", sources, node, options={"function": function, "relu": False})

    return rule


def _stream(lowering: Lowering, node: fx.Node, like: Stream) -> str:
    """The stream of an operand; a constant becomes one that is like another stream."""
    held = lowering.held[node]
    return constant_stream(lowering, node, held, like) if isinstance(held, Constant) else lowering.whole(node)


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
