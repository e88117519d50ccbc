"""Products of two streams of matrices: `fixed_matmul`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Constant, Design, Operation
from mase_server.hardware.folds import Fold, divisors
from mase_server.hardware.functional import integer_matmul
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.gather import arranged
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.kinds.linear import times_constant
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.wiring import Parameters, Tap, precision

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _matmul(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    operands = [node_of(given[key]) for key in ("data_in_0", "data_in_1")]
    other = lowering.held[operands[1]]
    if isinstance(other, Constant) and len(other.shape) == 2:
        return times_constant(lowering, node, operands[0], other)
    names = [lowering.whole(each) for each in operands]
    first, second = (lowering.stream(name).shape for name in names)
    if len(first) < 2 or len(first) != len(second):
        raise NoHardware(f"it takes matrices of one batch; a sample has {list(first)} and {list(second)}")
    batch = lowering.sample(node)[:-2]
    names = [_spread(lowering, name, (*batch, *lowering.stream(name).shape[-2:])) for name in names]
    first, second = (lowering.stream(name).shape for name in names)
    # The second operand comes column by column: the rows that the component multiplies with.
    columns = torch.arange(prod(second)).reshape(second).transpose(-1, -2).reshape(-1)
    sources = in_order(lowering, names[0], torch.arange(prod(first))), in_order(lowering, names[1], columns)
    return Unrounded("matmul", sources, node, options={"relu": False})


def _spread(lowering: Lowering, name: str, shape: tuple[int, ...]) -> str:
    """The matrices of a stream, each as often as there are others that it meets."""
    before = lowering.stream(name)
    if before.shape == shape:
        return name
    places = torch.arange(before.size).reshape(before.shape).expand(shape).reshape(-1)
    return arranged(lowering, name, places, shape)


def _sizes(design: Design, operation: Operation) -> tuple[int, int, int, int]:
    """Matrices, rows, length of a row, columns."""
    *batch, rows, length = design.operations[operation.inputs[0]].out.shape
    return prod(batch), rows, length, operation.out.shape[-1]


def _node(maker: Maker, operation: Operation) -> fx.Node:
    formats = maker.format_in(operation), maker.format_in(operation, 1), str(operation.out.format)
    return maker.call(operation, integer_matmul, *maker.inputs(operation), formats, operation.options["relu"])


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    count, rows, length, columns = _sizes(design, operation)
    for par_in in divisors(length):
        for par_out in divisors(columns):
            cycles = count * rows * (length // par_in) * (columns // par_out)
            yield Fold(par_in, par_out, max(cycles, count * columns * length // par_in), par_in * par_out)


def _build(builder: Builder, operation: Operation) -> Tap:
    fold, before = builder.folding.folds[operation.name], builder.design.operations
    _, rows, length, columns = _sizes(builder.design, operation)
    taps = [builder.waiting(operation, index, builder.read(operation, fold.par_in, index)) for index in (0, 1)]
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    parameters: Parameters = {
        **precision("DATA_IN_0", before[operation.inputs[0]].out.format),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": length,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": rows,
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        **precision("DATA_IN_1", before[operation.inputs[1]].out.format),
        **precision("DATA_OUT_0", operation.out.format),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": columns,
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
        "RELU": int(operation.options["relu"]),
    }
    builder.instance(f"{operation.name}_i", "fixed_matmul", parameters, builder.pair(taps, to), operation.name)
    return to


def _reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A row of the first operand, and all of the second one's matrix."""
    _, rows, length, columns = _sizes(design, operation)
    places = torch.arange(operation.out.size)
    row, matrix = places // columns, places // (columns * rows)
    return (row + 1) * length - 1, (matrix + 1) * columns * length - 1


KIND = Kind("matmul", _node, _build, {"matmul": _matmul, "bmm": _matmul}, row_major, _folds, _reach, mixes=2)
