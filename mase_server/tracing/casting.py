"""Autocast on meta tensors: torch casts by device, and meta has no casts of its own.

Traced code sees the device `cpu`, so the casts are those of `torch.autocast("cpu")`; a CUDA autocast without CUDA does
nothing, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from mase_server.tracing.calling import Values, like, map_leaves


def autocast_key() -> torch.dtype | None:
    """The type to which autocast casts on the CPU now; None while it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


@cache
def _mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)


def casting(func: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable for meta tensors, with the casts of autocast."""
    return lambda *args, **kwargs: _run(func, args, kwargs)


def _run(func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
    """The call on fake CPU tensors, where autocast works; its results are meta tensors again.

    A call that gives back one of its arguments gives back that very tensor.
    """
    stand_ins: dict[int, torch.Tensor] = {}
    originals: dict[int, torch.Tensor] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return torch.device("cpu") if isinstance(value, torch.device) else value
        if id(value) not in stand_ins:
            made = FakeTensor(_mode(), value.detach(), torch.device("cpu"))
            stand_ins[id(value)] = made
            originals[id(made)] = value
        return stand_ins[id(value)]

    def meta(value: Any) -> Any:
        if not isinstance(value, FakeTensor):
            return value
        return originals[id(value)] if id(value) in originals else like(value, "meta")

    with _mode():
        out = func(*map_leaves(args, fake), **map_leaves(kwargs, fake))
    return map_leaves(out, meta)
