"""A tensor that is the same for every sample, as a stream: `constant_stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Constant, Design, Operation, Stream
from mase_server.hardware.functional import repeated
from mase_server.hardware.held import NoHardware
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.memories import words_of
from mase_server.hardware.wiring import Parameters, Tap

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def constant_stream(lowering: Lowering, node: fx.Node, constant: Constant, like: Stream) -> str:
    """The operation that gives a constant in the shape and the order of another stream. NoHardware where it differs
    from sample to sample."""
    given = constant.integers
    if given.dim() > len(like.shape):
        if given.shape[0] != 1:
            raise NoHardware(f"{node.name} has {given.shape[0]} samples of its own; one for all there may be")
        given = given[0]
    values = torch.broadcast_to(given, like.shape)
    out = Stream(constant.format, like.shape, like.order)
    constants = {"values": Constant(values.contiguous(), constant.format)}
    return lowering.insert(Operation(node.name, "constant", (), out, (node.name,), constants))


def _node(maker: Maker, operation: Operation) -> fx.Node:
    batch = maker.graph.call_method("size", (next(iter(maker.nodes.values())), 0))
    values = maker.buffer(f"{operation.name}_values", operation.constants["values"].integers)
    return maker.call(operation, repeated, values, batch)


def _build(builder: Builder, operation: Operation) -> Tap:
    out, lanes = operation.out, builder.lanes_wanted(operation)
    to = builder.wires(operation.name, lanes, out.format.width)
    words = words_of(out.flowing(operation.constants["values"].integers[None]).reshape(-1, lanes), out.format.width)
    parameters: Parameters = {
        "DATA_WIDTH": to.width,
        "DEPTH": len(words),
        "FILE": builder.memory(operation, "values", lanes, words),
    }
    ports = {"data_out_0": to.data, "data_out_0_valid": to.valid, "data_out_0_ready": to.ready}
    builder.instance(f"{operation.name}_i", "constant_stream", parameters, ports, operation.name)
    return to


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    return ()


KIND = Kind("constant", _node, _build, reach=_reach)
