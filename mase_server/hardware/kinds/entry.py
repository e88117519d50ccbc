"""Inputs of the model, which are ports of the top module, and constant streams: `constant_stream`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Constant, Design, Fold, Operation, Stream, find_divisors
from mase_server.hardware.functional import repeated, rows_of
from mase_server.hardware.held import Floating, Held, Later, Moved, NoHardware, Unrounded, node_of
from mase_server.hardware.indices import as_input
from mase_server.hardware.kinds.conv2d import by_pixels
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.memories import Words, words_of
from mase_server.hardware.verilog import Parameters, Tap, name_tap, stream_ports
from mase_server.ir.number_formats import operator_of

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


_IMAGES = frozenset(
    {"conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"}
)
_ROWS = frozenset(
    {"conv1d", "conv_transpose1d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d"}
)


def _entry_node(maker: Maker, operation: Operation) -> fx.Node:
    return maker.graph.placeholder(operation.name)


def _build_entry(builder: Builder, operation: Operation) -> Tap:
    """The port, as wide as its first reader wants it."""
    name = f"data_in_{len(builder.made.inputs)}"
    lanes, bits = builder.lanes_wanted(operation), operation.out.format.width
    tap = name_tap(name, lanes, bits)
    builder.made.inputs.append(tap)
    return tap


def _entry_order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Images flow pixel by pixel if the model applies windows to them; everything else is row-major."""
    windowed = {2: _ROWS, 3: _IMAGES}.get(len(out.shape), frozenset())
    looked_at = any(operator_of(node, lowering.model) in windowed for node in lowering.graph.nodes)
    return by_pixels(lowering, unrounded, out) if looked_at else out


INPUT_KIND = Kind("input", _entry_node, _build_entry, order=_entry_order)


# Constant streams: a tensor that is the same for every sample, `constant_stream`.


def constant_stream(lowering: Lowering, node: fx.Node, constant: Constant, like: Stream) -> str:
    """The operation that gives a constant in the shape and order of another stream. NoHardware if it differs from
    sample to sample."""
    given = constant.integers
    if given.dim() > len(like.shape):
        if given.shape[0] != 1:
            raise NoHardware(f"{node.name} has {given.shape[0]} samples of its own; it must be one for all")
        given = given[0]
    values = torch.broadcast_to(given, like.shape)
    out = Stream(constant.format, like.shape, like.order)
    constants = {"values": Constant(values.contiguous(), constant.format)}
    return lowering.insert(Operation(node.name, "constant", (), out, (node.name,), constants))


def _constant_node(maker: Maker, operation: Operation) -> fx.Node:
    batch = maker.graph.call_method("size", (next(iter(maker.nodes.values())), 0))
    values = maker.buffer(f"{operation.name}_values", operation.constants["values"].integers)
    return maker.call(operation, repeated, values, batch)


def _build_constant(builder: Builder, operation: Operation) -> Tap:
    out, lanes = operation.out, builder.lanes_wanted(operation)
    to = builder.wires(operation.name, lanes, out.format.width)
    words = words_of(out.flowing(operation.constants["values"].integers[None]).reshape(-1, lanes), out.format.width)
    parameters: Parameters = {
        "DATA_WIDTH": to.width,
        "DEPTH": len(words),
        "FILE": builder.memory(operation, "values", lanes, words),
    }
    ports = {"data_out_0": to.data, "data_out_0_valid": to.valid, "data_out_0_ready": to.ready}
    builder.instance(f"{operation.name}_i", "constant_stream", parameters, ports, operation.name)
    return to


def _constant_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    return ()


CONSTANT_KIND = Kind("constant", _constant_node, _build_constant, reach=_constant_reach)


# Rows of a table by their index: `embedding`.


def _lower_embedding(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    indices = node_of(given["data_in_0"])
    weight = lowering.constant(node_of(given["weight"]))
    if not isinstance(lowering.held[indices], Floating | Moved | Later):
        raise NoHardware(
            "its indices are computed; only an input of the model, or a part of one, has hardware as an index"
        )
    table = Unrounded("embedding", (as_input(lowering, indices),), node, {"weight": weight})
    return lowering.add(table, weight.format)


def _embedding_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, _ = maker.constant(operation, "weight")
    return maker.call(operation, rows_of, source, weight)


def _embedding_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    for lanes in find_divisors(operation.out.shape[-1]):
        yield Fold(1, lanes, operation.out.size // lanes, 0)


def _build_embedding(builder: Builder, operation: Operation) -> Tap:
    fold, out = builder.folding.folds[operation.name], operation.out
    weight, width = operation.constants["weight"], out.format.width
    source = builder.read(operation, 1)
    to = builder.wires(f"{operation.name}_cast", fold.par_out, width)
    words = Words(prod(weight.shape) // fold.par_out, width, lambda: weight.integers.reshape(-1, fold.par_out))
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": source.bits,
        "NUM_EMBEDDINGS": weight.shape[0],
        "DATA_OUT_0_PRECISION_0": width,
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": weight.shape[1],
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
        "FILE": builder.memory(operation, "weight", fold.par_out, words),
    }
    builder.instance(f"{operation.name}_i", "embedding", parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


def _embedding_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    return (torch.arange(operation.out.size) // operation.out.shape[-1],)


EMBEDDING_KIND = Kind(
    "embedding",
    _embedding_node,
    _build_embedding,
    {"embedding": _lower_embedding},
    row_major,
    _embedding_folds,
    _embedding_reach,
    mixes=0,
)
