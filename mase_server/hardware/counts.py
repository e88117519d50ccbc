"""What is computed from integers and flags alone: nobody rounds it, since it is no data, and it is exact as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.held import Held, Unrounded
from mase_server.ir.number_formats import format_text
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

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
    format = _exact(lowering, held) if is_count(lowering, node) else None
    return held if format is None else lowering.add(held, format)


def _exact(lowering: Lowering, held: Unrounded) -> FixedPoint | None:
    """A format that holds everything; None where that is not known."""
    before = [lowering.stream(name).format for name in held.inputs]
    if held.kind == "table":
        return _of_values(held.options["function"], before[0])
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


def _of_values(function: object, before: FixedPoint) -> FixedPoint:
    """As many bits after the point as what a table holds leaves."""
    assert callable(function)
    low, high = before.integers
    values = function(before.decode(torch.arange(low, high + 1)))
    largest = float(values[values.isfinite()].abs().max().clamp(max=2.0**14)) if values.isfinite().any() else 1.0
    fraction = 0 if bool((values == values.round()).all()) else _WIDTH - 1 - (int(largest) + 1).bit_length()
    return FixedPoint(_WIDTH, fraction)
