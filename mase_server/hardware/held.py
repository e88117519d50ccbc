"""The states of a graph's values while it is lowered, and reading its nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Stream, find_divisors
from mase_server.ir.build import attribute
from mase_server.ir.facts import Produced, map_nodes
from mase_server.ops.types import TensorType

# The layout of a batch's samples in a tensor: hardware takes one sample after the other.

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The dimension with the samples: alone, or together with others, if rows or heads were joined with the batch.

    samples: their number.  inner: elements of that dimension from one sample to the next; the dimension repeats the
    pattern after samples * inner elements.
    """

    samples: int
    dim: int = 0
    inner: int = 1

    def alone(self, shape: Shape) -> bool:
        """Is the dimension the batch and nothing else?"""
        return shape[self.dim] == self.samples

    def sample(self, shape: Shape) -> Shape:
        """The shape of one sample of a tensor."""
        rest = () if self.alone(shape) else (shape[self.dim] // self.samples,)
        return (*shape[: self.dim], *rest, *shape[self.dim + 1 :])

    def split(self, values: Tensor) -> Tensor:
        """A tensor as [samples, *sample]."""
        shape = tuple(values.shape)
        apart = values.reshape(*shape[: self.dim], -1, self.samples, self.inner, *shape[self.dim + 1 :])
        return apart.movedim(self.dim + 1, 0).reshape(self.samples, *self.sample(shape))

    def joined(self, values: Tensor, shape: Shape) -> Tensor:
        """The inverse of `split`: a tensor of a shape from [samples, ...]."""
        outer = shape[self.dim] // (self.samples * self.inner)
        apart = values.reshape(self.samples, *shape[: self.dim], outer, self.inner, *shape[self.dim + 1 :])
        return apart.movedim(0, self.dim + 1).reshape(shape)


def possible_layouts(shape: Shape, samples: int) -> list[Layout]:
    """Every layout that a tensor of a shape may have: those with a separate dimension for the batch come first."""
    fitting = [dim for dim, size in enumerate(shape) if size and size % samples == 0]
    found = [Layout(samples, dim, inner) for dim in fitting for inner in find_divisors(shape[dim] // samples)[::-1]]
    return sorted(found, key=lambda each: not each.alone(shape))


def moved_samples(indices: Tensor, samples: int, size: int) -> tuple[Layout, Tensor] | None:
    """The layout of samples after elements moved, and the old index of each element of the first sample.

    indices: the result of moving arange(samples * size), `size` elements a sample.  None if samples were mixed.
    """
    first = (torch.arange(samples) * size)[:, None]
    for layout in possible_layouts(tuple(indices.shape), samples):
        rows = layout.split(indices).reshape(samples, -1)
        if torch.equal(rows - rows[:1], first.expand_as(rows)) and bool((rows[0] < size).all()):
            return layout, rows[0]
    return None


# The inputs of the hardware: tensors given to the model, also inside a dict or another object.


def is_given(node: fx.Node, facts: Mapping[fx.Node, Any]) -> bool:
    """Is a node an argument of the model, or picked from an argument that is no tensor?"""
    while _is_picking(node) and not isinstance(facts.get(node.all_input_nodes[0]), TensorType):
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


def argument_name(node: fx.Node) -> str:
    """The user's name of an input: the argument, or its key inside of one."""
    return str(node.args[1] if _is_picking(node) else node.target)


def _is_picking(node: fx.Node) -> bool:
    by_key = node.target in (operator.getitem, getattr) if node.op == "call_function" else node.target == "get"
    return node.op.startswith("call_") and by_key and len(node.args) > 1 and len(node.all_input_nodes) == 1


class NoHardware(Exception):
    """A node cannot be built; the text says what would be needed."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A value in hardware: the integers of an operation's format."""

    operation: str


@dataclass(frozen=True, slots=True)
class Unrounded:
    """An operation that is complete but for its output's format, which a later rounding decides.

    node: computes it, and gives the name.  also: further nodes that it implements.
    """

    kind: str
    inputs: tuple[str, ...]
    node: fx.Node
    constants: Mapping[str, Constant] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Floating:
    """An input that is not rounded yet."""

    node: fx.Node


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor that depends on no input and is not rounded yet: a parameter, or computed from parameters."""

    values: Tensor


@dataclass(frozen=True, slots=True)
class Moved:
    """Elements of an input that were moved before any rounding, which changes nothing. move: the operation, without its
    inputs."""

    source: Floating | Moved
    move: Unrounded


@dataclass(frozen=True, slots=True)
class Later:
    """Elements that were moved or joined before any rounding, which changes nothing. finish: makes the operation in a
    format."""

    finish: Callable[[FixedPoint], Whole]


@dataclass(frozen=True, slots=True)
class Masked:
    """The result of an operation, with minus infinity where `mask` (bool, of a sample's shape) is true."""

    source: str
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Barred:
    """Minus infinity wherever a stream of flags is one, else zero: added to scores. flags: an operation."""

    flags: str


Held = Whole | Unrounded | Floating | Known | Moved | Constant | Later | Masked | Barred


def stream_format(text: str) -> FixedPoint:
    """The format of a stream whose values are rounded to a text; NoHardware for anything but signed fixed point.

    Hardware calls it `fixed`, also if a configuration of MASE says `integer`.
    """
    format = parse(text)
    if isinstance(format, FixedPoint) and format.is_signed and format.rounding == "nearest":
        return FixedPoint(format.width, format.fraction_width)
    raise NoHardware(f"{text} has no hardware; signed fixed point has, e.g. fixed(8,4)")


def node_of(value: Any) -> fx.Node:
    """The node that gives an argument; NoHardware for a part of a tuple, or a plain number."""
    if isinstance(value, Produced) and value.node is not None and not value.path:
        return value.node
    raise NoHardware("one of its operands is not the tensor of a node")


def vectors_in_order(stream: Stream) -> bool:
    """Do the vectors along the last dimension flow one after the other, in order, each in the same order of
    elements?"""
    rows = stream.indices.reshape(-1, stream.shape[-1])
    first = torch.arange(len(rows)) * stream.shape[-1]
    return torch.equal(rows - first[:, None], rows[:1].expand_as(rows))


def run_node(node: fx.Node, model: nn.Module, value_of: Callable[[fx.Node], Any]) -> Tensor:
    """The result of a node for other values of its operands."""
    args, kwargs = map_nodes(node.args, value_of), map_nodes(node.kwargs, value_of)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)  # type: ignore[no-any-return]
    target = attribute(model, str(node.target)) if node.op == "call_module" else node.target
    return target(*args, **kwargs)  # type: ignore[no-any-return, operator]
