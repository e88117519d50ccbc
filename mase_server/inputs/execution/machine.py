"""The machine that a program seems to run on: one process, whose GPU does nothing, with nobody at its keyboard."""

from __future__ import annotations

import builtins
import os
import pdb
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import multiprocessing

#: What launchers of several processes set, for programs that ask without a default.
LAUNCHED = {
    "RANK": "0", "LOCAL_RANK": "0", "NODE_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "CUDA_VISIBLE_DEVICES": "0", "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0", "SLURM_NTASKS": "1",
}  # fmt: skip

_GIB = 1 << 30
_PROPERTIES = {
    "name": "GPU", "gcnArchName": "", "major": 8, "minor": 0, "uuid": "",
    "total_memory": 16 * _GIB, "multi_processor_count": 100, "warp_size": 32,
}  # fmt: skip


class _Idle:
    """A stream, event or graph: it may be recorded, waited for and entered, and nothing happens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _answering(None)

    def __enter__(self) -> _Idle:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def elapsed_time(self, other: object) -> float:
        """Milliseconds."""
        return 1.0

    def query(self) -> bool:
        """Is everything done?"""
        return True


def _answering(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _silent(*names: str) -> dict[str, Any]:
    """A function for each name: torch.compile's tables do not take one function under two names."""
    return {name: _answering(None) for name in names}


_PARSE_TO = torch._C._nn._parse_to


def _device(value: Any) -> Any:
    """A number that means a GPU, as `model.to(0)` does."""
    return torch.device("cuda", value) if type(value) is int else value


#: Functions of torch.cuda that fail without a GPU, and what they answer. Whether there is one is asked elsewhere.
_GPU: dict[str, Any] = {
    **_silent(
        "init", "set_device", "synchronize", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated",
        "reset_max_memory_cached", "reset_accumulated_memory_stats", "set_per_process_memory_fraction",
        "set_rng_state", "set_rng_state_all", "set_stream",
    ),
    **{name: type(name, (_Idle,), {}) for name in ("current_stream", "default_stream", "Stream", "Event", "CUDAGraph")},
    "current_device": _answering(0),
    "device_count": _answering(1),
    "get_device_name": _answering("GPU"),
    "get_device_capability": _answering((8, 0)),
    "get_device_properties": lambda *args, **kwargs: SimpleNamespace(**_PROPERTIES),
    "mem_get_info": _answering((16 * _GIB, 16 * _GIB)),
    "memory_summary": _answering(""),
    "utilization": _answering(0),
    "is_bf16_supported": _answering(True),
    **{name: getattr(torch, name) for name in vars(torch) if name.endswith("Tensor")},
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "get_rng_state_all": lambda *args, **kwargs: [torch.get_rng_state()],
    "stream": lambda *args, **kwargs: nullcontext(),
    "graph": lambda *args, **kwargs: nullcontext(),
    "device": lambda *args, **kwargs: nullcontext(),
    "device_of": lambda *args, **kwargs: nullcontext(),
}  # fmt: skip
_QUIET: tuple[tuple[Any, dict[str, Any]], ...] = (
    (torch.cuda, _GPU),
    (
        torch.accelerator,
        {
            **_silent("synchronize", "set_device_index", "set_stream", "empty_cache", "reset_peak_memory_stats"),
            **{name: _answering(0) for name in ("current_device_index", "memory_allocated", "max_memory_allocated")},
            "device_count": _answering(1),
        },
    ),
    (torch.cuda.nvtx, _silent("range_push", "range_pop", "mark", "range_start", "range_end")),
    (torch.cuda.profiler, _silent("start", "stop", "init")),
    (torch._C._nn, {"_parse_to": lambda *args, **kwargs: _PARSE_TO(*map(_device, args), **kwargs)}),
    (torch.mps, _silent("empty_cache", "synchronize", "manual_seed", "seed")),
    (torch, {"set_default_tensor_type": lambda kind: _set_default_type(kind)}),
    (multiprocessing, {"spawn": lambda function, args=(), *more, **named: function(0, *args)}),
    # A debugger would ask an empty terminal for ever.
    (builtins, {"input": _answering(""), "breakpoint": _answering(None)}),
    (pdb, {"set_trace": _answering(None)}),
)


@contextmanager
def plain_machine() -> Iterator[None]:
    """Inside, programs for a GPU, for several processes and for a terminal find what they ask for."""
    with ExitStack() as stack:
        for owner, answers in _QUIET:
            for name, answer in answers.items():
                if hasattr(owner, name):
                    stack.enter_context(patch.object(owner, name, answer))
        stack.enter_context(patch.object(type(os.environ), "__getitem__", _reading(type(os.environ).__getitem__)))
        yield


def _set_default_type(kind: Any) -> None:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    dtype = torch.tensor([], dtype=getattr(torch, name.rpartition(".")[2].removesuffix("Tensor").lower())).dtype
    torch.set_default_dtype(dtype)


def _reading(original: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    def read(self: Any, key: str) -> str:
        try:
            return original(self, key)
        except KeyError:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_globals is globals():  # one machine inside of another
                frame = frame.f_back
            # `get` and `in` ask in this way too, and have an answer of their own.
            if key not in LAUNCHED or frame.f_globals.get("__name__") == "collections.abc":
                raise
            return LAUNCHED[key]

    return read
