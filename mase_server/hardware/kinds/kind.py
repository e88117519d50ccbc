"""A kind of operation: what it serves, in which order its results flow, and how it is folded, built and computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.hardware.design import Design, Operation, Stream
from mase_server.hardware.folds import Fold
from mase_server.hardware.held import Held, Unrounded
from mase_server.hardware.wiring import Tap

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker

#: (lowering, node, its arguments by MASE's names) -> what the node becomes. NoHardware where it cannot.
Rule = Callable[["Lowering", fx.Node, Mapping[str, Any]], Held]


def as_given(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """In the order of the first operand, where that has the same shape; row-major without one."""
    given = [lowering.stream(name) for name in unrounded.inputs[:1]]
    return replace(out, order=given[0].order) if given and given[0].shape == out.shape else out


def row_major(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Row-major."""
    return out


def one_by_one(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """Each element needs those at its own place."""
    return tuple(torch.arange(operation.out.size) for _ in operation.inputs)


def at_any_pace(design: Design, operation: Operation) -> Iterator[Fold]:
    """No folds: it goes at the pace of its neighbours."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind, declared by one file of this package as its module global `KIND`.

    rules: by MASE's operator.  node: of the graph of integers.  build: its instances, and where its results are.
    order: of its results, with the format and shape that they have.  folds: every way to build it.
    reach: for each operand, the place of the last of its elements that each element of the result needs, as they flow.
    mixes: how many of the last dimensions a result depends on; None where the batch has to be the first one.
    """

    name: str
    node: Callable[[Maker, Operation], fx.Node]
    build: Callable[[Builder, Operation], Tap]
    rules: Mapping[str, Rule] = field(default_factory=dict)
    order: Callable[[Lowering, Unrounded, Stream], Stream] = as_given
    folds: Callable[[Design, Operation], Iterator[Fold]] = at_any_pace
    reach: Callable[[Design, Operation], tuple[Tensor, ...]] = one_by_one
    mixes: int | None = None
