"""Tensors joined, along any dimension: their streams come one after the other, `stream_concat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Design, Operation, Stream, row_major
from mase_server.hardware.functional import joined, stacked
from mase_server.hardware.held import Held, Known, Later, NoHardware, Unrounded, Whole
from mase_server.hardware.kinds.constant import constant_stream
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.kinds.settings import image_order
from mase_server.hardware.samples import Layout
from mase_server.hardware.wiring import Tap

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _concat(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    parts = [each for each in _tensors(node) if prod(lowering.facts[each].shape)]
    if len(parts) == 1:
        lowering.same_places(node, parts[0])
        return lowering.held[parts[0]]
    layout, dim = _layout(lowering, parts), int(given.get("dim", 0)) % len(lowering.facts[node].shape)
    stacked = len(lowering.facts[node].shape) > len(lowering.facts[parts[0]].shape)
    after = replace(layout, dim=layout.dim + 1) if stacked and dim <= layout.dim else layout
    if dim == after.dim:
        raise NoHardware(f"it joins along dimension {dim}, which has the samples")
    lowering.stand(node, after)
    dim -= after.alone(lowering.facts[node].shape) and dim > after.dim
    options = {"dim": dim, "stacked": stacked}

    def joined(format: FixedPoint) -> Whole:
        names = tuple(_part(lowering, part, format, layout) for part in parts)
        rounds = _rounds([lowering.stream(name) for name in names], options)
        return lowering.add(Unrounded("concat", names, node, options={**options, "rounds": rounds}), format)

    common = _common(lowering, parts)
    return Later(joined) if common is None else joined(common)


def _rounds(sources: list[Stream], options: Mapping[str, Any]) -> int:
    """How often each part has its turn: images that are joined by channels stay images, pixel by pixel."""
    shape = sources[0].shape
    row_after_row = all(each.order is None for each in sources)
    if options["stacked"] or options["dim"] or len(shape) not in (2, 3) or row_after_row:
        return 1
    pixels = all(torch.equal(each.indices, image_order(each.shape)) for each in sources)
    return prod(shape[1:]) if pixels else 1


def _common(lowering: Lowering, parts: list[fx.Node]) -> FixedPoint | None:
    """The format that all parts are in already; None where there is none."""
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


def _tensors(node: fx.Node) -> list[fx.Node]:
    given: Any = node.args[0] if node.args else node.kwargs["tensors"]
    return list(given)


def _layout(lowering: Lowering, parts: list[fx.Node]) -> Layout:
    """Where the samples of all parts are."""
    found = {lowering.layout(part) for part in parts if not isinstance(lowering.held[part], Known | Constant)}
    if len(found) != 1:
        raise NoHardware("its parts have their samples in different dimensions")
    return found.pop()


def _part(lowering: Lowering, part: fx.Node, format: FixedPoint, layout: Layout) -> str:
    values = lowering.values(part)
    if values is None:
        return lowering.rounded(part, format)
    lowering.stand(part, layout)
    once = Constant(lowering.same_for_all(format.encode(values), part), format)
    return constant_stream(lowering, part, once, Stream(format, lowering.sample(part)))


def _order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Part after part, each as it comes, all of it at once or some in each round."""
    sources, dim = [lowering.stream(name) for name in unrounded.inputs], unrounded.options["dim"]
    rounds = unrounded.options["rounds"]
    sizes = [1 if unrounded.options["stacked"] else each.shape[dim] for each in sources]
    indices = torch.split(torch.arange(out.size).reshape(out.shape), sizes, dim)
    parts = zip(indices, sources, strict=True)
    flowing = torch.cat([part.reshape(-1)[each.indices].reshape(rounds, -1) for part, each in parts], 1)
    return replace(out, order=row_major(flowing.reshape(-1)))


def _node(maker: Maker, operation: Operation) -> fx.Node:
    function = stacked if operation.options["stacked"] else joined
    return maker.call(operation, function, maker.inputs(operation), operation.options["dim"] + 1)


def _build(builder: Builder, operation: Operation) -> Tap:
    """Sizes are those of a round."""
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


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """Elements of a part need those of it up to themselves; what comes before or after it needs what has come."""
    rounds, start, found = operation.options["rounds"], 0, []
    size = operation.out.size // rounds
    place, turn = torch.arange(size), torch.arange(rounds)[:, None]
    for name in operation.inputs:
        length = prod(design.operations[name].out.shape) // rounds
        found.append((turn * length + (place - start).clamp(-1, length - 1)).reshape(-1))
        start += length
    return tuple(found)


KIND = Kind("concat", _node, _build, {"cat": _concat, "concat": _concat, "stack": _concat}, _order, reach=_reach)
