"""Elements of a stream in any order, some twice, some never: `repeat_buffer` if whole blocks repeat, otherwise
`stream_gather`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Design, Fold, Operation, Stream, find_divisors, row_major
from mase_server.hardware.functional import move
from mase_server.hardware.held import Barred, Floating, Held, Later, Moved, NoHardware, Unrounded, Whole, node_of
from mase_server.hardware.kinds.kind import Kind, Settings, image_order
from mase_server.hardware.memories import words_of
from mase_server.hardware.verilog import Parameters, Tap, stream_ports

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


@dataclass(frozen=True, slots=True)
class Blocks:
    """A rearrangement that is the same for every block of a stream. size: elements of a block.  places: the block's
    elements that leave, in order."""

    size: int
    places: Tensor

    @property
    def repeats(self) -> int:
        """How often the whole block is repeated; 0 for any other rearrangement."""
        times = len(self.places) // self.size
        whole = times * self.size == len(self.places)
        return times if whole and torch.equal(self.places, torch.arange(self.size).repeat(times)) else 0

    def fits(self, lanes: int) -> bool:
        """Do beats of `lanes` elements stay together?"""
        if self.size % lanes or len(self.places) % lanes:
            return False
        beats = self.places.reshape(-1, lanes)
        return bool((beats[:, 0] % lanes == 0).all()) and torch.equal(
            beats - beats[:, :1], torch.arange(lanes).expand_as(beats)
        )


def arrange_elements(
    lowering: Lowering,
    name: str,
    places: Tensor,
    shape: tuple[int, ...],
    order: Tensor | None = None,
    nodes: tuple[str, ...] = (),
) -> str:
    """The operation that gives elements of a stream in another shape and order.

    places: for each row-major index of the new shape, the old index of its element; order: the row-major index of
    each element in the order of flow, None for row-major.  nodes: the graph's nodes that it implements.
    """
    before = lowering.stream(name)
    out = Stream(before.format, shape, None if order is None else row_major(order))
    if before.shape == shape and row_major(places) is None and before.same_order(out):
        return name
    position = torch.empty(before.size, dtype=torch.int64)
    position[before.indices] = torch.arange(before.size)
    blocks = _find_blocks(position[places[out.indices]], before.size)
    made = Operation(nodes[0] if nodes else f"{name}_gather", "gather", (name,), out, nodes)
    if torch.equal(blocks.places, torch.arange(blocks.size)):
        return lowering.insert(_as_move(made, places))
    options = {"blocks": blocks, "places": places}
    known = (each.name for each in lowering.operations.values() if _is_same_operation(each, made, places))
    return next(known, None) or lowering.insert(replace(made, options=options))


def _is_same_operation(known: Operation, made: Operation, places: Tensor) -> bool:
    """Does an operation give the same as another one?"""
    alike = (known.kind, known.inputs, known.out.shape) == (made.kind, made.inputs, made.out.shape)
    return alike and known.out.same_order(made.out) and torch.equal(known.options["places"], places)


def _as_move(made: Operation, places: Tensor) -> Operation:
    """The same operation as a move, if only the indices of elements change."""
    return replace(made, kind="move", options={"places": places})


def _find_blocks(flowing: Tensor, size: int) -> Blocks:
    """The smallest blocks. flowing: for each element that leaves, its position among the `size` that arrive."""
    for count in reversed(find_divisors(gcd(size, len(flowing)))):
        rows = flowing.reshape(count, -1) - torch.arange(0, size, size // count)[:, None]
        first = rows[0]
        inside = bool((first >= 0).all() and (first < size // count).all())
        if inside and torch.equal(rows, first.expand_as(rows)):
            return Blocks(size // count, first)
    raise AssertionError("a whole sample is a block")


def _lower_gather(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Repeat, expand, roll, index and the like: running the node on indices shows how it moves elements."""
    source = node_of(given["data_in_0"])
    return _gather_from(lowering, node, source, lowering.places(node, source))


def _lower_pixels(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Pixels that are repeated, or that become channels: the result is an image, pixel by pixel."""
    source, mode = node_of(given["data_in_0"]), Settings.of(lowering, node, given).get("mode", "nearest")
    if not mode.startswith("nearest"):
        raise NoHardware(f"mode {mode!r} mixes pixels; nearest has hardware")
    places = lowering.places(node, source, torch.float64)
    return _gather_from(lowering, node, source, places, image_order(lowering.sample(node)))


def _gather_from(
    lowering: Lowering, node: fx.Node, source: fx.Node, places: Tensor, order: Tensor | None = None
) -> Held:
    def made(name: str) -> Whole:
        return Whole(arrange_elements(lowering, name, places, lowering.sample(node), order, (node.name,)))

    held = lowering.held[source]
    if isinstance(held, Barred):
        return Barred(made(held.flags).operation)
    if isinstance(held, Unrounded | Later | Floating | Moved):
        return Later(lambda format: made(lowering.rounded(source, format)))
    return made(lowering.whole(source))


def _gather_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    places = maker.buffer(f"{operation.name}_places", operation.options["places"])
    return maker.call(operation, move, source, places, operation.out.shape)


def _gather_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    blocks: Blocks = operation.options["blocks"]
    longest = max(operation.out.size, prod(design.operations[operation.inputs[0]].out.shape))
    for lanes in find_divisors(gcd(blocks.size, len(blocks.places))):
        if blocks.fits(lanes):
            yield Fold(lanes, lanes, longest // lanes, 0)


def _build_gather(builder: Builder, operation: Operation) -> Tap:
    lanes, blocks = builder.folding.folds[operation.name].par_in, operation.options["blocks"]
    source = builder.read(operation, lanes)
    to = builder.wires(operation.name, lanes, operation.out.format.width)
    depth, count = blocks.size // lanes, len(blocks.places) // lanes
    parameters: Parameters = {"DATA_WIDTH": to.width}
    if blocks.repeats:
        module, parameters = "repeat_buffer", parameters | {"LENGTH": depth, "COUNT": blocks.repeats}
    else:
        width = max(1, (depth - 1).bit_length())
        words = words_of(blocks.places.reshape(-1, lanes)[:, :1] // lanes, width)
        file = builder.file(operation, "places", width, words)
        module, parameters = "stream_gather", parameters | {"DEPTH": depth, "COUNT": count, "FILE": file}
    builder.instance(f"{operation.name}_i", module, parameters, stream_ports(source, to), operation.name)
    return to


def _gather_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A whole block arrives before any of it leaves; if blocks are only repeated, an element needs just itself."""
    blocks: Blocks = operation.options["blocks"]
    place = torch.arange(operation.out.size)
    block = place // len(blocks.places) * blocks.size
    return (block + place % blocks.size if blocks.repeats else block + blocks.size - 1,)


_SERVED = ("expand", "repeat", "repeat_interleave", "tile", "flip", "roll", "index_select", "expand_as")

_IMAGES = ("interpolate", "upsample", "upsample_nearest", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle")

GATHER_KIND = Kind(
    "gather",
    _gather_node,
    _build_gather,
    {**dict.fromkeys(_SERVED, _lower_gather), **dict.fromkeys(_IMAGES, _lower_pixels)},
    folds=_gather_folds,
    reach=_gather_reach,
)
