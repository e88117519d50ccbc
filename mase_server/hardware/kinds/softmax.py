"""Softmax over rows: `fixed_softmax`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.softmax import EXP_FRACTION, exp_table
from mase_server.hardware.design import Constant, Design, Operation
from mase_server.hardware.folds import Fold, divisors
from mase_server.hardware.functional import integer_softmax
from mase_server.hardware.held import Held, Masked, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.kinds.settings import Settings
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.masks import equal, masked_fill, where
from mase_server.hardware.memories import words_of
from mase_server.hardware.wiring import Parameters, Tap, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _softmax(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source, mask = node_of(given["data_in_0"]), None
    held, rank = lowering.held[source], len(lowering.facts[source].shape)
    if isinstance(held, Masked):
        name, mask = held.source, Constant(held.mask.long(), FixedPoint(2, 0))
    else:
        name = lowering.whole(source)
    dim = Settings.of(lowering, node, given).get("dim", -1)
    if dim % rank != rank - 1:
        raise NoHardware(f"it goes over dimension {dim}; over the last one there is hardware: transpose first")
    name = in_order(lowering, name, torch.arange(lowering.stream(name).size))
    return Unrounded("softmax", (name,), node, {} if mask is None else {"mask": mask})


def _node(maker: Maker, operation: Operation) -> fx.Node:
    formats, (mask, _) = (maker.format_in(operation), str(operation.out.format)), maker.constant(operation, "mask")
    return maker.call(operation, integer_softmax, *maker.inputs(operation), *formats, mask)


def folds_of_rows(design: Design, operation: Operation) -> Iterator[Fold]:
    """One beat a cycle, as wide as rows allow."""
    for lanes in divisors(operation.out.shape[-1]):
        yield Fold(lanes, lanes, operation.out.size // lanes, 0)


def reach_of_rows(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A row is needed to its end."""
    length = operation.out.shape[-1]
    return ((torch.arange(operation.out.size) // length + 1) * length - 1,)


def _build(builder: Builder, operation: Operation) -> Tap:
    fold, out = builder.folding.folds[operation.name], operation.out
    source, before = builder.read(operation, fold.par_in), builder.design.operations[operation.inputs[0]].out.format
    to = builder.wires(f"{operation.name}_cast", fold.par_out, out.format.width)
    words = words_of(exp_table(before)[:, None], EXP_FRACTION + 1)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": out.shape[-1],
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        "EXP_FRACTION": EXP_FRACTION,
        **precision("DATA_OUT_0", out.format),
        "FILE": builder.file(operation, "exp", EXP_FRACTION + 1, words),
    }
    if "mask" in operation.constants:
        rows = _repeating(operation.constants["mask"].integers.reshape(-1, out.shape[-1])).reshape(-1, fold.par_in)
        file = builder.file(operation, "mask", fold.par_in, words_of(rows, 1))
        parameters |= {"HAS_MASK": 1, "MASK_BEATS": len(rows), "MASK_FILE": file}
    builder.instance(f"{operation.name}_i", "fixed_softmax", parameters, streams(source, to), operation.name)
    return builder.skid(operation, to)


def _repeating(rows: Tensor) -> Tensor:
    """The first rows, as many as it takes until they come again."""
    for count in divisors(len(rows)):
        if torch.equal(rows.reshape(-1, count, rows.shape[1]), rows[:count].expand(len(rows) // count, -1, -1)):
            return rows[:count]
    return rows


_RULES = {"softmax": _softmax, "masked_fill": masked_fill, "where": where, "eq": equal}

KIND = Kind("softmax", _node, _build, _RULES, row_major, folds_of_rows, reach_of_rows, mixes=1)
