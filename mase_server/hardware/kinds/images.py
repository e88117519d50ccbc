"""Windows over images, as layers are called with them. What is [channels, length] is an image of one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.design import Design, Operation, Stream, row_major
from mase_server.hardware.held import NoHardware, node_of
from mase_server.hardware.kinds.settings import image_order, image_size
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.wiring import Parameters

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


def by_pixels(lowering: Lowering, unrounded: object, out: Stream) -> Stream:
    """Results that are images flow pixel by pixel."""
    return Stream(out.format, out.shape, row_major(image_order(out.shape)))


def pixels_of(lowering: Lowering, given: Mapping[str, Any]) -> str:
    """The operation that gives the image that a node reads, pixel by pixel. NoHardware for what is no image."""
    return pixels_of_stream(lowering, lowering.whole(node_of(given["data_in_0"])))


def pixels_of_stream(lowering: Lowering, name: str) -> str:
    """The operation that gives an image pixel by pixel."""
    shape = lowering.stream(name).shape
    if len(shape) not in (2, 3):
        raise NoHardware(f"it has {list(shape)} a sample, an image is [channels, rows, columns]")
    return in_order(lowering, name, image_order(shape))


def image_parameters(design: Design, operation: Operation, lanes: int, windows: Windows) -> Parameters:
    """Parameters of what goes over an image with windows: its sizes, channels first, and the windows."""
    channels, height, width = image_size(design.operations[operation.inputs[0]].out.shape)
    (kernel_height, kernel_width), (stride_height, stride_width) = windows.kernel, windows.stride
    rows, columns = windows.padding
    return {
        "DATA_IN_0_TENSOR_SIZE_DIM_0": channels,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": width,
        "DATA_IN_0_TENSOR_SIZE_DIM_2": height,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "KERNEL_HEIGHT": kernel_height,
        "KERNEL_WIDTH": kernel_width,
        "STRIDE_HEIGHT": stride_height,
        "STRIDE_WIDTH": stride_width,
        "PADDING_TOP": rows,
        "PADDING_BOTTOM": rows,
        "PADDING_LEFT": columns,
        "PADDING_RIGHT": columns,
        "SPARE": spare(design, operation, windows),
    }


def spare(design: Design, operation: Operation, windows: Windows) -> int:
    """Pixels to keep beside those of a window, so that who gives them never waits if it is no faster.

    As many as from a window's first pixel to its last: when the last window of an image begins, that much of the next
    image may be there.  No less than the rows between two windows.  And a row, because nobody is quite even.
    """
    width = image_size(design.operations[operation.inputs[0]].out.shape)[2] + 2 * windows.padding[1]
    return max((windows.reach[0] - 1) * width + windows.reach[1], windows.stride[0] * width) + width


def arrival(design: Design, operation: Operation, lanes: int, windows: Windows) -> int:
    """Cycles in which an image and its border come."""
    channels, height, width = image_size(design.operations[operation.inputs[0]].out.shape)
    rows, columns = windows.padding
    return (height + 2 * rows) * (width + 2 * columns) * channels // lanes


def reach_of_windows(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """Each window is needed to its last pixel, which may be in the border."""
    channels, height, width = image_size(design.operations[operation.inputs[0]].out.shape)
    filters, rows, columns = image_size(operation.out.shape)
    windows: Windows = operation.options["windows"]
    kernel_rows, kernel_columns = windows.reach
    (row_step, column_step), (above, left) = windows.stride, windows.padding
    row = torch.arange(rows)[:, None] * row_step + kernel_rows - 1 - above
    column = torch.arange(columns) * column_step + kernel_columns - 1 - left
    # What lies right of a row is needed no later than the row's end; what lies below the image at its end.
    last = torch.where(row < 0, -1, row * width + column.clamp(-1, width - 1))
    pixels = last.clamp(0, height * width - 1)
    return (((pixels + 1) * channels - 1).reshape(-1).repeat_interleave(filters),)
