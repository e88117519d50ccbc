"""Pooling and resampling. A fixed window costs its volume for each element of the result; an adaptive one costs 1 for
each element of the input (the windows tile it, where the sizes divide); lp pooling 2 * volume + 1; unpooling nothing.

Resampling costs the taps of its filter for each element of the result, 2 operations a tap: nearest 0, linear 2 taps a
dimension, cubic 4.
"""

from __future__ import annotations

from math import prod
from typing import Any

from mase_server.ops.costs import argument, each_input, free, output_elements, setting
from mase_server.ops.rows import rows
from mase_server.ops.types import Formula, OpCall, tensors


def windowed(dimensions: int) -> Formula:
    """The volume of the window for each element of the result."""
    return lambda call: output_elements(call) * volume(_kernel(call, 1), dimensions)


def power_window(dimensions: int) -> Formula:
    """A power and an addition for each element of the window, then one root."""
    return lambda call: output_elements(call) * (2 * volume(_kernel(call, 2), dimensions) + 1)


def volume(size: Any, dimensions: int) -> int:
    """Elements of a window: an int counts for every dimension, as does a sequence of one."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return prod(sizes) if len(sizes) == dimensions else int(sizes[0]) ** dimensions


def _kernel(call: OpCall, position: int) -> Any:
    return setting(call, "kernel_size", argument(call, position, "kernel_size", 1))


TAPS = {"linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}


def resampled(position: int) -> Formula:
    """2 * taps for each element of the result, by the mode given at `position`."""

    def flops(call: OpCall) -> int:
        mode = setting(call, "mode", argument(call, position, "mode", "nearest"))
        return 2 * TAPS.get(mode, 0) * output_elements(call)

    return flops


def grid_sampled(call: OpCall) -> int:
    """Linear taps in 2 or 3 dimensions (2 operations each), none for "nearest"."""
    mode = argument(call, 2, "mode", "bilinear")
    if mode in ("nearest", 1):
        return 0
    dimensions = len(next(tensors(call.result)).shape) - 2
    return 2 * (16 if mode in ("bicubic", 2) else 2**dimensions) * output_elements(call)


def _each_dimension() -> tuple[Any, ...]:
    made: list[Any] = []
    for d in (1, 2, 3):
        made += rows(
            "pool",
            windowed(d),
            f"avg_pool{d}d:AvgPool{d}d max_pool{d}d=max_pool{d}d,F._max_pool{d}d:MaxPool{d}d "
            f"max_pool{d}d_with_indices=max_pool{d}d_with_indices,F.max_pool{d}d_with_indices "
            f"quantized_max_pool{d}d mkldnn_max_pool{d}d "
            f"fractional_max_pool{d}d=fractional_max_pool{d}d,F._fractional_max_pool{d}d:FractionalMaxPool{d}d "
            f"fractional_max_pool{d}d_with_indices",
        )
        made += rows("pool", power_window(d), f"lp_pool{d}d:LPPool{d}d")
        made += rows(
            "pool",
            each_input(1),
            f"adaptive_avg_pool{d}d:AdaptiveAvgPool{d}d mkldnn_adaptive_avg_pool{d}d "
            f"adaptive_max_pool{d}d=adaptive_max_pool{d}d,F._adaptive_max_pool{d}d:AdaptiveMaxPool{d}d "
            f"adaptive_max_pool{d}d_with_indices",
        )
        made += rows("pool", free, f"max_unpool{d}d:MaxUnpool{d}d")
    return tuple(made)


ROWS = (
    *_each_dimension(),
    *rows("pool", resampled(3), "interpolate upsample:Upsample"),
    *rows("pool", lambda call: 8 * output_elements(call), "upsample_bilinear:UpsamplingBilinear2d"),
    *rows("pool", free, "upsample_nearest:UpsamplingNearest2d"),
    *rows("pool", grid_sampled, "grid_sample grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler"),
)
