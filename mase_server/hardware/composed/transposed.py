"""Transposed convolutions, as one convolution whose channels become pixels.

The result at row o is the sum of weight[k] * x[i] over all k and i with i * stride + k * dilation - padding = o. So
all rows with the same remainder of o by the stride use the same k: they are a convolution of the image. All
remainders of rows and columns together are one convolution with stride ** 2 times the filters, whose channels become
pixels. Nothing is multiplied with zeros between pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.composed.steps import Steps
from mase_server.hardware.held import Held, Later, Whole
from mase_server.hardware.kinds.conv2d import pad_image, pixels_of
from mase_server.hardware.kinds.gather import arrange_elements
from mase_server.hardware.kinds.kind import Settings, image_order, image_size

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


@dataclass(frozen=True, slots=True)
class Axis:
    """Rows or columns of a transposed convolution. size: of the image.  count: of the result."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    size: int
    count: int

    @property
    def taps(self) -> dict[tuple[int, int], int]:
        """(remainder of the result's row, row of the image relative to the quotient) -> row of the kernel."""
        found = {}
        for remainder, row in product(range(self.stride), range(self.kernel)):
            offset, rest = divmod(remainder + self.padding - row * self.dilation, self.stride)
            if rest == 0:
                found[remainder, offset] = row
        return found

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the last row that a quotient needs, relative to it."""
        offsets = [offset for _, offset in self.taps]
        return min(0, *offsets), max(0, *offsets)

    @property
    def border(self) -> tuple[int, int]:
        """Rows of zeros before and after the image."""
        first, last = self.reach
        quotients = -(-self.count // self.stride)
        return -first, max(0, quotients - 1 + last - (self.size - 1))

    @property
    def length(self) -> int:
        """Rows of the kernel of the convolution."""
        first, last = self.reach
        return last - first + 1


def _lower_transposed_convolution(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    steps, source = Steps(lowering, node), pixels_of(lowering, given)
    settings, constants = Settings.of(lowering, node, given), lowering.weights(given, "weight")
    shape, groups = lowering.sample(node), int(settings.get("groups", 1))
    if settings.one_row:
        constants["weight"] = constants["weight"].moved(lambda weight: weight[:, :, None])
    axes = _transposed_axes(settings, constants["weight"].shape[2:], steps.stream(source).shape, shape)
    filters = {"weight": constants["weight"].moved(lambda weight: convolution_weights(weight, axes, groups))}
    if (bias := constants.get("bias")) is not None:
        filters["bias"] = bias.moved(lambda values: _of_filters(values, axes, groups))
    (top, bottom), (left, right) = (axis.border for axis in axes)
    if any((top, bottom, left, right)):
        source = pad_image(lowering, source, (left, right, top, bottom), nodes=(node.name,))

    def finish(format: FixedPoint) -> Whole:
        _, *size = image_size(steps.stream(source).shape)
        out = filters["weight"].shape[0], *(each - axis.length + 1 for each, axis in zip(size, axes, strict=True))
        windows = Windows((axes[0].length, axes[1].length), (1, 1), (0, 0), (1, 1))
        options = {"windows": windows, "groups": groups, "relu": False}
        made = steps.add("conv2d", [source], format, out, options, filters)
        places = _place_pixels(axes, image_size(shape), out, groups)
        return Whole(arrange_elements(lowering, made, places, shape, image_order(shape), (node.name,)))

    return Later(finish)


def _transposed_axes(
    settings: Settings, kernel: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[Axis, Axis]:
    stride, padding, dilation = (settings.pair(*each) for each in (("stride", 1), ("padding", 0), ("dilation", 1)))
    (_, *size), (_, *count) = image_size(before), image_size(after)
    rows, columns = (
        Axis(kernel[dim], stride[dim], padding[dim], dilation[dim], size[dim], count[dim]) for dim in (0, 1)
    )
    return rows, columns


def convolution_weights(weight: Tensor, axes: tuple[Axis, Axis], groups: int) -> Tensor:
    """The weights [filters, in / groups, rows, columns] of the convolution, from a transposed one's [in, out / groups,
    rows, columns]. Filters are ordered by group, remainder of rows, remainder of columns, and channel."""
    rows, columns = axes
    channels, filters, *_ = weight.shape
    split = weight.reshape(groups, channels // groups, filters, *weight.shape[2:])
    found = weight.new_zeros(
        groups, rows.stride, columns.stride, filters, channels // groups, rows.length, columns.length
    )
    for ((row, down), tap), ((column, right), other) in product(rows.taps.items(), columns.taps.items()):
        place = down - rows.reach[0], right - columns.reach[0]
        found[:, row, column, :, :, place[0], place[1]] = split[:, :, :, tap, other].transpose(1, 2)
    return found.reshape(-1, channels // groups, rows.length, columns.length)


def _of_filters(values: Tensor, axes: tuple[Axis, Axis], groups: int) -> Tensor:
    """For each filter, the number of its channel."""
    split = values.reshape(groups, 1, -1).expand(groups, axes[0].stride * axes[1].stride, -1)
    return split.reshape(-1)


def _place_pixels(axes: tuple[Axis, Axis], shape: tuple[int, int, int], before: tuple[int, ...], groups: int) -> Tensor:
    """For each element of the result, row-major, the index of the convolution's element."""
    channels, *_ = shape
    channel = torch.arange(channels)[:, None, None]
    row, column = torch.arange(shape[1])[:, None], torch.arange(shape[2])
    (down, right), each = (axis.stride for axis in axes), channels // groups
    phase = (row % down) * right + column % right
    filters = (channel // each * (down * right) + phase) * each + channel % each
    return ((filters * before[1] + row // down) * before[2] + column // right).reshape(-1)


COMPOSED = dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), _lower_transposed_convolution)
