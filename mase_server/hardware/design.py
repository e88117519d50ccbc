"""A model as hardware computes it: operations on streams of integers; how parallel they are is not said here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint


@dataclass(frozen=True, slots=True)
class Stream:
    """What flows between two operations: a tensor of each sample. shape: without the batch.

    order: the row-major index of each element in the order in which they flow; None for row-major itself.
    """

    format: FixedPoint
    shape: tuple[int, ...]
    order: Tensor | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Elements of a sample."""
        return prod(self.shape)

    def flowing(self, values: Tensor) -> Tensor:
        """Samples, [samples, ...], as rows of elements in the order in which they flow."""
        rows = values.reshape(values.shape[0], self.size)
        return rows if self.order is None else rows[:, self.order]

    def same_order(self, other: Stream) -> bool:
        """Do the elements of two streams come in the same order?"""
        return torch.equal(self.indices, other.indices)

    @property
    def indices(self) -> Tensor:
        """`order`, also where it is row-major."""
        return torch.arange(self.size) if self.order is None else self.order

    def moved(self, places: Tensor, shape: tuple[int, ...]) -> Stream:
        """The same elements under other indices; none flows at another time.

        places: for each row-major index of the new shape, the one that its element had; a permutation.
        """
        now = torch.empty(self.size, dtype=torch.int64)
        now[places] = torch.arange(self.size)
        return Stream(self.format, shape, row_major(now[self.indices]))


def row_major(order: Tensor) -> Tensor | None:
    """An order, None where it is row-major."""
    return None if torch.equal(order, torch.arange(len(order))) else order


@dataclass(frozen=True, eq=False)
class Constant:
    """Integers that stand in the hardware: weights, biases, tables.

    given: the integers, int64, or real values without NaN, which are rounded when somebody reads the integers: what is
    too large to be emitted is refused before.
    """

    given: Tensor
    format: FixedPoint

    @cached_property
    def integers(self) -> Tensor:
        """int64."""
        return self.format.encode(self.given) if self.given.is_floating_point() else self.given

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the integers."""
        return tuple(self.given.shape)

    def moved(self, function: Callable[[Tensor], Tensor]) -> Constant:
        """With elements that stand elsewhere."""
        return Constant(function(self.given), self.format)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. kind: a row of `kinds.KINDS`.  inputs: names of operations.  nodes: the graph's nodes that it is.

    name is an identifier, and the instance's name in the hardware.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    out: Stream
    nodes: tuple[str, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A node that has no hardware. why: what it is, and what would be needed."""

    node: str
    operator: str
    why: str


@dataclass(frozen=True, slots=True)
class Design:
    """All operations in the order of the data; those of kind "input" come first. outputs: names of operations.

    unsupported: nodes that are missing; then there is no hardware of the whole, and `operations` is what there is.
    cut: of it, inputs that stand for what a missing node would give, and outputs that one would read.
    """

    operations: Mapping[str, Operation]
    outputs: tuple[str, ...]
    unsupported: tuple[Unsupported, ...] = ()
    cut: frozenset[str] = frozenset()
    _users: Mapping[str, tuple[Operation, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        users: dict[str, tuple[Operation, ...]] = {}
        for operation in self.operations.values():
            for source in operation.inputs:
                users[source] = (*users.get(source, ()), operation)
        object.__setattr__(self, "_users", users)

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """The operations that stand for the model's inputs."""
        return tuple(each for each in self.operations.values() if each.kind == "input")

    def users(self, name: str) -> tuple[Operation, ...]:
        """The operations that read what another one gives, once for each reading."""
        return self._users.get(name, ())
