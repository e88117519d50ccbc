"""Inputs that nobody rounds: indices, counts and flags, and the integers that they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.effects import LIKE_ANOTHER, OF_SIZES
from mase_server.hardware.held import NoHardware, stream_format
from mase_server.ir.facts import call_of
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: Of flags: one bit.
_FLAG = FixedPoint(1, 0, is_signed=False)
#: Of integers that are only computed with: what is beyond saturates.
_NUMBER = FixedPoint(8, 0)


def as_input(lowering: Lowering, node: fx.Node) -> str:
    """The stream of what only moved since it was an input. NoHardware for floats that are not rounded anywhere."""
    return lowering.rounded(node, input_format(lowering, root_of(lowering, node), node))


def root_of(lowering: Lowering, node: fx.Node) -> fx.Node:
    """The input that a tensor is, but for its shape."""
    while node.op != "placeholder":
        before = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType | tuple)]
        if len(before) != 1:
            break
        node = before[0]
    return node


def input_format(lowering: Lowering, root: fx.Node, node: fx.Node) -> FixedPoint:
    """The format of an input: of floats the one that they are rounded to, of integers one for what they are used for.

    node: what is read, which was made of the input.
    """
    dtype = lowering.facts[root].dtype if isinstance(lowering.facts.get(root), TensorType) else ""
    if dtype == "bool":
        return _FLAG
    if dtype.startswith(("int", "uint")):
        count = fewest_rows(lowering, root)
        return _NUMBER if count is None else FixedPoint(max(1, (count - 1).bit_length()), 0, is_signed=False)
    texts = {text for each in (root, node) for user in each.users if (text := format_text(user)) is not None}
    formats = {stream_format(text) for text in texts}
    if len(formats) != 1:
        raise NoHardware(f"{node.name} is not rounded to fixed point; quantise it first, e.g. to fixed(8,4)")
    return formats.pop()


def fewest_rows(lowering: Lowering, root: fx.Node) -> int | None:
    """Of all tables that an input is an index of, the rows of the smallest; None where there is none."""
    return min(_rows(lowering, root, set()), default=None)


def _rows(lowering: Lowering, node: fx.Node, seen: set[fx.Node]) -> Iterator[int]:
    for user in node.users:
        if user in seen or user.op == "output":
            continue
        seen.add(user)
        if operator_of(user, lowering.model) == "embedding":
            given: Any = named_arguments(call_of(user, lowering.facts, lowering.model))
            if getattr(given.get("data_in_0"), "node", None) is node and given.get("weight") is not None:
                yield int(given["weight"].shape[0])
        elif _is_index(lowering.facts.get(user)) and _holds(lowering, user, node):
            yield from _rows(lowering, user, seen)


def _holds(lowering: Lowering, user: fx.Node, node: fx.Node) -> bool:
    """Are the numbers of a node among those that another one gives? Not where only its size matters."""
    operator = operator_of(user, lowering.model)
    return operator not in OF_SIZES and (operator not in LIKE_ANOTHER or user.all_input_nodes[0] is node)


def _is_index(fact: Any) -> bool:
    """Integers again, or a tuple of such."""
    if isinstance(fact, tuple):
        return any(map(_is_index, fact))
    return isinstance(fact, TensorType) and fact.dtype.startswith("int")
