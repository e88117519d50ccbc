"""Dividing one tensor by another: multiplying by the reciprocal, from a table of all its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed.steps import Steps, fine_format
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Held, Known, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.elementwise import by_number

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: Bits after the point of a reciprocal.
_FRACTION = 16


def _lower_division(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    if (scaled := by_number(lowering, node)) is not None:
        return scaled
    if given.get("rounding_mode") is not None:
        raise NoHardware("it rounds the quotient down or towards zero; divide, then round in a separate step")
    return lower_quotient(lowering, node, node_of(given["data_in_0"]), node_of(given["data_in_1"]))


def lower_quotient(lowering: Lowering, node: fx.Node, first: fx.Node, second: fx.Node) -> Unrounded:
    """Lower a node that divides one tensor by another."""
    steps = Steps(lowering, node)
    numerator = _operand_stream(steps, first)
    held = lowering.held[second]
    if isinstance(held, Known | Constant):
        inverse = _reciprocal_of_constant(steps, second)
    else:
        inverse = reciprocal_stream(steps, lowering.whole(second))
    return steps.last_pair("mul", numerator, inverse)


def reciprocal_stream(steps: Steps, name: str) -> str:
    """The reciprocal of each number of a stream. One over zero becomes the largest number of the format."""
    bits = max(0, steps.stream(name).format.fraction_width)
    return steps.table(name, _invert_values, FixedPoint(_FRACTION + bits + 2, _FRACTION))


def _invert_values(values: Tensor) -> Tensor:
    return values.reciprocal().nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


def _operand_stream(steps: Steps, node: fx.Node) -> str:
    """The stream of an operand, also of a constant one."""
    held = steps.lowering.held[node]
    if isinstance(held, Constant):
        values = held.format.decode(_constant_of_sample(steps, node, held.integers))
        return steps.constant(values, held.format, tuple(values.shape))
    return steps.lowering.whole(node)


def _reciprocal_of_constant(steps: Steps, node: fx.Node) -> str:
    held = steps.lowering.held[node]
    values = held.values if isinstance(held, Known) else held.format.decode(held.integers)  # type: ignore[union-attr]
    inverse = _invert_values(_constant_of_sample(steps, node, values.double()))
    return steps.constant(inverse, fine_format(inverse, _FRACTION), tuple(inverse.shape))


def _constant_of_sample(steps: Steps, node: fx.Node, values: Tensor) -> Tensor:
    """A constant, as it is beside one sample of the result."""
    rank = len(steps.lowering.facts[steps.node].shape)
    if values.dim() < rank:
        return values
    if values.dim() == rank and values.shape[0] == 1:
        return values[0]
    return steps.lowering.same_for_all(values, steps.node)


COMPOSED = {"div": _lower_division}
