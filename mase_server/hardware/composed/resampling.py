"""Resampling with fixed weights along rows and columns: bilinear enlarging, and means of uneven windows.

The result is rows @ image @ columns.T, so it is two linear layers with an exact transposition before each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed.steps import UNIT, Steps
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Held, Later, NoHardware, Whole, node_of
from mase_server.hardware.kinds import RULES
from mase_server.hardware.kinds.kind import Rule, Settings

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: Additional bits of the numbers between the two layers.
_SPARE = 8
#: The largest accepted error of the two layers against the operator, for numbers of about one.
_OFF = 1e-3


def _lower_resampling(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    steps, name = Steps(lowering, node), lowering.whole(source)
    shape = steps.stream(name).shape
    if len(shape) not in (2, 3):
        raise NoHardware(f"it has {list(shape)} a sample; images of rows and columns have hardware")
    matrices = [_weights_along_axis(lowering, node, source, axis) for axis in range(1, len(shape))]
    _check_separable(lowering, node, source, matrices)
    for axis, matrix in reversed(list(enumerate(matrices[1:], 2))):
        name = _multiply_along_axis(steps, name, axis, matrix, widen_both_sides(steps.stream(name).format))

    def finish(format: FixedPoint) -> Whole:
        return Whole(_multiply_along_axis(steps, name, 1, matrices[0], format))

    return Later(finish)


def widen_both_sides(format: FixedPoint) -> FixedPoint:
    """The format with spare bits on both sides, because weights may sum up to more than one."""
    return FixedPoint(format.width + _SPARE + 1, format.fraction_width + _SPARE)


def _weights_along_axis(lowering: Lowering, node: fx.Node, source: fx.Node, axis: int) -> Tensor:
    """The weights along one dimension of a sample, [after, before]: the operator's result for each single line of
    ones."""
    shape = lowering.sample(source)
    size = shape[axis]
    lines = torch.zeros(size, *shape)
    lines.movedim(axis + 1, 1)[torch.arange(size), torch.arange(size)] = 1.0
    found = lowering.evaluated(node, {source: lines}).movedim(axis + 1, -1)
    return found.reshape(size, -1, found.shape[-1])[:, 0].T


def _check_separable(lowering: Lowering, node: fx.Node, source: fx.Node, matrices: Sequence[Tensor]) -> None:
    """Raise NoHardware if the operator is not a product of its weights along rows and along columns."""
    values = torch.randn(2, *lowering.sample(source), generator=torch.Generator().manual_seed(0))
    expected, found = lowering.evaluated(node, {source: values}), values
    for axis, matrix in enumerate(matrices, 2):
        found = (found.movedim(axis, -1) @ matrix.T).movedim(-1, axis)
    if found.shape != expected.shape or float((found - expected).abs().max()) > _OFF:
        raise NoHardware("it does not mix rows and columns with fixed weights; 'nearest' and 'bilinear' do")


def _multiply_along_axis(steps: Steps, name: str, axis: int, matrix: Tensor, format: FixedPoint) -> str:
    """Multiply every line along a dimension by a matrix."""
    rank = len(steps.stream(name).shape)
    turned = [each for each in range(rank) if each != axis] + [axis]
    rows = steps.by_rows(steps.turned(name, turned))
    shape = (*steps.stream(rows).shape[:-1], len(matrix))
    weight = Constant(UNIT.encode(matrix.double()), UNIT)
    made = steps.add("linear", [rows], format, shape, {"relu": False}, {"weight": weight})
    return steps.turned(made, [turned.index(each) for each in range(rank)])


def _lower_interpolation(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """An interpolation that only repeats pixels moves elements; others multiply."""
    mode = Settings.of(lowering, node, given).get("mode", "nearest")
    return (RULES["interpolate"] if mode.startswith("nearest") else _lower_resampling)(lowering, node, given)


def _adaptive_pool_rule(name: str) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        """Windows of equal size are a pool; others multiply."""
        pairs = zip(lowering.sample(node_of(given["data_in_0"]))[1:], lowering.sample(node)[1:], strict=True)
        equal = all(before % after == 0 for before, after in pairs)
        return (RULES[name] if equal else _lower_resampling)(lowering, node, given)

    return rule


def _average_pool_rule(name: str) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        """If windows at the border have fewer pixels, each mean has its own divisor."""
        settings = Settings.of(lowering, node, given)
        counts_less = not settings.get("count_include_pad", True) and settings.pair("padding", 0) != (0, 0)
        uneven = counts_less or settings.get("ceil_mode", False)
        usual = not uneven or settings.get("divisor_override") is not None
        return (RULES[name] if usual else _lower_resampling)(lowering, node, given)

    return rule


COMPOSED: Mapping[str, Rule] = {
    **dict.fromkeys(("interpolate", "upsample"), _lower_interpolation),
    **{name: _adaptive_pool_rule(name) for name in ("adaptive_avg_pool1d", "adaptive_avg_pool2d")},
    **{name: _average_pool_rule(name) for name in ("avg_pool1d", "avg_pool2d")},
}
