"""Convolutions: 2 operations per multiply-accumulate, padding included, biases not, as torch.utils.flop_counter counts.

Each output element costs in_channels / groups * kernel; of a transposed convolution each *input* element costs
out_channels / groups * kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any

from mase_server.ops.costs import argument, input_elements, output_elements
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall, TensorType


def convolution(call: OpCall) -> int:
    """2 * elements of the result * in_channels / groups * kernel."""
    return 2 * output_elements(call) * _filter(call)


def transposed(call: OpCall) -> int:
    """2 * elements of the input * out_channels / groups * kernel."""
    return 2 * input_elements(call) * _filter(call)


def _filter(call: OpCall) -> int:
    """Size of one filter: all of the weight's dimensions but the first."""
    if call.module is not None:
        module: Any = call.module
        channels: int = module.out_channels if module.transposed else module.in_channels
        kernel: tuple[int, ...] = module.kernel_size
        return channels // int(module.groups) * prod(kernel)
    weight: TensorType = argument(call, 1, "weight")
    return prod(weight.shape[1:])


def time_batch(call: OpCall) -> int:
    """conv_tbc, whose weight is (kernel, in_channels, out_channels)."""
    weight: TensorType = argument(call, 1, "weight")
    return 2 * output_elements(call) * prod(weight.shape[:2])


def any_convolution(call: OpCall) -> int:
    """torch.convolution, whose seventh argument says whether it is transposed."""
    return transposed(call) if argument(call, 6, "transposed", False) else convolution(call)


ROWS = (
    *rows("conv", convolution, "conv1d:Conv1d,LazyConv1d conv2d:Conv2d,LazyConv2d conv3d:Conv3d,LazyConv3d"),
    *rows(
        "conv",
        transposed,
        "conv_transpose1d:ConvTranspose1d,LazyConvTranspose1d conv_transpose2d:ConvTranspose2d,LazyConvTranspose2d "
        "conv_transpose3d:ConvTranspose3d,LazyConvTranspose3d",
    ),
    *rows("conv", time_batch, "conv_tbc"),
    *rows("conv", any_convolution, "convolution _convolution"),
    *rows(
        "conv",
        convolution,
        "cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution "
        "miopen_depthwise_convolution miopen_convolution_relu miopen_convolution_add_relu mkldnn_convolution",
    ),
    *rows("conv", transposed, "cudnn_convolution_transpose miopen_convolution_transpose"),
)
