"""Tensors joined along any dimension: their streams follow each other, `stream_concat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Design, Operation, Stream, row_major
from mase_server.hardware.functional import joined, move, stacked
from mase_server.hardware.held import (
    Barred,
    Floating,
    Held,
    Known,
    Later,
    Layout,
    Moved,
    NoHardware,
    Unrounded,
    Whole,
    node_of,
)
from mase_server.hardware.kinds.entry import constant_stream
from mase_server.hardware.kinds.kind import Kind, image_order
from mase_server.hardware.verilog import Tap

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _lower_concat(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    parts = [each for each in _joined_tensors(node) if prod(lowering.facts[each].shape)]
    if len(parts) == 1:
        lowering.same_places(node, parts[0])
        return lowering.held[parts[0]]
    layout, dim = _common_layout(lowering, parts), int(given.get("dim", 0)) % len(lowering.facts[node].shape)
    stacked = len(lowering.facts[node].shape) > len(lowering.facts[parts[0]].shape)
    after = replace(layout, dim=layout.dim + 1) if stacked and dim <= layout.dim else layout
    if dim == after.dim:
        raise NoHardware(f"it joins along dimension {dim}, which has the samples")
    lowering.stand(node, after)
    dim -= after.alone(lowering.facts[node].shape) and dim > after.dim
    options = {"dim": dim, "stacked": stacked}

    def joined(format: FixedPoint) -> Whole:
        names = tuple(_part_stream(lowering, part, format, layout) for part in parts)
        rounds = _count_rounds([lowering.stream(name) for name in names], options)
        return lowering.add(Unrounded("concat", names, node, options={**options, "rounds": rounds}), format)

    common = _common_format(lowering, parts)
    return Later(joined) if common is None else joined(common)


def _count_rounds(sources: list[Stream], options: Mapping[str, Any]) -> int:
    """The number of rounds in which the parts take turns: images joined by channels stay images, pixel by pixel."""
    shape = sources[0].shape
    row_after_row = all(each.order is None for each in sources)
    if options["stacked"] or options["dim"] or len(shape) not in (2, 3) or row_after_row:
        return 1
    pixels = all(torch.equal(each.indices, image_order(each.shape)) for each in sources)
    return prod(shape[1:]) if pixels else 1


def _common_format(lowering: Lowering, parts: list[fx.Node]) -> FixedPoint | None:
    """The format that all parts are already in; None if there is none."""
    streams = [part for part in parts if lowering.values(part) is None]
    if not all(isinstance(lowering.held[part], Whole) for part in streams):
        return None
    formats = {lowering.stream(lowering.whole(part)).format for part in streams}
    constants = [values for values in map(lowering.values, parts) if values is not None]
    format = formats.pop() if len(formats) == 1 else None
    exact = format is not None and all(
        torch.equal(format.decode(format.encode(each)), each.double()) for each in constants
    )
    return format if exact else None


def _joined_tensors(node: fx.Node) -> list[fx.Node]:
    given: Any = node.args[0] if node.args else node.kwargs["tensors"]
    return list(given)


def _common_layout(lowering: Lowering, parts: list[fx.Node]) -> Layout:
    """The layout of samples that all parts share."""
    found = {lowering.layout(part) for part in parts if not isinstance(lowering.held[part], Known | Constant)}
    if len(found) != 1:
        raise NoHardware("its parts have their samples in different dimensions")
    return found.pop()


def _part_stream(lowering: Lowering, part: fx.Node, format: FixedPoint, layout: Layout) -> str:
    values = lowering.values(part)
    if values is None:
        return lowering.rounded(part, format)
    lowering.stand(part, layout)
    once = Constant(lowering.same_for_all(format.encode(values), part), format)
    return constant_stream(lowering, part, once, Stream(format, lowering.sample(part)))


def _concat_order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Part after part, each in its own order, either whole or a share of it in each round."""
    sources, dim = [lowering.stream(name) for name in unrounded.inputs], unrounded.options["dim"]
    rounds = unrounded.options["rounds"]
    sizes = [1 if unrounded.options["stacked"] else each.shape[dim] for each in sources]
    indices = torch.split(torch.arange(out.size).reshape(out.shape), sizes, dim)
    parts = zip(indices, sources, strict=True)
    flowing = torch.cat([part.reshape(-1)[each.indices].reshape(rounds, -1) for part, each in parts], 1)
    return replace(out, order=row_major(flowing.reshape(-1)))


def _concat_node(maker: Maker, operation: Operation) -> fx.Node:
    function = stacked if operation.options["stacked"] else joined
    return maker.call(operation, function, maker.inputs(operation), operation.options["dim"] + 1)


def _build_concat(builder: Builder, operation: Operation) -> Tap:
    """Build the chain of `stream_concat`; sizes are those of one round."""
    rounds = operation.options["rounds"]
    sizes = [builder.design.operations[name].out.size // rounds for name in operation.inputs]
    lanes = gcd(*sizes, builder.lanes_wanted(operation))
    taps = [builder.waiting(operation, index, builder.read(operation, lanes, index)) for index in range(len(sizes))]
    made, beats = taps[0], sizes[0] // lanes
    for index, tap in enumerate(taps[1:], 1):
        name = operation.name if index == len(taps) - 1 else f"{operation.name}_part_{index}"
        to = builder.wires(name, lanes, tap.bits)
        parameters = {"DATA_WIDTH": tap.width, "DATA_IN_0_BEATS": beats, "DATA_IN_1_BEATS": sizes[index] // lanes}
        builder.instance(f"{name}_i", "stream_concat", parameters, builder.pair([made, tap], to), operation.name)
        made, beats = to, beats + sizes[index] // lanes
    return made


def _concat_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """An element of a part needs that part up to itself; elements of other parts need what of it precedes them."""
    rounds, start, found = operation.options["rounds"], 0, []
    size = operation.out.size // rounds
    place, turn = torch.arange(size), torch.arange(rounds)[:, None]
    for name in operation.inputs:
        length = prod(design.operations[name].out.shape) // rounds
        found.append((turn * length + (place - start).clamp(-1, length - 1)).reshape(-1))
        start += length
    return tuple(found)


CONCAT_KIND = Kind(
    "concat",
    _concat_node,
    _build_concat,
    {"cat": _lower_concat, "concat": _lower_concat, "stack": _lower_concat},
    _concat_order,
    reach=_concat_reach,
)


# Elements in another shape or another order of dimensions: no hardware, because readers take the order into
# account.


def _lower_move(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    held, places = lowering.held[source], lowering.places(node, source)
    if lowering.sample(source) == lowering.sample(node) and row_major(places) is None:
        return held
    moved = Unrounded("move", (), node, options={"places": places})
    if isinstance(held, Floating | Moved):
        return Moved(held, moved)
    if isinstance(held, Unrounded | Later):
        return Later(lambda format: lowering.add(replace(moved, inputs=(lowering.rounded(source, format),)), format))
    name = held.flags if isinstance(held, Barred) else lowering.whole(source)
    made = lowering.add(replace(moved, inputs=(name,)), lowering.stream(name).format)
    return Barred(made.operation) if isinstance(held, Barred) else made


def _lower_identity(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    if lowering.facts[node].dtype not in ("float32", "float64", lowering.facts[source].dtype):
        raise NoHardware(f"it converts its input to {lowering.facts[node].dtype}, whose rounding no component has")
    if not lowering.facts[source].dtype.startswith("float"):
        raise NoHardware(f"{source.name} has values of {lowering.facts[source].dtype}, which depend on the inputs")
    lowering.same_places(node, source)
    return lowering.held[source]


def _move_order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    return lowering.stream(unrounded.inputs[0]).moved(unrounded.options["places"], out.shape)


def _move_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    places = maker.buffer(f"{operation.name}_places", operation.options["places"])
    return maker.call(operation, move, source, places, operation.out.shape)


def _build_move(builder: Builder, operation: Operation) -> Tap:
    return builder.read(operation)


_MOVES = (
    "flatten",
    "unflatten",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "movedim",
    "t",
    "view_as",
    "reshape_as",
    "swapaxes",
)
_SAME = (
    "dropout", "dropout2d", "identity", "contiguous", "detach", "clone", "to", "float", "double", "type_as", "type",
    "cast", "cpu", "requires_grad_",
)  # fmt: skip

MOVE_KIND = Kind(
    "move",
    _move_node,
    _build_move,
    {**dict.fromkeys(_MOVES, _lower_move), **dict.fromkeys(_SAME, _lower_identity)},
    _move_order,
)
