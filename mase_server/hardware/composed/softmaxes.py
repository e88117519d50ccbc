"""Softmax over any dimension, its logarithm, and the logarithm of a sum of exponentials.

log_softmax(x) = x - (m + log(sum(exp(x - m)))), where m is the maximum: the sum is exact, its logarithm a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed.steps import UNIT, Steps, at_most, dim_of, exact_format
from mase_server.hardware.held import Held, Later, Masked, NoHardware, Whole, node_of
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.kind import Settings

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


def _lower_any_softmax(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Over the last dimension there is a component; any other dimension is moved there."""
    source = node_of(given["data_in_0"])
    rank = len(lowering.facts[source].shape)
    dim = Settings.of(lowering, node, given).get("dim", -1) % rank
    if dim == rank - 1 or isinstance(lowering.held[source], Masked) or source in lowering.layouts:
        return KINDS["softmax"].rules["softmax"](lowering, node, given)
    steps = Steps(lowering, node)
    name, place = lowering.whole(source), dim_of(steps, dim, source)
    turned = [each for each in range(rank - 1) if each != place] + [place]
    rows = steps.by_rows(steps.turned(name, turned))

    def finish(format: FixedPoint) -> Whole:
        made = steps.add("softmax", [rows], format, steps.stream(rows).shape)
        return Whole(steps.turned(made, [turned.index(each) for each in range(rank - 1)]))

    return Later(finish)


def _log_softmax(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    steps, source = Steps(lowering, node), node_of(given["data_in_0"])
    dim = Settings.of(lowering, node, given).get("dim")
    if dim is None:
        raise NoHardware("its dimension is not given; pass dim")
    name = lowering.whole(source)
    return steps.last_pair("sub", name, _log_sum(steps, name, [dim_of(steps, dim, source)]))


def _log_sum(steps: Steps, name: str, dims: list[int]) -> str:
    """The logarithm of the sum of exponentials over dimensions, which are kept with size one."""
    largest = steps.reduced("max", name, dims)
    below = steps.paired(
        "sub", name, largest, at_most(exact_format("sub", steps.stream(name).format, steps.stream(largest).format))
    )
    total = steps.reduced("sum", steps.table(below, torch.exp, UNIT), dims, _of_sums(steps, name, dims))
    return steps.paired("add", largest, steps.table(total, _log_of_sums, FixedPoint(16, 11)))


def _of_sums(steps: Steps, name: str, dims: list[int]) -> FixedPoint:
    """A format for sums of numbers up to one, in as many bits as a table can take."""
    count = math.prod(steps.stream(name).shape[dim] for dim in dims)
    return FixedPoint(16, 15 - count.bit_length())


def _log_of_sums(values: Tensor) -> Tensor:
    """The logarithm of sums, which are never below one because the maximum contributes one."""
    return values.clamp(min=1).log()


COMPOSED = {"softmax": _lower_any_softmax, "log_softmax": _log_softmax}
