"""A part of a stream; the rest is dropped: `stream_split`."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Design, Operation, Stream, row_major
from mase_server.hardware.functional import move
from mase_server.hardware.held import Barred, Floating, Held, Later, Moved, Unrounded, Whole, node_of
from mase_server.hardware.kinds.gather import arrange_elements
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.kinds.norm import LARGEST, largest_part
from mase_server.hardware.kinds.recurrent import lower_result, path_of_result
from mase_server.hardware.verilog import Tap
from mase_server.ir.number_formats import operator_of

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _lower_take(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    whole = node.args[0]
    assert isinstance(whole, fx.Node)
    if (found := path_of_result(lowering, node)) is not None:
        return lower_result(lowering, node, *found)
    if operator_of(whole, lowering.model) in LARGEST:
        return largest_part(lowering, node, whole)
    source = lowering.parts.get(whole) or node_of(given["data_in_0"])
    places, shape = lowering.places(node, source), lowering.sample(node)

    def made(name: str) -> Whole:
        return Whole(take_elements(lowering, name, places, shape, (node.name,)))

    held = lowering.held[source]
    if isinstance(held, Barred):
        return Barred(made(held.flags).operation)
    if isinstance(held, Unrounded | Later | Floating | Moved):
        return Later(lambda format: made(lowering.rounded(source, format)))
    return made(lowering.whole(source))


def take_elements(lowering: Lowering, name: str, places: Tensor, shape: tuple[int, ...], nodes: tuple[str, ...]) -> str:
    """The operation that gives some elements of a stream in another shape.

    places: for each of its row-major indices, the old index of the element.  nodes: the graph's nodes that it
    implements.
    """
    first = _first_position(before := lowering.stream(name), places)
    if first is None:
        return arrange_elements(lowering, name, places, shape, nodes=nodes)
    if len(places) == before.size and torch.equal(places, torch.arange(before.size)):
        return name if shape == before.shape else arrange_elements(lowering, name, places, shape, nodes=nodes)
    now = torch.full((before.size,), -1)
    now[places] = torch.arange(len(places))
    flowing = now[before.indices]
    out = Stream(before.format, shape, row_major(flowing[flowing >= 0]))
    return lowering.insert(Operation(nodes[0], "take", (name,), out, nodes, options={"places": places, "first": first}))


def _first_position(stream: Stream, places: Tensor) -> int | None:
    """The position in flow of the first of some elements; None if others come between them, or some repeat."""
    if len(torch.unique(places)) != len(places):
        return None
    position = torch.empty(stream.size, dtype=torch.int64)
    position[stream.indices] = torch.arange(stream.size)
    first, last = int(position[places].min()), int(position[places].max())
    return first if last - first + 1 == len(places) else None


def _take_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    places = maker.buffer(f"{operation.name}_places", operation.options["places"])
    return maker.call(operation, move, source, places, operation.out.shape)


def _build_take(builder: Builder, operation: Operation) -> Tap:
    first, size = operation.options["first"], operation.out.size
    rest = builder.design.operations[operation.inputs[0]].out.size - first - size
    lanes = gcd(first, size, rest, builder.lanes_of(operation, 0))
    tap = builder.read(operation, lanes)
    if first:
        _, tap = _split_stream(builder, operation, "before", tap, first // lanes, (size + rest) // lanes, drop=0)
    if rest:
        tap, _ = _split_stream(builder, operation, "after", tap, size // lanes, rest // lanes, drop=1)
    return tap


def _split_stream(
    builder: Builder, operation: Operation, name: str, source: Tap, first: int, second: int, drop: int
) -> tuple[Tap, Tap]:
    """Split a stream into two parts; one of them is always accepted and never read."""
    taps = [builder.wires(f"{operation.name}_{name}_{index}", source.lanes, source.bits) for index in (0, 1)]
    ports = {"data_in_0": source.data, "data_in_0_valid": source.valid, "data_in_0_ready": source.ready}
    for index, tap in enumerate(taps):
        ready = "1'b1" if index == drop else tap.ready
        ports |= {f"data_out_{index}": tap.data, f"data_out_{index}_valid": tap.valid, f"data_out_{index}_ready": ready}
    builder.drop(taps[drop])
    parameters = {"DATA_WIDTH": source.width, "DATA_OUT_0_BEATS": first, "DATA_OUT_1_BEATS": second}
    builder.instance(f"{operation.name}_{name}_i", "stream_split", parameters, ports, operation.name)
    return taps[0], taps[1]


def _take_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    return (torch.arange(operation.out.size) + operation.options["first"],)


TAKE_KIND = Kind(
    "take",
    _take_node,
    _build_take,
    {"getitem": _lower_take, "select": _lower_take, "narrow": _lower_take},
    reach=_take_reach,
)
