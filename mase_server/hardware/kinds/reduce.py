"""Means, sums and the largest over dimensions of a sample: `fixed_reduce`, `fixed_mean`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folds import Fold, divisors, products_of_mean
from mase_server.hardware.functional import integer_reduce
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.kind import Kind, Rule, row_major
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.samples import Layout
from mase_server.hardware.wiring import Parameters, Tap, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _rule(function: str) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        source = node_of(given["data_in_0"])
        return reduced(lowering, node, source, function, _dims(lowering, node, source))

    return rule


def reduced(
    lowering: Lowering, node: fx.Node, source: fx.Node, function: str, over: tuple[tuple[int, ...], bool]
) -> Held:
    """What a node gives that is the mean, the sum or the largest of another one's values.

    over: the dimensions, and whether they stay with one element.
    """
    name, (dims, keeps) = lowering.whole(source), over
    layout, shape = lowering.layout(source), lowering.facts[source].shape
    if layout.dim in dims:
        raise NoHardware(f"it goes over dimension {layout.dim}, which has the samples")
    before = 0 if keeps else sum(dim < layout.dim for dim in dims)
    lowering.stand(node, Layout(layout.samples, layout.dim - before, layout.inner))
    alone = layout.alone(shape)
    inner = tuple(dim - (alone and dim > layout.dim) for dim in dims)
    name, channels = grouped(lowering, name, inner)
    options = {"function": function, "dims": inner, "channels": channels}
    unrounded = Unrounded("reduce", (name,), node, options=options)
    return lowering.add(unrounded, lowering.stream(name).format) if function == "max" else unrounded


def largest_part(lowering: Lowering, node: fx.Node, call: fx.Node) -> Held:
    """One of the two results of a maximum over a dimension. NoHardware for the places of the largest."""
    if node.args[1] not in (0, "values"):
        raise NoHardware("where the largest is has no hardware; the largest itself has")
    source = call.all_input_nodes[0]
    return reduced(lowering, node, source, "max", _dims(lowering, call, source))


def _dims(lowering: Lowering, node: fx.Node, source: fx.Node) -> tuple[tuple[int, ...], bool]:
    """The dimensions that it goes over, and whether they stay with one element. NoHardware for the whole batch."""
    rank = len(lowering.facts[source].shape)
    given = dict(zip(("input", "dim", "keepdim"), node.args, strict=False)) | node.kwargs
    dim: Any = given.get("dim", given.get("axis"))
    if dim is None or given.get("dtype") not in (None, torch.float32):
        raise NoHardware("it goes over the whole batch; give the dimensions")
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    return tuple(sorted(each % rank for each in dims)), bool(given.get("keepdim", False))


def grouped(lowering: Lowering, name: str, dims: tuple[int, ...]) -> tuple[str, int]:
    """The stream with what is taken together behind one another, and how many elements stand between two of those.

    As it comes, if that will do.
    """
    stream = lowering.stream(name)
    places, rank = torch.arange(stream.size).reshape(stream.shape), len(stream.shape)
    kept = [dim for dim in range(rank) if dim not in dims]
    ways = [((*kept, *dims), 1), ((*dims, *kept), prod(stream.shape[dim] for dim in kept))]
    if dims == tuple(range(dims[0], dims[0] + len(dims))):
        ways.insert(0, (tuple(range(rank)), prod(stream.shape[dims[-1] + 1 :])))
    orders = [(places.permute(way).reshape(-1), channels) for way, channels in ways]
    order, channels = next((each for each in orders if torch.equal(each[0], stream.indices)), orders[0])
    return in_order(lowering, name, order), channels


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,), options = maker.inputs(operation), operation.options
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(
        operation, integer_reduce, source, options["function"], options["dims"], operation.out.shape, formats
    )


def _count(design: Design, operation: Operation) -> int:
    """How many elements make one."""
    return design.operations[operation.inputs[0]].out.size // operation.out.size


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    products = products_of_mean(_count(design, operation)) if operation.options["function"] == "mean" else 0
    for lanes in divisors(operation.options["channels"]):
        cycles = design.operations[operation.inputs[0]].out.size // lanes
        yield Fold(lanes, lanes, cycles, products * lanes)


def _build(builder: Builder, operation: Operation) -> Tap:
    lanes, out = builder.folding.folds[operation.name].par_in, operation.out.format
    source, before = builder.read(operation, lanes), builder.design.operations[operation.inputs[0]].out.format
    count, largest = _count(builder.design, operation), operation.options["function"] == "max"
    bits = before.width if largest else before.width + (count - 1).bit_length()
    reduced = builder.wires(f"{operation.name}_reduced", lanes, bits)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "BEATS": operation.options["channels"] // lanes,
        "COUNT": count,
        "MAXIMUM": int(largest),
    }
    builder.instance(f"{operation.name}_i", "fixed_reduce", parameters, streams(source, reduced), operation.name)
    if largest:
        return builder.skid(operation, reduced)
    to = builder.wires(f"{operation.name}_cast", lanes, out.width)
    parameters = {
        "DATA_IN_0_PRECISION_0": bits,
        "DATA_IN_0_PRECISION_1": before.fraction_width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        **precision("DATA_OUT_0", out),
        "DIVISOR": count if operation.options["function"] == "mean" else 1,
    }
    builder.instance(f"{operation.name}_mean", "fixed_mean", parameters, streams(reduced, to), operation.name)
    return builder.skid(operation, to)


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """All that make one."""
    channels, count = operation.options["channels"], _count(design, operation)
    place = torch.arange(operation.out.size)
    return (place // channels * (channels * count) + channels * (count - 1) + place % channels,)


#: Operators that give the largest of a dimension, and where it is.
LARGEST = frozenset({"max"})

_RULES = {"mean": _rule("mean"), "sum": _rule("sum"), "amax": _rule("max")}

KIND = Kind("reduce", _node, _build, _RULES, row_major, _folds, _reach)
