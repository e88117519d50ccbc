"""`torch.autograd.Function`s of the person's: each `apply` becomes one node, which keeps its own backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function

from mase_server.tracing.calling import leaves, map_leaves, version
from mase_server.tracing.leaf_functions import caught, listening_recorder
from mase_server.tracing.recorder import Recorder
from mase_server.tracing.values import describe, holds_tensor


@dataclass(frozen=True)
class CustomFunction:
    """The target of a node that applies an autograd.Function, under the name of its class."""

    kind: type[Function]

    @property
    def __name__(self) -> str:
        return self.kind.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply it."""
        return self.kind.apply(*args, **kwargs)  # type: ignore[no-untyped-call]


@contextmanager
def custom_functions_kept() -> Iterator[None]:
    """While inside, an autograd.Function is one node of the recording in progress, however its `apply` is referred to.

    torch's own are run through, and so is one that is given modules or functions to run, as checkpointing is: what it
    computes is made of their calls, and so is its gradient.
    """
    apply = vars(Function)["apply"].__func__

    def hook(original: Any, kind: type[Function], *args: Any, **kwargs: Any) -> Any:
        recorder = listening_recorder()
        runs_others = any(callable(value) and not isinstance(value, type) for value in (*args, *kwargs.values()))
        if recorder is None or runs_others or kind.__module__.startswith("torch."):
            return original(kind, *args, **kwargs)
        return _record(recorder, original, kind, args, kwargs)

    with caught(apply, hook):
        yield


def _record(recorder: Recorder, original: Any, kind: type[Function], args: Any, kwargs: dict[str, Any]) -> Any:
    arguments = tuple(recorder._argument(value) for value in args)
    named = {name: recorder._argument(value) for name, value in kwargs.items()}
    with torch._C.DisableTorchFunction():
        before = {id(tensor): version(tensor) for tensor in leaves((args, kwargs))}
    with recorder.inside_leaf():
        out = original(kind, *args, **kwargs)
    with torch._C.DisableTorchFunction():
        if not holds_tensor(out):
            return out

        def settle(value: Any) -> Any:
            """An input that was written to stays itself, any other becomes an alias."""
            written = isinstance(value, torch.Tensor) and before.get(id(value), -2) not in (-2, version(value))
            return value if written else recorder._fresh(value)

        out = map_leaves(out, settle)
        target = CustomFunction(kind)
        recorder._bind(out, recorder._add("call_function", target, arguments, named, describe(out)))
    return out
