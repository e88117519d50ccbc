"""Gated linear units, slopes of channels (PReLU), and the larger or smaller of two tensors."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mase_server.hardware.composed.steps import UNIT, Steps, dim_of
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Held, NoHardware, node_of
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.kind import Rule, Settings

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


def _lower_glu(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """x * sigmoid(y), of the halves x and y of a tensor."""
    steps, source = Steps(lowering, node), node_of(given["data_in_0"])
    name = lowering.whole(source)
    dim = dim_of(steps, int(Settings.of(lowering, node, given).get("dim", -1)), source)
    half = steps.stream(name).shape[dim] // 2
    gate = steps.table(steps.part(name, dim, half, half), torch.sigmoid, UNIT)
    return steps.last_pair("mul", steps.part(name, dim, 0, half), gate)


def _lower_prelu(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """A single slope is a function of one number; with one for each channel it is max(x, 0) + slope * min(x, 0)."""
    weight = lowering.held[node_of(given["weight"])]
    if not isinstance(weight, Constant) or prod(weight.shape) == 1:
        return KINDS["table"].rules["prelu"](lowering, node, given)
    steps, name = Steps(lowering, node), lowering.whole(node_of(given["data_in_0"]))
    before = steps.stream(name)
    slopes = weight.format.decode(weight.integers).reshape(-1, *(1 for _ in before.shape[1:]))
    slope = steps.constant(slopes, weight.format, before.shape, before.indices)
    below = steps.paired("mul", steps.table(name, lambda values: values.clamp(max=0), before.format), slope)
    above = steps.table(name, lambda values: values.clamp(min=0), before.format)
    return steps.last_pair("add", above, below)


def _extreme_rule(is_largest: bool) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        """max(x, y) = max(x - y, 0) + y, and min(x, y) = y - max(y - x, 0)."""
        steps = Steps(lowering, node)
        if "data_in_1" not in given:
            raise NoHardware("it goes over the whole batch; give the dimension")
        first, second = (lowering.whole(node_of(given[key])) for key in ("data_in_0", "data_in_1"))
        if len(steps.stream(first).shape) != len(steps.stream(second).shape):
            raise NoHardware("its operands have different numbers of dimensions; unsqueeze one of them")
        if is_largest:
            return steps.last_pair("add", steps.paired("sub", first, second, relu=True), second)
        return steps.last_pair("sub", second, steps.paired("sub", second, first, relu=True))

    return rule


COMPOSED = {"glu": _lower_glu, "prelu": _lower_prelu, "maximum": _extreme_rule(True), "minimum": _extreme_rule(False)}
