"""Operations that together compute one node, each on what the ones before it gave.

Between them nothing is lost that the result could show: formats are exact, or have bits to spare. Only the last one is
rounded to what the graph asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import WIDEST_TABLE
from mase_server.hardware.design import Constant, Operation, Stream, row_major
from mase_server.hardware.held import NoHardware, Unrounded, Whole, node_of
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.constant import constant_stream
from mase_server.hardware.kinds.gather import arranged
from mase_server.hardware.kinds.reduce import grouped
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.kinds.take import taken

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: A number between minus and plus one, and one that may be a little more, with as many bits as a table can take.
UNIT = FixedPoint(16, 14)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The operations of one node in the making. Shapes are those of one sample, names are of operations."""

    lowering: Lowering
    node: fx.Node

    def stream(self, name: str) -> Stream:
        """What an operation gives."""
        return self.lowering.stream(name)

    def source(self, given: Mapping[str, Any], key: str = "data_in_0") -> str:
        """The operation that gives an operand. NoHardware where that is not rounded."""
        return self.lowering.whole(node_of(given[key]))

    def add(
        self,
        kind: str,
        inputs: Sequence[str],
        format: FixedPoint,
        shape: Shape,
        options: Mapping[str, Any] | None = None,
        constants: Mapping[str, Constant] | None = None,
    ) -> str:
        """One more operation, in the order of its kind."""
        unrounded = Unrounded(kind, tuple(inputs), self.node, constants or {}, options or {})
        out = KINDS[kind].order(self.lowering, unrounded, Stream(format, shape))
        made = Operation(f"{self.node.name}_{kind}", kind, tuple(inputs), out, (self.node.name,))
        return self.lowering.insert(replace(made, constants=constants or {}, options=options or {}))

    def last(self, kind: str, inputs: Sequence[str], options: Mapping[str, Any], **constants: Constant) -> Unrounded:
        """The operation that gives the node's own value, for the format that it is rounded to."""
        return Unrounded(kind, tuple(inputs), self.node, constants, options)

    # What computes

    def table(self, name: str, function: Callable[[Tensor], Tensor], format: FixedPoint) -> str:
        """A function of each number. NoHardware where its table would be too large."""
        before = self.stream(name)
        if before.format.width > WIDEST_TABLE:
            raise NoHardware(
                f"its table would have 2**{before.format.width} words; quantise to {WIDEST_TABLE} bits or fewer"
            )
        return self.add("table", [name], format, before.shape, {"function": function})

    def paired(
        self, function: str, first: str, second: str, format: FixedPoint | None = None, *, relu: bool = False
    ) -> str:
        """The sum, difference or product of two streams that are broadcast; exact where no format is given."""
        shape = self.shape_of_both(first, second)
        exact = exactly(function, self.stream(first).format, self.stream(second).format)
        options = {"function": function, "relu": relu}
        return self.add("elementwise", self.alike(first, second), format or exact, shape, options)

    def last_pair(self, function: str, first: str, second: str) -> Unrounded:
        """The same as the node's own value."""
        return self.last("elementwise", self.alike(first, second), {"function": function, "relu": False})

    def shape_of_both(self, first: str, second: str) -> Shape:
        """The shape of what two streams are broadcast to."""
        return tuple(torch.broadcast_shapes(self.stream(first).shape, self.stream(second).shape))  # type: ignore[no-untyped-call]

    def alike(self, first: str, second: str) -> list[str]:
        """Two streams in one shape and one order: that of the first one which has the shape."""
        shape = self.shape_of_both(first, second)
        whole = [self.stream(name) for name in (first, second) if self.stream(name).shape == shape]
        order = whole[0].indices if whole else torch.arange(prod(shape))
        return [self.spread(name, shape, order) for name in (first, second)]

    def reduced(self, function: str, name: str, dims: Sequence[int], format: FixedPoint | None = None) -> str:
        """The mean, the sum or the largest over dimensions, which stay with one element each; sums are exact where no
        format is given."""
        before = self.stream(name)
        count = prod(before.shape[dim] for dim in dims)
        shape = tuple(1 if dim in dims else size for dim, size in enumerate(before.shape))
        exact = before.format if function == "max" else wider(before.format, (count - 1).bit_length())
        source, options = self.reducing(function, name, dims)
        return self.add("reduce", [source], format or exact, shape, options)

    def reducing(self, function: str, name: str, dims: Sequence[int]) -> tuple[str, dict[str, Any]]:
        """The operand of a `reduce` and its options."""
        source, channels = grouped(self.lowering, name, tuple(sorted(dims)))
        return source, {"function": function, "dims": tuple(sorted(dims)), "channels": channels}

    # What stands still

    def constant(self, values: Tensor, format: FixedPoint, shape: Shape, order: Tensor | None = None) -> str:
        """A tensor that is the same for every sample, broadcast to a shape."""
        integers = torch.broadcast_to(format.encode(values), shape)
        like = Stream(format, shape, None if order is None else row_major(order))
        return constant_stream(self.lowering, self.node, Constant(integers, format), like)

    # What moves

    def spread(self, name: str, shape: Shape, order: Tensor) -> str:
        """A stream broadcast to a shape, in an order."""
        before = self.stream(name)
        if before.shape == shape:
            return in_order(self.lowering, name, order)
        if self.lowering.operations[name].kind == "constant":
            constant = self.lowering.operations[name].constants["values"]
            return self.constant(before.format.decode(constant.integers), before.format, shape, order)
        places = torch.arange(before.size).reshape(before.shape).expand(shape).reshape(-1)
        return arranged(self.lowering, name, places, shape, order)

    def moved(self, name: str, places: Tensor, shape: Shape) -> str:
        """The same elements under other indices: nothing flows at another time."""
        before = self.stream(name)
        if before.shape == shape and row_major(places) is None:
            return name
        return self.add("move", [name], before.format, shape, {"places": places})

    def reshaped(self, name: str, shape: Shape) -> str:
        """Under another shape."""
        return self.moved(name, torch.arange(prod(shape)), shape)

    def turned(self, name: str, dims: Sequence[int]) -> str:
        """With its dimensions in another order."""
        shape = self.stream(name).shape
        places = torch.arange(prod(shape)).reshape(shape).permute(*dims)
        return self.moved(name, places.reshape(-1), tuple(places.shape))

    def by_rows(self, name: str) -> str:
        """Row-major in time."""
        return in_order(self.lowering, name, torch.arange(self.stream(name).size))

    def part(self, name: str, dim: int, first: int, size: int) -> str:
        """A part along a dimension."""
        shape = self.stream(name).shape
        places = torch.arange(prod(shape)).reshape(shape).narrow(dim, first, size)
        return taken(self.lowering, name, places.reshape(-1), tuple(places.shape), (self.node.name,))

    def given(self, name: str) -> Whole:
        """What an operation gives, as the node's own value."""
        return Whole(name)


def wider(format: FixedPoint, bits: int) -> FixedPoint:
    """A format with more bits before the point."""
    return FixedPoint(format.width + bits, format.fraction_width)


def exactly(function: str, first: FixedPoint, second: FixedPoint) -> FixedPoint:
    """The format that holds every sum, difference or product of two."""
    if function == "mul":
        return FixedPoint(first.width + second.width, first.fraction_width + second.fraction_width)
    return wider(both(first, second), 1)


def both(first: FixedPoint, second: FixedPoint) -> FixedPoint:
    """The format that holds the numbers of two."""
    fraction = max(first.fraction_width, second.fraction_width)
    return FixedPoint(max(each.width - each.fraction_width for each in (first, second)) + fraction, fraction)


def finely(values: Tensor, fraction: int = 16) -> FixedPoint:
    """A format for constants that nobody rounds: with so many bits after the point, and room for the largest."""
    finite = values[values.isfinite()]
    whole = int(finite.abs().max()).bit_length() if finite.numel() else 0
    return FixedPoint(fraction + whole + 2, fraction)


def at_most(format: FixedPoint, width: int = WIDEST_TABLE) -> FixedPoint:
    """The same range in so many bits: what is too long loses its last ones."""
    return FixedPoint(min(format.width, width), format.fraction_width - max(0, format.width - width))


def saturated(format: FixedPoint, width: int = WIDEST_TABLE) -> FixedPoint:
    """The same steps in so many bits: what is too large saturates."""
    return FixedPoint(min(format.width, width), format.fraction_width)


def dim_of(steps: Steps, dim: int, source: fx.Node) -> int:
    """A dimension of a tensor as one of its samples. NoHardware for the batch."""
    rank = len(steps.lowering.facts[source].shape)
    if dim % rank == 0:
        raise NoHardware("it goes over the batch; hardware takes one sample after the other")
    return dim % rank - 1
