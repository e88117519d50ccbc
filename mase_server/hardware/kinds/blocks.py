"""Conversions to formats with exponents, whose results are integers again: to mxint, blocks along the last dimension
that share an exponent (`mxint_cast`), and to minifloats with an exponent each, also in blocks (`minifloat_cast`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.blocks import BlockMinifloat
from mase_server.formats.fixed import FixedPoint
from mase_server.formats.minifloat import MinifloatDenorm, MinifloatIeee
from mase_server.formats.mxfp import MxInt
from mase_server.hardware.arithmetic.elements import blocks_format
from mase_server.hardware.arithmetic.floats import Floats
from mase_server.hardware.design import Constant, Design, Fold, Operation, Stream, find_divisors
from mase_server.hardware.functional import integer_blocks, integer_floats
from mase_server.hardware.held import NoHardware, Unrounded, Whole
from mase_server.hardware.kinds.entry import constant_stream
from mase_server.hardware.kinds.kind import Kind, one_by_one
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.kinds.take import take_elements
from mase_server.hardware.verilog import Parameters, Tap, stream_ports

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker

#: The formats with exponents that data may be in.
AnyMinifloat = MinifloatIeee | MinifloatDenorm | BlockMinifloat
WithExponents = MxInt | AnyMinifloat


def round_data(lowering: Lowering, node: fx.Node, source: str, format: WithExponents) -> Whole:
    """Round a stream to a format. NoHardware for wide streams, and for blocks that are no part of a sample's rows."""
    if format.rounding != "nearest":
        raise NoHardware(
            f"{format} has no hardware; rounding to the nearest has: {replace(format, rounding='nearest')}"
        )
    before = lowering.stream(source).format
    if before.width > _WIDEST:
        raise NoHardware(f"{format} of {before} has no hardware; round to {_WIDEST} bits or fewer first")
    if isinstance(format, MxInt):
        return _round_blocks(lowering, node, source, format)
    return _round_floats(lowering, node, source, format)


#: The most bits of a stream that is rounded.
_WIDEST = 32


def _round_blocks(lowering: Lowering, node: fx.Node, source: str, format: MxInt) -> Whole:
    stream = lowering.stream(source)
    block = _size_of_blocks(lowering, node, source, format)
    if format.width > stream.format.width:
        return Whole(source)  # mantissas hold every number as it is
    out = blocks_format(stream.format, format.width)
    return _in_blocks(lowering, node, source, ("blocks", out, block), {"mantissa": format.width})


def _round_floats(lowering: Lowering, node: fx.Node, source: str, format: AnyMinifloat) -> Whole:
    block = _size_of_blocks(lowering, node, source, format) if isinstance(format, BlockMinifloat) else 0
    before = lowering.stream(source).format
    floats = Floats.fitting(format, before)
    if longer := floats.missing(before):
        if (width := before.width + longer) > _WIDEST:
            raise NoHardware(
                f"the highest number of {format} lies between those of {before}, and a stream that holds it takes "
                f"{width} bits; up to {_WIDEST} have hardware: choose a bias that gives a higher one"
            )
        before = FixedPoint(width, before.fraction_width + longer)
        source = lowering.add(Unrounded("requantise", (source,), node, options={"relu": False}), before).operation
        floats = Floats.fitting(format, before)
    if floats.is_exact(before):
        return Whole(source)
    if block:
        return _in_blocks(lowering, node, source, ("floats", floats.out(before), block), {"floats": floats})
    options = {"floats": floats, "block": 0}
    return lowering.add(Unrounded("floats", (source,), node, options=options), floats.out(before))


def _size_of_blocks(lowering: Lowering, node: fx.Node, source: str, format: MxInt | BlockMinifloat) -> int:
    """The numbers of a block along the last dimension."""
    if lowering.layout(node).dim == len(lowering.facts[node].shape) - 1:
        raise NoHardware("its blocks go over the batch; give it a dimension of its own, the first one")
    *outer, block = format.block_size
    if any(size != 1 for size in outer):
        told = f"blocks of {format.block_size} have no hardware for data"
        raise NoHardware(f"{told}; use {block} along the last dimension")
    return min(block, lowering.stream(source).shape[-1])


def _in_blocks(
    lowering: Lowering, node: fx.Node, source: str, made: tuple[str, FixedPoint, int], options: Mapping[str, Any]
) -> Whole:
    """A stream whose rows are padded to whole blocks, rounded, and without the padding again.

    made: the kind, the format of its results and the size of its blocks.
    """
    kind, format, block = made
    stream = lowering.stream(source)
    *outer, length = stream.shape
    name = in_order(lowering, source, torch.arange(stream.size))
    shape = *outer, length + -length % block
    if shape != stream.shape:
        name = _fill_last_blocks(lowering, node, name, shape)
    out = Stream(format, shape)
    operation = Operation(node.name, kind, (name,), out, (node.name,), options={**options, "block": block})
    kept = torch.arange(out.size).reshape(shape)[..., :length].reshape(-1)
    return Whole(take_elements(lowering, lowering.insert(operation), kept, stream.shape, (node.name,)))


def _fill_last_blocks(lowering: Lowering, node: fx.Node, name: str, shape: tuple[int, ...]) -> str:
    """A stream with zeros behind each row."""
    before, (*outer, length) = lowering.stream(name), shape
    zeros = Constant(torch.zeros(*outer, length - before.shape[-1], dtype=torch.int64), before.format)
    behind = constant_stream(lowering, node, zeros, Stream(before.format, zeros.shape))
    options = {"dim": len(outer), "stacked": False, "rounds": prod(outer)}
    made = Operation(node.name, "concat", (name, behind), Stream(before.format, shape), (node.name,), options=options)
    return lowering.insert(made)


def _blocks_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """One beat a cycle, each of one block."""
    for lanes in find_divisors(operation.options["block"]):
        yield Fold(lanes, lanes, operation.out.size // lanes, 0)


def _blocks_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A result needs its whole block."""
    block = operation.options["block"]
    return ((torch.arange(operation.out.size) // block + 1) * block - 1,)


# Numbers that share a power of two: `mxint_cast`.


def _blocks_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    return maker.call(operation, integer_blocks, source, operation.options["mantissa"], operation.options["block"])


def _build_blocks(builder: Builder, operation: Operation) -> Tap:
    lanes = builder.folding.folds[operation.name].par_in
    return _build_cast(builder, operation, lanes, "mxint_cast", {"MANTISSA_WIDTH": operation.options["mantissa"]})


def _build_cast(builder: Builder, operation: Operation, lanes: int | None, module: str, more: Parameters) -> Tap:
    """lanes: None for those in which data arrive."""
    source = builder.read(operation, lanes)
    to = builder.wires(f"{operation.name}_cast", source.lanes, operation.out.format.width)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": source.bits,
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        "BLOCK_SIZE": operation.options["block"],
        **more,
    }
    builder.instance(f"{operation.name}_i", module, parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


BLOCKS_KIND = Kind("blocks", _blocks_node, _build_blocks, folds=_blocks_folds, reach=_blocks_reach)


# Numbers with an exponent each: `minifloat_cast`.


def _floats_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    floats: Floats = operation.options["floats"]
    numbers = floats.mantissa_width, *floats.tops, floats.span, _dropped_of(maker.design, operation)
    return maker.call(operation, integer_floats, source, numbers, operation.options["block"])


def _dropped_of(design: Design, operation: Operation) -> int:
    before = design.operations[operation.inputs[0]].out.format
    return before.fraction_width - operation.out.format.fraction_width


def _floats_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """With blocks their folds, else any pace."""
    return _blocks_folds(design, operation) if operation.options["block"] else iter(())


def _floats_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    return (_blocks_reach if operation.options["block"] else one_by_one)(design, operation)


def _build_floats(builder: Builder, operation: Operation) -> Tap:
    floats: Floats = operation.options["floats"]
    lanes = builder.folding.folds[operation.name].par_in if operation.options["block"] else None
    low, high = (max(each, 0) for each in floats.tops)
    parameters: Parameters = {
        "MANTISSA_WIDTH": floats.mantissa_width,
        "TOP_LOWEST": low,
        "TOP_HIGHEST": high,
        "SPAN": floats.span,
        "DROPPED": _dropped_of(builder.design, operation),
        "DATA_OUT_0_PRECISION_0": operation.out.format.width,
    }
    return _build_cast(builder, operation, lanes, "minifloat_cast", parameters)


FLOATS_KIND = Kind("floats", _floats_node, _build_floats, folds=_floats_folds, reach=_floats_reach, mixes=0)
