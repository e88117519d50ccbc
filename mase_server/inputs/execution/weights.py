"""Weights that are not on this disk: models have the same shapes without them, so the program runs on without."""

from __future__ import annotations

import functools
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from mase_server.inputs.modes import outside_modes
from mase_server.reading import is_folder
from mase_server.tracing.loading.lookups import note_read


class AbsentWeights(dict[str, Any]):
    """Stands for a file of weights that is not there: it has no entries, and whatever is asked for is one like it."""

    def __missing__(self, key: str) -> AbsentWeights:
        return AbsentWeights()

    def pop(self, key: str, *default: Any) -> Any:
        """What is taken out is not there either."""
        return default[0] if default else AbsentWeights()


@dataclass(frozen=True, slots=True)
class Loading:
    """One call of load_state_dict. values: what was loaded, each beside the tensor of the module that it was loaded
    into.  files: those that had been read since the call before."""

    values: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    files: tuple[str, ...]


#: What was loaded in this process while a program ran, in order, so that it can be loaded again with values.
LOADED: list[Loading] = []
_read: list[str] = []


@contextmanager
def loaded_where_present() -> Iterator[None]:
    """Inside, what is on the disk is loaded with its values; other weights are neither downloaded nor wanted."""
    wanted: set[str] = set()
    with (
        patch.dict(os.environ, _home()),
        patch.object(torch.hub, "download_url_to_file", lambda url, dst, *args, **kwargs: wanted.add(str(dst))),
        patch.object(torch, "load", _load(torch.load, wanted)),
        patch.object(nn.Module, "load_state_dict", _load_state_dict(nn.Module.load_state_dict, wanted)),
        _safetensors(),
    ):
        yield


def _pairs(module: nn.Module, values: Mapping[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            value = values.get(name)
            if isinstance(value, torch.Tensor) and not value.is_meta:
                yield tensor, value


@contextmanager
def _safetensors() -> Iterator[None]:
    """What that library reads has values too, where it is installed."""
    if importlib.util.find_spec("safetensors") is None:
        yield
        return
    module = importlib.import_module("safetensors.torch")
    with patch.object(module, "load_file", _reading(module.load_file)):
        yield


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        _read.append(os.fsdecode(file))
        note_read(file)  # it is opened outside of Python, where no audit event tells
        with outside_modes():
            return original(file)

    return read


def _home() -> dict[str, str]:
    """A folder for downloads where there is none, since none may be made."""
    usual = Path(torch.hub.get_dir()) / "checkpoints"
    return {} if is_folder(usual) else {"TORCH_HOME": str(Path(tempfile.gettempdir()) / "torch")}


def _load(original: Callable[..., Any], wanted: set[str]) -> Callable[..., Any]:
    """What is loaded lives where every tensor of the program seems to live."""

    @functools.wraps(original)
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | os.PathLike) and (str(file) in wanted or not Path(file).exists()):
            wanted.add(str(file))
            return AbsentWeights()
        kwargs["map_location"] = "cpu"
        if isinstance(file, str | os.PathLike):
            _read.append(os.fsdecode(file))
        with outside_modes():
            return original(file, *args[1:], **kwargs)

    return load


def _load_state_dict(original: Callable[..., Any], wanted: set[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_state_dict(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        # What was made of absent weights has too few entries, by whatever way it went.
        if wanted:
            return _IncompatibleKeys([], [])
        found = original(self, state_dict, *args, **kwargs)
        LOADED.append(Loading(tuple(_pairs(self, state_dict)), tuple(_read)))
        _read.clear()
        return found

    return load_state_dict
