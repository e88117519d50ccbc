"""A border around images: `image_padding`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Design, Operation, Stream, row_major
from mase_server.hardware.held import Held, Later, NoHardware, Whole, node_of
from mase_server.hardware.kinds.images import pixels_of_stream
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.kinds.settings import image_order, image_size
from mase_server.hardware.wiring import Parameters, Tap, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker

#: Elements left, right, above and below.
Border = tuple[int, int, int, int]


def _pad(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    border = _border(lowering, node, source)
    held = lowering.held[source]
    if isinstance(held, Whole):
        return Whole(padded(lowering, held.operation, border, nodes=(node.name,)))

    def finish(format: FixedPoint) -> Whole:
        return Whole(padded(lowering, lowering.rounded(source, format), border, nodes=(node.name,)))

    return Later(finish)


def _border(lowering: Lowering, node: fx.Node, source: fx.Node) -> Border:
    """What the node does to numbers from 1 on says it. NoHardware for other borders than zeros around an image."""
    shape = lowering.facts[source].shape
    numbers = torch.arange(1, prod(shape) + 1).reshape(shape)
    known = {each: lowering.values(each) for each in node.all_input_nodes if each is not source}
    padded = lowering.evaluated(
        node, {source: numbers, **{each: value for each, value in known.items() if value is not None}}
    )
    first = (padded == 1).nonzero()
    before = first[0].tolist() if len(first) else []
    inside = tuple(slice(start, start + size) for start, size in zip(before, shape, strict=False))
    if not before or not torch.equal(padded[inside], numbers):
        raise NoHardware(
            f"what it makes of {list(shape)} is not all of it with a border; zeros around it have hardware"
        )
    padded[inside] = 0
    if padded.any():
        raise NoHardware("its border is not zero; zeros have hardware")
    after = [size - start - length for size, start, length in zip(padded.shape, before, shape, strict=True)]
    rows = (before[2], after[2]) if len(shape) == 4 else (0, 0)
    if sum(before) + sum(after) != sum(rows) + before[-1] + after[-1] or len(shape) not in (3, 4):
        raise NoHardware("it pads other dimensions than the rows and columns of an image")
    return before[-1], after[-1], *rows


def padded(lowering: Lowering, name: str, border: Border, *, lowest: bool = False, nodes: tuple[str, ...] = ()) -> str:
    """The operation that gives an image with a border. lowest: of the lowest integers, which no maximum takes."""
    source = pixels_of_stream(lowering, name)
    before = lowering.stream(source)
    left, right, top, bottom = border
    channels, rows, columns = image_size(before.shape)
    size = channels, rows + top + bottom, columns + left + right
    shape = size if len(before.shape) == 3 else (channels, size[2])
    out = Stream(before.format, shape, row_major(image_order(shape)))
    options = {"border": border, "lowest": lowest}
    return lowering.insert(
        Operation(nodes[0] if nodes else f"{name}_pad", "pad", (source,), out, nodes, options=options)
    )


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    left, right, top, bottom = operation.options["border"]
    border = (left, right) if len(operation.out.shape) == 2 else (left, right, top, bottom)
    fill = operation.out.format.integers[0] if operation.options["lowest"] else 0
    return maker.call(operation, functional.pad, source, border, "constant", fill)


def _build(builder: Builder, operation: Operation) -> Tap:
    before = builder.design.operations[operation.inputs[0]].out
    channels, rows, columns = image_size(before.shape)
    lanes = builder.lanes_wanted(operation)
    source = builder.read(operation, lanes if channels % lanes == 0 else 1)
    to = builder.wires(f"{operation.name}_bordered", source.lanes, source.bits)
    left, right, top, bottom = operation.options["border"]
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": source.bits,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": channels,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": columns,
        "DATA_IN_0_TENSOR_SIZE_DIM_2": rows,
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        **{"LEFT": left, "RIGHT": right, "TOP": top, "BOTTOM": bottom, "LOWEST": int(operation.options["lowest"])},
    }
    builder.instance(f"{operation.name}_i", "image_padding", parameters, streams(source, to), operation.name)
    return builder.skid(operation, to)


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """Pixels need themselves; those of the border what came before them, and the first one, with which all begins."""
    before = design.operations[operation.inputs[0]].out
    channels, rows, columns = image_size(before.shape)
    left, _, top, _ = operation.options["border"]
    _, height, width = image_size(operation.out.shape)
    row, column = torch.arange(height)[:, None] - top, torch.arange(width) - left
    last = (row * columns + column.clamp(-1, columns - 1)).clamp(0, rows * columns - 1)
    return ((last.reshape(-1, 1) * channels + torch.arange(channels)).reshape(-1),)


KIND = Kind("pad", _node, _build, {"pad": _pad}, reach=_reach)
