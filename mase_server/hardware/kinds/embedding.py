"""Rows of a table by their index: `embedding`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folds import Fold, divisors
from mase_server.hardware.functional import rows_of
from mase_server.hardware.held import Floating, Held, Later, Moved, NoHardware, Unrounded, node_of
from mase_server.hardware.indices import as_input
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.memories import Words
from mase_server.hardware.wiring import Parameters, Tap, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _embedding(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    indices = node_of(given["data_in_0"])
    weight = lowering.constant(node_of(given["weight"]))
    if not isinstance(lowering.held[indices], Floating | Moved | Later):
        raise NoHardware(
            "its indices are computed; those that are an input of the model, or a part of one, have hardware"
        )
    table = Unrounded("embedding", (as_input(lowering, indices),), node, {"weight": weight})
    return lowering.add(table, weight.format)


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, _ = maker.constant(operation, "weight")
    return maker.call(operation, rows_of, source, weight)


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    for lanes in divisors(operation.out.shape[-1]):
        yield Fold(1, lanes, operation.out.size // lanes, 0)


def _build(builder: Builder, operation: Operation) -> Tap:
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
    builder.instance(f"{operation.name}_i", "embedding", parameters, streams(source, to), operation.name)
    return builder.skid(operation, to)


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    return (torch.arange(operation.out.size) // operation.out.shape[-1],)


KIND = Kind("embedding", _node, _build, {"embedding": _embedding}, row_major, _folds, _reach, mixes=0)
