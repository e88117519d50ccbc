"""Real runs on the CPU of code that asks for other devices: this machine may have none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mase_server.tracing.calling import DEVICE_WORDS, MOVES, TAKE_DEVICE_TEXT, map_leaves

_CPU = torch.device("cpu")
#: Devices that every machine has.
_KEPT = frozenset({"cpu", "meta"})


class OnCpu(TorchFunctionMode):
    """While active, what would be made on or moved to a GPU, or another device, is on the CPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        func, args, kwargs = on_cpu(func, args, kwargs or {})
        return func(*args, **kwargs)


def on_cpu(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A torch call with the CPU for every device that is not on every machine: what is called, and with what."""
    if func in MOVES:
        return torch.Tensor.cpu, args[:1], {}
    texts = func in TAKE_DEVICE_TEXT

    def change(value: Any) -> Any:
        if isinstance(value, torch.device):
            return value if value.type in _KEPT else _CPU
        if texts and isinstance(value, str) and value.partition(":")[0] in DEVICE_WORDS - _KEPT:
            return _CPU
        return value

    if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
        args = (args[0], _CPU, *args[2:])  # the number of a GPU
    named = {name: map_leaves(value, change) for name, value in kwargs.items()}
    device = named.get("device")
    if isinstance(device, int) or (isinstance(device, str) and device.partition(":")[0] not in _KEPT):
        named["device"] = _CPU
    return func, tuple(map_leaves(value, change) for value in args), named
