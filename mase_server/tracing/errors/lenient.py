"""Calls that eager refuses and meta kernels let pass, found by asking eager itself, on tensors without elements.

A wrong convolution is refused before anything is computed, so an empty batch and weights of memory that nobody touches
cost some microseconds. An element type that no kernel is made for is refused for one element too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

_HOMES = (torch, torch.Tensor, torch.nn.functional, torch.special, torch._C._nn)


def _callables(*names: str) -> frozenset[Callable[..., Any]]:
    return frozenset(getattr(home, name) for home in _HOMES for name in names if hasattr(home, name))


CONVOLUTIONS = _callables("conv1d", "conv2d", "conv3d")
TRANSPOSED = _callables("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")

#: Made for floating types alone, or for all but bool; each call with another type is tried.
FLOATING = _callables(
    "abs", "absolute", "argmax", "argmin", "ceil", "celu", "elu", "floor", "frac", "gelu", "hardshrink", "hardsigmoid",
    "hardswish", "histc", "log_softmax", "logsigmoid", "median", "mish", "nanmedian", "relu", "round", "rrelu", "silu",
    "softmax", "softmin", "softplus", "softsign", "std", "tanhshrink", "trace", "trunc", "var",
)  # fmt: skip

#: Made for integers and bool alone.
INTEGRAL = _callables("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__") | {
    operator.and_, operator.or_, operator.xor,
}  # fmt: skip

LENIENT = CONVOLUTIONS | TRANSPOSED | FLOATING | INTEGRAL


def ask_eager(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises what eager raises for the shapes and types of this call of one of `LENIENT`."""
    if func in CONVOLUTIONS or func in TRANSPOSED:
        args, kwargs = _without_images(args, kwargs)
        func(*args, **kwargs)
    elif func in LENIENT and _is_doubtful(func, args[0] if args else next(iter(kwargs.values()))):
        func(*tree_map_only(torch.Tensor, _single, args), **tree_map_only(torch.Tensor, _single, kwargs))


def _is_doubtful(func: Callable[..., Any], first: Any) -> bool:
    if not isinstance(first, torch.Tensor):
        return False
    inexact = first.dtype.is_floating_point or first.dtype.is_complex
    return inexact if func in INTEGRAL else not inexact


def _without_images(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0] if args else kwargs["input"]
    weight = args[1] if len(args) > 1 else kwargs["weight"]

    def emptied(tensor: torch.Tensor) -> torch.Tensor:
        sizes = tuple(tensor.shape)
        shape = (0, *(sizes[1:] if tensor.dim() == weight.dim() else sizes)) if tensor is x else sizes
        # Which narrow types a processor convolves is not the question here.
        dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
        return torch.empty(shape, dtype=dtype, device="cpu")

    return tree_map_only(torch.Tensor, emptied, (args, kwargs))


def _single(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((1,) * tensor.dim(), dtype=tensor.dtype, device="cpu")
