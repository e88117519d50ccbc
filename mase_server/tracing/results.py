"""Results of calls that depend on nothing but the types of their arguments: computed once, made anew each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mase_server.tracing.calling import Values, leaves
from mase_server.tracing.casting import autocast_key
from mase_server.tracing.sizes import TracedInt


@dataclass(frozen=True, slots=True)
class Result:
    """The type of a new tensor that a call gave."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def made(self, device: torch.device) -> torch.Tensor:
        """Another such tensor."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


def call_key(func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
    """What the type of a call's result depends on; None if that cannot be said."""
    try:
        parts = [_key_part(value) for value in args]
        parts += [(name, _key_part(value)) for name, value in kwargs.items()]
        key = (func, torch.is_grad_enabled(), autocast_key(), *parts)
        hash(key)
    except TypeError:
        return None
    return key


def _key_part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise TypeError("only strided tensors are described by their strides")
        return (torch.Tensor, value.shape, value.stride(), value.dtype, value.requires_grad)
    if isinstance(value, list | tuple):
        return (type(value), *map(_key_part, value))
    # 1, 1.0 and True are equal, but not the same argument.
    return (int if type(value) is TracedInt else type(value), value)


def is_fresh(out: torch.Tensor, args: Values) -> bool:
    """Is a result a tensor of its own: no view of an argument, and no part of an autograd graph?"""
    if out.layout is not torch.strided or out.requires_grad or not out.is_meta:
        return False
    if out._base is None:
        return all(tensor is not out for tensor in leaves(args))
    storage = out.untyped_storage()._cdata
    return all(tensor.untyped_storage()._cdata != storage for tensor in leaves(args))
