"""Programs for many processes, run by one: a group of one process, and what wraps a model only hands calls on."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import distributed, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from mase_server.inputs.modes import outside_modes

_SHARDED = "FullyShardedDataParallel"
#: Registers the backend `fake`, whose collectives do nothing.
_FAKE = "torch.testing._internal.distributed.fake_pg"


class _Done:
    """What a collective operation gives that is awaited later."""

    def wait(self, *args: Any) -> bool:
        """Nothing is waited for."""
        return True

    is_completed = is_success = wait


def _gathered(result: list[Any], value: Any) -> None:
    result[0] = value


def _copied(result: Any, value: Any) -> None:
    result.copy_(value.view_as(result))


#: Collective operations by the name of their result, and how one process has it; None: it is there already.
_COLLECTIVES: dict[str, tuple[str, str, Callable[[Any, Any], Any]] | None] = {
    **dict.fromkeys(
        ("barrier", "monitored_barrier", "all_reduce", "reduce", "broadcast", "broadcast_object_list", "send", "isend",
         "recv", "irecv", "all_reduce_coalesced", "batch_isend_irecv"),
    ),
    "all_gather": ("tensor_list", "tensor", _gathered),
    "gather": ("gather_list", "tensor", lambda result, value: _gathered(result, value) if result else None),
    "scatter": ("tensor", "scatter_list", lambda result, value: value and result.copy_(value[0])),
    "all_gather_object": ("object_list", "obj", _gathered),
    "gather_object": ("object_gather_list", "obj", lambda result, value: _gathered(result, value) if result else None),
    "scatter_object_list": ("scatter_object_output_list", "scatter_object_input_list",
                            lambda result, value: _gathered(result, value[0]) if value else None),
    "all_gather_into_tensor": ("output_tensor", "input_tensor", _copied),
    "reduce_scatter_tensor": ("output", "input", _copied),
    "reduce_scatter": ("output", "input_list", lambda result, value: result.copy_(value[0])),
    "all_to_all_single": ("output", "input", _copied),
    "all_to_all": ("output_tensor_list", "input_tensor_list", lambda result, value: _gathered(result, value[0])),
}  # fmt: skip


def _collective(original: Callable[..., Any], does: tuple[str, str, Callable[[Any, Any], Any]] | None) -> Any:
    signature = inspect.signature(original)

    def operate(*args: Any, **kwargs: Any) -> _Done | None:
        given = signature.bind(*args, **kwargs).arguments
        if does is not None:
            result, value, put = does
            put(given.get(result), given.get(value))
        return _Done() if given.get("async_op") or original.__name__ in ("isend", "irecv") else None

    return operate


def _answers(c10d: Any) -> dict[str, Callable[..., Any]]:
    """The functions of `torch.distributed` for a process that is alone."""
    init, new_group, default_group = c10d.init_process_group, c10d.new_group, c10d._get_default_group

    def form(*args: Any, **kwargs: Any) -> None:
        """A group is formed when somebody asks for one; before that, `is_initialized` tells the truth."""
        if not distributed.is_initialized():
            importlib.import_module(_FAKE)
            with outside_modes():
                init("fake", rank=0, world_size=1, store=distributed.HashStore())  # type: ignore[attr-defined]

    def group_of_one(*args: Any, **kwargs: Any) -> Any:
        form()
        with outside_modes():
            return new_group([0], backend="fake")

    def world() -> Any:
        form()
        return default_group()

    return {
        "init_process_group": form,
        "destroy_process_group": lambda *args, **kwargs: None,
        "get_rank": lambda *args, **kwargs: 0,
        "get_world_size": lambda *args, **kwargs: 1,
        "get_group_rank": lambda *args, **kwargs: 0,
        "get_global_rank": lambda *args, **kwargs: 0,
        "get_node_local_rank": lambda *args, **kwargs: 0,
        "get_backend": lambda *args, **kwargs: "nccl",
        "new_group": group_of_one,
        "_get_default_group": world,
        **{
            name: _collective(getattr(c10d, name), does)
            for name, does in _COLLECTIVES.items()
            if hasattr(c10d, name)
        },
    }  # fmt: skip


def _mesh(meshes: Any, form: Callable[..., Any]) -> Callable[..., Any]:
    original = meshes.init_device_mesh

    def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], **named: Any) -> Any:
        form()
        with outside_modes():
            return original("cpu", (1,) * len(mesh_shape), mesh_dim_names=named.get("mesh_dim_names"))

    return init_device_mesh


@contextmanager
def alone(source: str) -> Iterator[None]:
    """Inside, `torch.distributed` is that of a group of one process, and a wrapped model is called as it is.

    source: of the program, since sharding takes long to import and is only looked at where it is used.
    """
    with ExitStack() as stack:
        if distributed.is_available():
            c10d = distributed.distributed_c10d
            was_formed, destroy = distributed.is_initialized(), c10d.destroy_process_group
            answers = _answers(c10d)
            for owner in (distributed, c10d):
                for name, answer in answers.items():
                    if hasattr(owner, name):
                        stack.enter_context(patch.object(owner, name, answer))
            if "mesh" in source:
                meshes = importlib.import_module("torch.distributed.device_mesh")
                mesh = _mesh(meshes, answers["init_process_group"])
                for owner in (distributed, meshes):
                    stack.enter_context(patch.object(owner, "init_device_mesh", mesh))
            stack.callback(lambda: destroy() if distributed.is_initialized() and not was_formed else None)
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
