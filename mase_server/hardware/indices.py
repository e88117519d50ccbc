"""Inputs that the graph does not round: indices, counts and flags, and the integers that represent them.

An input is as wide as the tables that it indexes; a narrower one would saturate silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.effects import LIKE_ANOTHER, OF_SIZES
from mase_server.hardware.held import Held, NoHardware, Unrounded, stream_format
from mase_server.ir.facts import call_of
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


#: The format of flag inputs: one bit.
_FLAG = FixedPoint(1, 0, is_signed=False)
#: The format of integers that are only computed with: larger ones saturate.
_NUMBER = FixedPoint(8, 0)


def as_input(lowering: Lowering, node: fx.Node) -> str:
    """The stream of an input that was at most moved. NoHardware for a float input that is never rounded."""
    return lowering.rounded(node, input_format(lowering, root_of(lowering, node), node))


def root_of(lowering: Lowering, node: fx.Node) -> fx.Node:
    """The input whose elements a tensor has, perhaps in another shape."""
    while node.op != "placeholder":
        before = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType | tuple)]
        if len(before) != 1:
            break
        node = before[0]
    return node


def input_format(lowering: Lowering, root: fx.Node, node: fx.Node) -> FixedPoint:
    """The format of an input: for floats the one that they are rounded to, for integers one that suits their use.

    node: the tensor that is read, which was made from the input.
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
    """The fewest rows of all tables that an input is an index of; None if there is no table."""
    return min(_embedding_rows(lowering, root, set()), default=None)


def _embedding_rows(lowering: Lowering, node: fx.Node, seen: set[fx.Node]) -> Iterator[int]:
    for user in node.users:
        if user in seen or user.op == "output":
            continue
        seen.add(user)
        if operator_of(user, lowering.model) == "embedding":
            given: Any = named_arguments(call_of(user, lowering.facts, lowering.model))
            if getattr(given.get("data_in_0"), "node", None) is node and given.get("weight") is not None:
                yield int(given["weight"].shape[0])
        elif _is_index(lowering.facts.get(user)) and _is_holding_values(lowering, user, node):
            yield from _embedding_rows(lowering, user, seen)


def _is_holding_values(lowering: Lowering, user: fx.Node, node: fx.Node) -> bool:
    """Does another node give the values of this one? Not if only its size matters."""
    operator = operator_of(user, lowering.model)
    return operator not in OF_SIZES and (operator not in LIKE_ANOTHER or user.all_input_nodes[0] is node)


def _is_index(fact: Any) -> bool:
    """Is it a tensor of integers, or a tuple with one?"""
    if isinstance(fact, tuple):
        return any(map(_is_index, fact))
    return isinstance(fact, TensorType) and fact.dtype.startswith("int")


# Values computed from integers and flags only: the graph does not round them, since they are no data, and they are
# exact.

#: Zeros and ones.
FLAGS = FixedPoint(2, 0)
#: Bits of a function's result for such a number: larger results saturate.
_WIDTH = 16


def is_count(lowering: Lowering, node: fx.Node) -> bool:
    """Does a tensor depend on integers or flags, and on no float among inputs and parameters?"""
    fact = lowering.facts.get(node)
    if not isinstance(fact, TensorType) or node.op in ("placeholder", "get_attr", "call_module"):
        return False
    sources = [each for each in node.all_input_nodes if isinstance(lowering.facts.get(each), TensorType)]
    if any(lowering.values(each) is not None and _is_held(each) for each in sources):
        return False
    open_ = [each for each in sources if lowering.values(each) is None]
    return bool(open_) and all(not _is_float(lowering, each) or is_count(lowering, each) for each in open_)


def _is_held(node: fx.Node) -> bool:
    """Is a constant a parameter or a buffer, or made of one?"""
    return node.op == "get_attr" or any(map(_is_held, node.all_input_nodes))


def _is_float(lowering: Lowering, node: fx.Node) -> bool:
    return str(lowering.facts[node].dtype).startswith(("float", "bfloat"))


def finish_count(lowering: Lowering, node: fx.Node, held: Held) -> Held:
    """The result of a node; in an exact format if it is a count that the graph does not round."""
    if not isinstance(held, Unrounded) or any(format_text(user) for user in node.users):
        return held
    exactly = is_count(lowering, node) or (held.kind == "elementwise" and _adds_count(lowering, node))
    format = _find_exact_format(lowering, held) if exactly else None
    return held if format is None else lowering.add(held, format)


def _adds_count(lowering: Lowering, node: fx.Node) -> bool:
    """Is one operand a count? quantize takes it for a mask then, and leaves the sum unrounded."""
    return any(is_count(lowering, each) for each in node.all_input_nodes)


def _find_exact_format(lowering: Lowering, held: Unrounded) -> FixedPoint | None:
    """A format that holds every value exactly; None if that is not known."""
    before = [lowering.stream(name).format for name in held.inputs]
    if held.kind == "table":
        values = possible_values(lowering, held.inputs[0])
        return _of_values(held.options["function"], _all_values(before[0]) if values is None else values)
    if held.kind == "reduce" and held.options["function"] == "sum":
        count = lowering.stream(held.inputs[0]).size
        return FixedPoint(before[0].width + (count - 1).bit_length(), before[0].fraction_width)
    if held.kind != "elementwise":
        return None
    fractions = [each.fraction_width for each in before]
    if held.options["function"] == "mul":
        return FixedPoint(sum(each.width for each in before), sum(fractions))
    whole = max(each.width - each.fraction_width for each in before)
    return FixedPoint(whole + max(fractions) + 1, max(fractions))


def possible_values(lowering: Lowering, name: str) -> Tensor | None:
    """The numbers that a stream may have if they are few: flags, and functions of them. None if unknown."""
    operation = lowering.operations[name]
    if operation.out.format == FLAGS or operation.out.format.integers == (0, 1):
        return torch.tensor([0.0, 1.0], dtype=torch.float64)
    if operation.kind not in ("table", "move", "take", "gather", "swap"):
        return None
    before = possible_values(lowering, operation.inputs[0])
    if before is None or operation.kind != "table":
        return before
    format, function = operation.out.format, operation.options["function"]
    return format.decode(format.encode(function(before)))


def _all_values(format: FixedPoint) -> Tensor:
    low, high = format.integers
    return format.decode(torch.arange(low, high + 1))


def _of_values(function: Callable[[Tensor], Tensor], before: Tensor) -> FixedPoint:
    """A format for the values of a table: all bits that its largest value leaves after the point."""
    values = function(before)
    largest = float(values[values.isfinite()].abs().max().clamp(max=2.0**14)) if values.isfinite().any() else 1.0
    whole = (int(largest) + 1).bit_length()
    if bool((values == values.round()).all()):
        return FixedPoint(min(whole + 1, _WIDTH), 0)
    return FixedPoint(_WIDTH, _WIDTH - 1 - whole)
