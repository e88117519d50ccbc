"""Programs for many processes, run by one: no group is formed, and what wraps a model for it only hands calls on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import distributed, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

_SHARDED = "FullyShardedDataParallel"

#: What a process that is alone answers; a collective operation leaves its tensor as it is.
_ALONE: dict[str, Callable[..., Any]] = {
    "init_process_group": lambda *args, **kwargs: None,
    "destroy_process_group": lambda *args, **kwargs: None,
    "get_rank": lambda *args, **kwargs: 0,
    "get_world_size": lambda *args, **kwargs: 1,
    "barrier": lambda *args, **kwargs: None,
    "all_reduce": lambda tensor, *args, **kwargs: None,
    "reduce": lambda tensor, *args, **kwargs: None,
    "broadcast": lambda tensor, *args, **kwargs: None,
    "broadcast_object_list": lambda *args, **kwargs: None,
    "all_gather": lambda tensors, tensor, *args, **kwargs: tensors.__setitem__(0, tensor),
    "new_group": lambda *args, **kwargs: None,
}


@contextmanager
def alone(source: str) -> Iterator[None]:
    """Inside, `torch.distributed` is that of a group of one process, and a wrapped model is called as it is.

    source: of the program, since sharding takes long to import and is only looked at where it is used.
    """
    with ExitStack() as stack:
        for name, answer in _ALONE.items() if distributed.is_available() else ():
            stack.enter_context(patch.object(distributed, name, answer))
        kinds: list[type[nn.Module]] = [DataParallel, DistributedDataParallel]
        if distributed.is_available() and ("fsdp" in source or _SHARDED in source):
            sharding = importlib.import_module("torch.distributed.fsdp")
            kinds.append(sharding.FullyShardedDataParallel)
            stack.enter_context(patch.object(sharding, "fully_shard", lambda module, *args, **kwargs: module))
        for kind in kinds:
            stack.enter_context(patch.object(kind, "__init__", _wrap))
            stack.enter_context(patch.object(kind, "forward", _call))
        yield


def _wrap(self: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> None:
    nn.Module.__init__(self)
    # Where `module` is a property, it reads what is kept under the other name.
    setattr(self, "_fsdp_wrapped_module" if type(self).__name__ == _SHARDED else "module", module)


def _call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return unwrapped(self)(*args, **kwargs)


def is_wrapper(model: object) -> bool:
    """Does a module only hold a whole model as `module`?"""
    return isinstance(model, DataParallel | DistributedDataParallel) or type(model).__name__ == _SHARDED


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of what wraps it."""
    while is_wrapper(model) and isinstance(inner := getattr(model, "module", None), nn.Module):
        model = inner
    return model
