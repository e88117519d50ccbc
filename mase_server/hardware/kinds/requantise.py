"""From one format into another, and ReLU: `fixed_cast`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.hardware.design import Operation
from mase_server.hardware.functional import integer_requantise
from mase_server.hardware.held import Held, Unrounded, Whole, node_of
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.wiring import Tap, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _relu(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
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


def _alone(source: fx.Node, before: Operation, lowering: Lowering) -> bool:
    """Does only one node use what an operation gives, under whatever name?"""
    same = [each for each, held in lowering.held.items() if held == Whole(before.name)]
    users = {user for each in same for user in each.users} - set(same)
    return len(users) == 1 and len(source.users) == 1


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(operation, integer_requantise, source, *formats, operation.options["relu"])


def _build(builder: Builder, operation: Operation) -> Tap:
    source = builder.read(operation)
    cast = builder.wires(f"{operation.name}_cast", source.lanes, operation.out.format.width)
    parameters = {
        **precision("DATA_IN_0", builder.design.operations[operation.inputs[0]].out.format),
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        **precision("DATA_OUT_0", operation.out.format),
        "RELU": int(operation.options["relu"]),
    }
    builder.instance(f"{operation.name}_i", "fixed_cast", parameters, streams(source, cast), operation.name)
    return builder.skid(operation, cast)


KIND = Kind("requantise", _node, _build, {"relu": _relu}, mixes=0)
