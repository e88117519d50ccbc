"""What is computed from integers and flags alone: nobody rounds it, since it is no data, and it is exact as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.held import Held, Unrounded
from mase_server.ir.number_formats import format_text
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: Zeros and ones.
FLAGS = FixedPoint(2, 0)
#: Of a function of such a number: what is larger saturates.
_WIDTH = 16


def is_count(lowering: Lowering, node: fx.Node) -> bool:
    """Does a tensor depend on no float among inputs and parameters, but on integers or flags?"""
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


def finished(lowering: Lowering, node: fx.Node, held: Held) -> Held:
    """What a node gives, in an exact format where it is a count that nobody rounds."""
    if not isinstance(held, Unrounded) or any(format_text(user) for user in node.users):
        return held
    exactly = is_count(lowering, node) or (held.kind == "elementwise" and _adds_count(lowering, node))
    format = _exact(lowering, held) if exactly else None
    return held if format is None else lowering.add(held, format)


def _adds_count(lowering: Lowering, node: fx.Node) -> bool:
    """Is one operand a count? quantize takes it for a mask then, and leaves the sum as it is."""
    return any(is_count(lowering, each) for each in node.all_input_nodes)


def _exact(lowering: Lowering, held: Unrounded) -> FixedPoint | None:
    """A format that holds everything; None where that is not known."""
    before = [lowering.stream(name).format for name in held.inputs]
    if held.kind == "table":
        values = possible(lowering, held.inputs[0])
        return _of_values(held.options["function"], _all(before[0]) if values is None else values)
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


def possible(lowering: Lowering, name: str) -> Tensor | None:
    """The numbers that a stream of few may have: flags, and functions of them. None where that is not known."""
    operation = lowering.operations[name]
    if operation.out.format == FLAGS or operation.out.format.integers == (0, 1):
        return torch.tensor([0.0, 1.0], dtype=torch.float64)
    if operation.kind not in ("table", "move", "take", "gather", "swap"):
        return None
    before = possible(lowering, operation.inputs[0])
    if before is None or operation.kind != "table":
        return before
    format, function = operation.out.format, operation.options["function"]
    return format.decode(format.encode(function(before)))


def _all(format: FixedPoint) -> Tensor:
    low, high = format.integers
    return format.decode(torch.arange(low, high + 1))


def _of_values(function: Callable[[Tensor], Tensor], before: Tensor) -> FixedPoint:
    """As many bits after the point as what a table holds leaves."""
    values = function(before)
    largest = float(values[values.isfinite()].abs().max().clamp(max=2.0**14)) if values.isfinite().any() else 1.0
    whole = (int(largest) + 1).bit_length()
    if bool((values == values.round()).all()):
        return FixedPoint(min(whole + 1, _WIDTH), 0)
    return FixedPoint(_WIDTH, _WIDTH - 1 - whole)
