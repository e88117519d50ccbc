"""Elements under another shape or in another order of dimensions: no hardware, whoever reads them minds the order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.hardware.design import Operation, Stream, row_major
from mase_server.hardware.functional import move
from mase_server.hardware.held import Barred, Floating, Held, Later, Moved, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.wiring import Tap

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _move(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
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


def _same(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    if lowering.facts[node].dtype not in ("float32", "float64", lowering.facts[source].dtype):
        raise NoHardware(f"it makes {lowering.facts[node].dtype} of its input, whose roundings no component has")
    if not lowering.facts[source].dtype.startswith("float"):
        raise NoHardware(f"{source.name} has values of {lowering.facts[source].dtype}, which depend on the inputs")
    lowering.same_places(node, source)
    return lowering.held[source]


def _order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    return lowering.stream(unrounded.inputs[0]).moved(unrounded.options["places"], out.shape)


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    places = maker.buffer(f"{operation.name}_places", operation.options["places"])
    return maker.call(operation, move, source, places, operation.out.shape)


def _build(builder: Builder, operation: Operation) -> Tap:
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

KIND = Kind("move", _node, _build, {**dict.fromkeys(_MOVES, _move), **dict.fromkeys(_SAME, _same)}, _order)
