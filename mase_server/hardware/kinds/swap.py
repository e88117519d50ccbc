"""Elements in another order in time: `swap_buffer`. It is inserted wherever a reader needs another order."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Design, Operation, Stream, find_divisors, row_major
from mase_server.hardware.held import Unrounded
from mase_server.hardware.kinds.gather import arrange_elements
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.verilog import Parameters, Tap, stream_ports

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def in_order(lowering: Lowering, name: str, wanted: Tensor) -> str:
    """The operation that gives a stream's elements in an order: itself, or a buffer after it.

    wanted: the row-major index of each element.
    """
    before = lowering.stream(name)
    if torch.equal(before.indices, wanted):
        return name
    for known in lowering.operations.values():
        if known.kind == "swap" and known.inputs == (name,) and torch.equal(known.out.indices, wanted):
            return known.name
    place = torch.empty(before.size, dtype=torch.int64)
    place[before.indices] = torch.arange(before.size)
    sizes = _find_swap(place[wanted])
    if sizes is None:
        return arrange_elements(lowering, name, torch.arange(before.size), before.shape, wanted)
    out = Stream(before.format, before.shape, row_major(wanted))
    return lowering.insert(Operation(f"{name}_swap", "swap", (name,), out, (), options={"sizes": sizes}))


def _find_swap(places: Tensor) -> tuple[int, int, int] | None:
    """Rows, columns and elements such that the places are in the order columns, rows, elements, block after block.

    Returns the smallest blocks; None if there are none.
    """
    size = len(places)
    ends = torch.tensor(find_divisors(size))
    begins = places[ends % size] == places[0] + ends  # the second block begins like the first one
    for block in ends[begins | (ends == size)].tolist():
        first = places[:block]
        blocks = places.reshape(-1, block) - torch.arange(0, size, block)[:, None]
        if torch.equal(blocks, first.expand_as(blocks)) and (found := _swap_sizes(first)) is not None:
            return found
    return None


def _swap_sizes(places: Tensor) -> tuple[int, int, int] | None:
    size = len(places)
    moved = (places != torch.arange(size)).nonzero()
    if not len(moved) or not (inner := int(moved[0])) or size % inner:
        return None
    # The first element that moved is the first one of the second row.
    columns, rest = divmod(int(places[inner]), inner)
    if rest or columns < 2 or (size // inner) % columns or (rows := size // inner // columns) < 2:
        return None
    return (
        (rows, columns, inner) if torch.equal(_swap_values(torch.arange(size), rows, columns, inner), places) else None
    )


def _swap_values(values: Tensor, rows: int, columns: int, inner: int) -> Tensor:
    return values.reshape(rows, columns, inner).transpose(0, 1).reshape(-1)


def _swap_order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    return out


def _swap_node(maker: Maker, operation: Operation) -> fx.Node:
    """The same tensor: only the time at which its elements arrive changes."""
    (source,) = maker.inputs(operation)
    return maker.call(operation, torch.clone, source)


def _build_swap(builder: Builder, operation: Operation) -> Tap:
    rows, columns, inner = operation.options["sizes"]
    lanes = builder.lanes_wanted(operation)
    came = builder.lanes_of(operation, 0)
    if inner > 1:
        lanes_in = lanes = max(each for each in find_divisors(inner) if came % each == 0)
    else:
        lanes_in = max(each for each in find_divisors(columns) if came % each == 0)
        lanes = lanes if rows % lanes == 0 else 1
    source, bits = builder.read(operation, lanes_in), operation.out.format.width
    to = builder.wires(operation.name, lanes, bits)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": bits,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes_in,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes,
        "ROWS": rows,
        "COLUMNS": columns,
        "BEATS": inner // lanes if inner > 1 else 1,
        "TRANSPOSE": int(inner == 1),
    }
    builder.instance(f"{operation.name}_i", "swap_buffer", parameters, stream_ports(source, to), operation.name)
    return to


def _swap_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A whole matrix arrives before any of it leaves."""
    block = prod(operation.options["sizes"])
    return ((torch.arange(operation.out.size) // block + 1) * block - 1,)


SWAP_KIND = Kind("swap", _swap_node, _build_swap, {}, _swap_order, reach=_swap_reach)
