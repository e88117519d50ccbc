"""Streams one after the other: `stream_concat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Constant, Design, Operation, Stream
from mase_server.hardware.functional import joined
from mase_server.hardware.held import Held, Known, NoHardware, Unrounded, Whole
from mase_server.hardware.kinds.constant import constant_stream
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.wiring import Tap

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _concat(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    parts = list(node.args[0])  # type: ignore[arg-type]
    dim = int(given.get("dim", 0)) % len(lowering.facts[node].shape)
    if dim != 1:
        raise NoHardware(f"it joins along dimension {dim}; along 1, after the batch, there is hardware")
    formats = {
        lowering.stream(held.operation).format for held in map(lowering.held.get, parts) if isinstance(held, Whole)
    }
    if len(formats) != 1:
        raise NoHardware(f"its parts are in {len(formats)} formats; quantise all of them to one")
    names = tuple(_part(lowering, part, formats.copy().pop()) for part in parts)
    return Unrounded("concat", names, node)


def _part(lowering: Lowering, part: fx.Node, format: Any) -> str:
    held, shape = lowering.held[part], tuple(lowering.facts[part].shape[1:])
    if isinstance(held, Known):
        held = Constant(format.encode(held.values), format)
    if isinstance(held, Constant):
        if not torch.equal(held.integers, held.integers[:1].expand_as(held.integers)):
            raise NoHardware(f"{part.name} differs from sample to sample")
        once = Constant(held.integers[:1], held.format)
        return constant_stream(lowering, part, once, Stream(held.format, shape))
    name = lowering.whole(part)
    return in_order(lowering, name, torch.arange(lowering.stream(name).size))


def _order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    formats = {lowering.stream(name).format for name in unrounded.inputs}
    if formats != {out.format}:
        raise NoHardware(f"its parts are rounded to {', '.join(map(str, formats))}, and it to {out.format}; use one")
    return replace(out, order=None)


def _node(maker: Maker, operation: Operation) -> fx.Node:
    return maker.call(operation, joined, maker.inputs(operation), 1)


def _build(builder: Builder, operation: Operation) -> Tap:
    sizes = [builder.design.operations[name].out.size for name in operation.inputs]
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
    """Elements of a part need those of it up to themselves; what comes before or after it needs none, or all."""
    size, start, found = operation.out.size, 0, []
    for name in operation.inputs:
        length = prod(design.operations[name].out.shape)
        found.append((torch.arange(size) - start).clamp(-1, length - 1))
        start += length
    return tuple(found)


KIND = Kind("concat", _node, _build, {"cat": _concat}, _order, reach=_reach)
