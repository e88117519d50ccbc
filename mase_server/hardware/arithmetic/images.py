"""Convolution, pooling and reduction: `rtl/fixed_conv2d.sv`, `rtl/fixed_max_pool.sv`, `rtl/fixed_average_pool.sv`,
`rtl/fixed_reduce.sv`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic.elements import divide, requantise
from mase_server.hardware.arithmetic.linear import EXACT, Affine, finish_products

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows on an image: sizes and steps, rows before columns. padding: on both sides of each."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    @property
    def reach(self) -> Pair:
        """Rows and columns from a window's first to its last pixel."""
        rows, columns = self.dilation
        return (self.kernel[0] - 1) * rows + 1, (self.kernel[1] - 1) * columns + 1

    def count(self, height: int, width: int) -> Pair:
        """The number of rows and columns of windows on an image. ValueError if not even one fits."""
        rows, columns = (
            (size + 2 * padding - reach) // stride + 1
            for size, reach, stride, padding in zip((height, width), self.reach, self.stride, self.padding, strict=True)
        )
        if rows < 1 or columns < 1:
            raise ValueError(f"a window of {self.reach} does not fit into {height} x {width}, padded by {self.padding}")
        return rows, columns

    def padded(self, values: Tensor, fill: int) -> Tensor:
        """Images with their border."""
        rows, columns = self.padding
        return functional.pad(values, (columns, columns, rows, rows), value=fill)

    def unfolded(self, values: Tensor, fill: int) -> Tensor:
        """[N, C, H, W] -> [N, C, rows, columns, kernel height * kernel width]."""
        self.count(*values.shape[-2:])
        high = self.padded(values, fill).unfold(2, self.reach[0], self.stride[0])
        wide = high.unfold(3, self.reach[1], self.stride[1])
        return wide[..., :: self.dilation[0], :: self.dilation[1]].flatten(-2)


def conv2d(
    values: Tensor, weight: Tensor, bias: Tensor | None, formats: Affine, windows: Windows, groups: int = 1
) -> Tensor:
    """activation(conv2d(values, weight) + bias) in integers: [N, C, H, W], [O, C / groups, kh, kw], [O], int64.

    [N, C, W] counts as one row, in pools too.  Sums are exact and rounded once, as in `linear`.  ValueError: a sum
    needs more than 63 bits.
    """
    if values.dim() == 3:
        return conv2d(values[:, :, None], weight, bias, formats, windows, groups).squeeze(2)
    length = weight[0].numel()
    formats.check(length)
    windows.count(*values.shape[-2:])
    padded = windows.padded(values, 0)
    if 1 << (formats.accumulator_width(length) - 1) <= EXACT:
        floats = padded.double(), weight.double(), None, windows.stride, 0, windows.dilation, groups
        products = functional.conv2d(*floats).to(torch.int64)
    else:
        products = _by_windows(padded, weight, replace(windows, padding=(0, 0)), groups)
    return finish_products(products.movedim(1, -1), bias, formats).movedim(-1, 1)


def _by_windows(values: Tensor, weight: Tensor, windows: Windows, groups: int) -> Tensor:
    """The same in int64 where doubles would not be exact: slower."""
    unfolded = windows.unfolded(values, 0)
    images, channels, rows, columns, size = unfolded.shape
    parts = unfolded.reshape(images, groups, channels // groups, rows, columns, size)
    kernels = weight.reshape(groups, -1, channels // groups, size)
    return torch.einsum("ngchwk,gock->ngohw", parts, kernels).reshape(images, -1, rows, columns)


def max_pool2d(values: Tensor, windows: Windows) -> Tensor:
    """The largest integer of each window, [N, C, H, W] -> [N, C, rows, columns]; borders are never the largest."""
    if values.dim() == 3:
        return max_pool2d(values[:, :, None], windows).squeeze(2)
    return windows.unfolded(values, torch.iinfo(torch.int64).min).amax(-1)


def average_pool2d(values: Tensor, data: FixedPoint, out: FixedPoint, windows: Windows) -> Tensor:
    """The mean of each window, with borders as zeros, rounded once: half to even, saturated; int64."""
    if values.dim() == 3:
        return average_pool2d(values[:, :, None], data, out, windows).squeeze(2)
    return mean(windows.unfolded(values, 0), data, out)


def reduced(values: Tensor, function: str, data: FixedPoint, out: FixedPoint) -> Tensor:
    """The "mean", "sum", "max" or "argmax" over the last dimension, int64: `rtl/fixed_reduce.sv`.

    Mean and sum are rounded once, half to even, and saturated. The maximum keeps its format. The index is that of the
    first of several largest ones.
    """
    if function == "max":
        return values.amax(-1)
    if function == "argmax":
        return values.max(-1).indices
    if function == "sum":
        return requantise(values.sum(-1), data.fraction_width, out)
    return mean(values, data, out)


def top_k(values: Tensor, count: int, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `count` largest, or smallest, along the last dimension, the first place first, and their indices, int64:
    `rtl/fixed_top_k.sv`.

    Of equal ones the one with the lower index comes first: one of the answers that torch.topk may give.
    """
    found = values.sort(stable=True, dim=-1, descending=largest)
    return found.values[..., :count], found.indices[..., :count]


def mean(values: Tensor, data: FixedPoint, out: FixedPoint) -> Tensor:
    """The mean over the last dimension, rounded once: half to even, saturated; int64.

    It rounds the exact fraction sum / count, so it equals torch's mean, quantised, wherever that is exact enough.
    """
    shift = out.fraction_width - data.fraction_width
    total, count = values.sum(-1), values.shape[-1]
    numerator, denominator = total << max(shift, 0), count << max(-shift, 0)
    return requantise(divide(numerator, denominator), out.fraction_width, out)
