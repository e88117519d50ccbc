"""Composing the hardware of one node from several operations.

Intermediate formats are exact, or have bits to spare, so that no error of theirs shows in the result. Only the last
operation rounds to the format that the graph asks for.

All steps have the node's name in `nodes`, and the last one gives its value. No new component or timing is needed for
them.
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
from mase_server.hardware.kinds.entry import constant_stream
from mase_server.hardware.kinds.gather import arrange_elements
from mase_server.hardware.kinds.norm import group_elements
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.kinds.take import take_elements

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: For numbers between minus and plus one, or slightly more, with as many bits as a table can take.
UNIT = FixedPoint(16, 14)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The operations of one node in the making. Shapes are those of one sample, names are of operations."""

    lowering: Lowering
    node: fx.Node

    def stream(self, name: str) -> Stream:
        """The stream of an operation's results."""
        return self.lowering.stream(name)

    def source(self, given: Mapping[str, Any], key: str = "data_in_0") -> str:
        """The operation that gives an operand. NoHardware for an operand that is not rounded."""
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
        """Add an operation, with results in the order of its kind."""
        unrounded = Unrounded(kind, tuple(inputs), self.node, constants or {}, options or {})
        out = KINDS[kind].order(self.lowering, unrounded, Stream(format, shape))
        made = Operation(f"{self.node.name}_{kind}", kind, tuple(inputs), out, (self.node.name,))
        return self.lowering.insert(replace(made, constants=constants or {}, options=options or {}))

    def last(self, kind: str, inputs: Sequence[str], options: Mapping[str, Any], **constants: Constant) -> Unrounded:
        """The operation that gives the node's own value, in the format to which the graph rounds it."""
        return Unrounded(kind, tuple(inputs), self.node, constants, options)

    # Operations that compute.

    def table(self, name: str, function: Callable[[Tensor], Tensor], format: FixedPoint) -> str:
        """Apply a function to each number. NoHardware if its table would be too large."""
        before = self.stream(name)
        if before.format.width > WIDEST_TABLE:
            raise NoHardware(
                f"its table would have 2**{before.format.width} words; quantise to {WIDEST_TABLE} bits or fewer"
            )
        return self.add("table", [name], format, before.shape, {"function": function})

    def paired(
        self, function: str, first: str, second: str, format: FixedPoint | None = None, *, relu: bool = False
    ) -> str:
        """The sum, difference or product of two streams, broadcast; exact if no format is given."""
        shape = self.shape_of_both(first, second)
        exact = exact_format(function, self.stream(first).format, self.stream(second).format)
        options = {"function": function, "relu": relu}
        return self.add("elementwise", self.alike(first, second), format or exact, shape, options)

    def last_pair(self, function: str, first: str, second: str) -> Unrounded:
        """The same as the node's own value."""
        return self.last("elementwise", self.alike(first, second), {"function": function, "relu": False})

    def shape_of_both(self, first: str, second: str) -> Shape:
        """The shape to which two streams are broadcast."""
        return tuple(torch.broadcast_shapes(self.stream(first).shape, self.stream(second).shape))  # type: ignore[no-untyped-call]

    def alike(self, first: str, second: str) -> list[str]:
        """Both streams in one shape and one order: the order of the first one that has the shape."""
        shape = self.shape_of_both(first, second)
        whole = [self.stream(name) for name in (first, second) if self.stream(name).shape == shape]
        order = whole[0].indices if whole else torch.arange(prod(shape))
        return [self.spread(name, shape, order) for name in (first, second)]

    def reduced(self, function: str, name: str, dims: Sequence[int], format: FixedPoint | None = None) -> str:
        """The mean, sum or maximum over dimensions, which are kept with size one; sums are exact if no format is
        given."""
        before = self.stream(name)
        count = prod(before.shape[dim] for dim in dims)
        shape = tuple(1 if dim in dims else size for dim, size in enumerate(before.shape))
        exact = before.format if function == "max" else widen_format(before.format, (count - 1).bit_length())
        source, options = self.reducing(function, name, dims)
        return self.add("reduce", [source], format or exact, shape, options)

    def reducing(self, function: str, name: str, dims: Sequence[int]) -> tuple[str, Mapping[str, object]]:
        """The operand of a `reduce`, and its options."""
        source, channels = group_elements(self.lowering, name, tuple(sorted(dims)))
        return source, {"function": function, "dims": tuple(sorted(dims)), "channels": channels}

    # Constants.

    def constant(self, values: Tensor, format: FixedPoint, shape: Shape, order: Tensor | None = None) -> str:
        """A tensor that is the same for every sample, broadcast to a shape."""
        integers = torch.broadcast_to(format.encode(values), shape)
        like = Stream(format, shape, None if order is None else row_major(order))
        return constant_stream(self.lowering, self.node, Constant(integers, format), like)

    # Operations that move elements.

    def spread(self, name: str, shape: Shape, order: Tensor) -> str:
        """A stream broadcast to a shape, in an order."""
        before = self.stream(name)
        if before.shape == shape:
            return in_order(self.lowering, name, order)
        if self.lowering.operations[name].kind == "constant":
            constant = self.lowering.operations[name].constants["values"]
            return self.constant(before.format.decode(constant.integers), before.format, shape, order)
        places = torch.arange(before.size).reshape(before.shape).expand(shape).reshape(-1)
        return arrange_elements(self.lowering, name, places, shape, order)

    def moved(self, name: str, places: Tensor, shape: Shape) -> str:
        """The same elements under other indices, in the same order in time."""
        before = self.stream(name)
        if before.shape == shape and row_major(places) is None:
            return name
        return self.add("move", [name], before.format, shape, {"places": places})

    def reshaped(self, name: str, shape: Shape) -> str:
        """The elements in another shape."""
        return self.moved(name, torch.arange(prod(shape)), shape)

    def turned(self, name: str, dims: Sequence[int]) -> str:
        """The elements with the dimensions in another order."""
        shape = self.stream(name).shape
        places = torch.arange(prod(shape)).reshape(shape).permute(*dims)
        return self.moved(name, places.reshape(-1), tuple(places.shape))

    def by_rows(self, name: str) -> str:
        """The elements row-major in time."""
        return in_order(self.lowering, name, torch.arange(self.stream(name).size))

    def part(self, name: str, dim: int, first: int, size: int) -> str:
        """A part along a dimension."""
        shape = self.stream(name).shape
        places = torch.arange(prod(shape)).reshape(shape).narrow(dim, first, size)
        return take_elements(self.lowering, name, places.reshape(-1), tuple(places.shape), (self.node.name,))

    def given(self, name: str) -> Whole:
        """The result of an operation as the node's own value."""
        return Whole(name)


def widen_format(format: FixedPoint, bits: int) -> FixedPoint:
    """The format with more bits before the point."""
    return FixedPoint(format.width + bits, format.fraction_width)


def exact_format(function: str, first: FixedPoint, second: FixedPoint) -> FixedPoint:
    """The format that holds every sum, difference or product of two."""
    if function == "mul":
        return FixedPoint(first.width + second.width, first.fraction_width + second.fraction_width)
    return widen_format(format_of_both(first, second), 1)


def format_of_both(first: FixedPoint, second: FixedPoint) -> FixedPoint:
    """The format that holds the numbers of both."""
    fraction = max(first.fraction_width, second.fraction_width)
    return FixedPoint(max(each.width - each.fraction_width for each in (first, second)) + fraction, fraction)


def fine_format(values: Tensor, fraction: int = 16) -> FixedPoint:
    """A format for constants that the graph does not round: `fraction` bits after the point, and room for the
    largest."""
    finite = values[values.isfinite()]
    whole = int(finite.abs().max()).bit_length() if finite.numel() else 0
    return FixedPoint(fraction + whole + 2, fraction)


def at_most(format: FixedPoint, width: int = WIDEST_TABLE) -> FixedPoint:
    """The same range in at most `width` bits; a longer format loses its last bits."""
    return FixedPoint(min(format.width, width), format.fraction_width - max(0, format.width - width))


def saturated_format(format: FixedPoint, width: int = WIDEST_TABLE) -> FixedPoint:
    """The same steps in `width` bits; larger numbers saturate."""
    return FixedPoint(min(format.width, width), format.fraction_width)


def dim_of(steps: Steps, dim: int, source: fx.Node) -> int:
    """A tensor's dimension as a dimension of one sample. NoHardware for the batch."""
    rank = len(steps.lowering.facts[source].shape)
    if dim % rank == 0:
        raise NoHardware("it goes over the batch; hardware takes one sample after the other")
    return dim % rank - 1
