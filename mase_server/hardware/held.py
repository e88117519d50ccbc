"""What the values of a graph become while it is lowered, and how its nodes are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.design import Constant, Stream
from mase_server.ir.build import attribute
from mase_server.ir.facts import Produced, map_nodes


class NoHardware(Exception):
    """A node cannot be built; its text says what would be needed."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A value that an operation gives: integers of a format."""

    operation: str


@dataclass(frozen=True, slots=True)
class Unrounded:
    """What some rounding has still to finish: what the operation will be, but for its output's format.

    node: computes it, and gives the name.  also: further nodes that it is.
    """

    kind: str
    inputs: tuple[str, ...]
    node: fx.Node
    constants: Mapping[str, Constant] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Floating:
    """An input that nobody has rounded yet."""

    node: fx.Node


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor that depends on no input, and that nobody has rounded yet: a parameter, or computed from some."""

    values: Tensor


@dataclass(frozen=True, slots=True)
class Moved:
    """Elements of an input that were moved before anybody rounded them, which changes nothing. move: its inputs are
    still missing."""

    source: Floating | Moved
    move: Unrounded


@dataclass(frozen=True, slots=True)
class Later:
    """Elements that were moved or joined before anybody rounded them, which changes nothing. finish: gives them in a
    format."""

    finish: Callable[[FixedPoint], Whole]


@dataclass(frozen=True, slots=True)
class Masked:
    """What an operation gives, minus infinity where `mask` (bool, of a sample's shape) is true."""

    source: str
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Barred:
    """Minus infinity wherever a stream of flags is one, else zero: what is added to scores. flags: an operation."""

    flags: str


Held = Whole | Unrounded | Floating | Known | Moved | Constant | Later | Masked | Barred


def stream_format(text: str) -> FixedPoint:
    """The format of a stream whose values are rounded to a text; NoHardware for anything but signed fixed point.

    Hardware calls it `fixed`, also where a configuration of MASE says `integer`.
    """
    format = parse(text)
    if isinstance(format, FixedPoint) and format.is_signed and format.rounding == "nearest":
        return FixedPoint(format.width, format.fraction_width)
    raise NoHardware(f"{text} has no hardware; integers of signed fixed point have, e.g. fixed(8,4)")


def node_of(value: Any) -> fx.Node:
    """The node that gives an argument; NoHardware for a part of a tuple, or a plain number."""
    if isinstance(value, Produced) and value.node is not None and not value.path:
        return value.node
    raise NoHardware("one of its operands is no tensor of the graph's own")


def vectors_in_order(stream: Stream) -> bool:
    """Do the vectors along the last dimension come one after the other, in their order, each in the same order?"""
    rows = stream.indices.reshape(-1, stream.shape[-1])
    first = torch.arange(len(rows)) * stream.shape[-1]
    return torch.equal(rows - first[:, None], rows[:1].expand_as(rows))


def run(node: fx.Node, model: nn.Module, value_of: Callable[[fx.Node], Any]) -> Tensor:
    """What a node gives for other values of its operands."""
    args, kwargs = map_nodes(node.args, value_of), map_nodes(node.kwargs, value_of)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)  # type: ignore[no-any-return]
    target = attribute(model, str(node.target)) if node.op == "call_module" else node.target
    return target(*args, **kwargs)  # type: ignore[no-any-return, operator]
