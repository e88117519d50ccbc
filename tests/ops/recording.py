"""A recorder of its own for these tests: every torch function and every leaf module that ran, as OpCalls."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from mase_server.ops.types import OpCall, TensorType


def typed(value):
    if isinstance(value, torch.Tensor):
        return TensorType.of(value)
    if isinstance(value, (tuple, list)):
        items = [typed(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return {key: typed(item) for key, item in value.items()} if isinstance(value, dict) else value


class Recording(TorchFunctionMode):
    """Calls of torch functions, outermost only; modules in `leaves` count as one call."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.quiet = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self.quiet and getattr(func, "__name__", "") not in ("__get__", "__set__"):
            self.calls.append(OpCall("call_function", func, typed(args), typed(kwargs), typed(result)))
        return result


@contextmanager
def leaves(recording, *classes):
    """While it lasts, modules of these classes are one call each."""
    original = nn.Module.__call__

    def call(module, *args, **kwargs):
        if recording.quiet or not isinstance(module, classes):
            return original(module, *args, **kwargs)
        recording.quiet += 1
        try:
            result = original(module, *args, **kwargs)
        finally:
            recording.quiet -= 1
        recording.calls.append(OpCall("call_module", module, typed(args), typed(kwargs), typed(result), module))
        return result

    nn.Module.__call__ = call
    try:
        yield
    finally:
        nn.Module.__call__ = original


def run(function, *classes):
    """(calls, FLOPs that torch's own counter counts) of one run of `function`."""
    recording = Recording()
    with torch.no_grad(), FlopCounterMode(display=False) as counter, leaves(recording, *classes), recording:
        function()
    return recording.calls, counter.get_total_flops()


def call(target, *args, result=None, **kwargs):
    """A call of a function, or of a method by name."""
    kind = "call_method" if isinstance(target, str) else "call_function"
    return OpCall(kind, target, args, kwargs, result)


def module_call(module, *args, result=None, **kwargs):
    return OpCall("call_module", module, args, kwargs, result, module)


def f32(*shape):
    return TensorType("float32", shape)


def i64(*shape):
    return TensorType("int64", shape)


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")
