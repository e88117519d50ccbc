"""Fourier transforms: 5 * n * log2(n) operations for a complex transform of n points, half of that for a real one.

n is the product of the transformed dimensions: the last, the last two, or all, unless `dim` says otherwise.
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

from mase_server.ops.costs import argument, inputs
from mase_server.ops.rows import rows
from mase_server.ops.types import Formula, OpCall, TensorType, tensors


def transform(default_dims: int | None, scale: float) -> Formula:
    """`scale` * elements * log2(points), on the larger of input and result."""

    def flops(call: OpCall) -> int:
        tensor = max((*inputs(call)[:1], *tensors(call.result)), key=lambda t: t.numel)
        points = prod(tensor.shape[d] for d in _dimensions(call, tensor, default_dims))
        return tensor.numel // points * round(scale * points * log2(points)) if points > 1 else 0

    return flops


def _dimensions(call: OpCall, tensor: TensorType, default: int | None) -> tuple[int, ...]:
    dim: Any = argument(call, 2, "dim")
    if isinstance(dim, int):
        return (dim,)
    if dim is not None:
        return tuple(dim)
    return tuple(range(len(tensor.shape)))[-default if default else None :]


def short_time(call: OpCall) -> int:
    """A transform of n_fft points for each frame, and the window: half of 5 * n * log2(n), and n."""
    size = int(argument(call, 1, "n_fft"))
    given = max((*inputs(call)[:1], *tensors(call.result)), key=lambda t: t.numel)
    frames = given.numel // max(size // 2 + 1, 1)
    return frames * (round(2.5 * size * log2(size)) + size) if size > 1 else 0


ROWS = (
    *rows("fft", transform(1, 5.0), "fft.fft fft.ifft"),
    *rows("fft", transform(1, 2.5), "fft.rfft fft.irfft fft.hfft fft.ihfft"),
    *rows("fft", transform(2, 5.0), "fft.fft2 fft.ifft2"),
    *rows("fft", transform(2, 2.5), "fft.rfft2 fft.irfft2 fft.hfft2 fft.ihfft2"),
    *rows("fft", transform(None, 5.0), "fft.fftn fft.ifftn"),
    *rows("fft", transform(None, 2.5), "fft.rfftn fft.irfftn fft.hfftn fft.ihfftn"),
    *rows("fft", short_time, "stft istft"),
)
