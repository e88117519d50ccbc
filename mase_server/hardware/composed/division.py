"""One tensor divided by another: times its reciprocal, from a table of all that it can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed.steps import Steps, finely
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Held, Known, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.table import by_number

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: Bits after the point of a reciprocal.
_FRACTION = 16


def _div(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    if (scaled := by_number(lowering, node)) is not None:
        return scaled
    if given.get("rounding_mode") is not None:
        raise NoHardware("it rounds the quotient down or towards zero; divide, then round with a function of its own")
    return quotient(lowering, node, node_of(given["data_in_0"]), node_of(given["data_in_1"]))


def quotient(lowering: Lowering, node: fx.Node, first: fx.Node, second: fx.Node) -> Unrounded:
    """A node that divides one tensor by another."""
    steps = Steps(lowering, node)
    numerator = _operand(steps, first)
    held = lowering.held[second]
    if isinstance(held, Known | Constant):
        inverse = _reciprocal_of_constant(steps, second)
    else:
        inverse = reciprocal(steps, lowering.whole(second))
    return steps.last_pair("mul", numerator, inverse)


def reciprocal(steps: Steps, name: str) -> str:
    """One over each number of a stream. The largest that there is stands for one over zero."""
    bits = max(0, steps.stream(name).format.fraction_width)
    return steps.table(name, _inverse, FixedPoint(_FRACTION + bits + 2, _FRACTION))


def _inverse(values: Tensor) -> Tensor:
    return values.reciprocal().nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


def _operand(steps: Steps, node: fx.Node) -> str:
    """The stream of an operand, a constant one too."""
    held = steps.lowering.held[node]
    if isinstance(held, Constant):
        values = held.format.decode(_sample(steps, node, held.integers))
        return steps.constant(values, held.format, tuple(values.shape))
    return steps.lowering.whole(node)


def _reciprocal_of_constant(steps: Steps, node: fx.Node) -> str:
    held = steps.lowering.held[node]
    values = held.values if isinstance(held, Known) else held.format.decode(held.integers)  # type: ignore[union-attr]
    inverse = _inverse(_sample(steps, node, values.double()))
    return steps.constant(inverse, finely(inverse, _FRACTION), tuple(inverse.shape))


def _sample(steps: Steps, node: fx.Node, values: Tensor) -> Tensor:
    """A constant as it stands beside one sample of the result."""
    rank = len(steps.lowering.facts[steps.node].shape)
    if values.dim() < rank:
        return values
    if values.dim() == rank and values.shape[0] == 1:
        return values[0]
    return steps.lowering.same_for_all(values, steps.node)


COMPOSED = {"div": _div}
