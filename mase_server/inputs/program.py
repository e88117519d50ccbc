"""The person's file as a running program: its place in `sys`, its arguments, its folder, and a calm environment."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader

#: Variables that keep libraries quiet and away from windows and the network.
ENVIRONMENT = {
    "MPLBACKEND": "Agg",
    "TQDM_DISABLE": "1",
    "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}

#: What a DataLoader is made with, whatever the program asked for: no other process, thread or pinned memory.
_IN_PROCESS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
    "pin_memory": False,
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Code to run and the globals that it needs beside the usual ones."""

    code: CodeType
    names: dict[str, Any]


def compile_plainly(path: str) -> Loaded:
    """The file's own code, as Python would run it."""
    return Loaded(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), {})


@contextmanager
def as_program(path: str) -> Iterator[None]:
    """`sys.argv`, `sys.path[0]` and the folder as if the person had started the file."""
    folder = str(Path(path).parent)
    before = Path.cwd()
    with patch.object(sys, "argv", [path]), patch.object(sys, "path", [folder, *sys.path]), calm():
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextmanager
def calm() -> Iterator[None]:
    """No worker processes, no compilation, no windows, no progress bars."""
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, ENVIRONMENT))
        stack.enter_context(patch.object(DataLoader, "__init__", _loader(DataLoader.__init__)))
        stack.enter_context(patch.object(torch, "compile", _identity))
        stack.enter_context(patch.object(torch.jit, "script", _identity))
        stack.enter_context(patch.object(torch.nn.Module, "compile", lambda self, *args, **kwargs: None))
        yield


def _identity(thing: Any = None, *args: Any, **kwargs: Any) -> Any:
    return (lambda inner: inner) if thing is None else thing


def _loader(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    def init(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.arguments.update({name: value for name, value in _IN_PROCESS.items() if name in bound.arguments})
        original(*bound.args, **bound.kwargs)

    return init


@contextmanager
def module_named(name: str, path: str) -> Iterator[ModuleType]:
    """A fresh module object in `sys.modules` under `name`, put back afterwards."""
    module = ModuleType(name)
    module.__file__ = path
    with patch.dict(sys.modules, {name: module}):
        yield module


def execute(loaded: Loaded, module: ModuleType) -> None:
    """Run code in a module; raises whatever it raises."""
    vars(module).update(loaded.names)
    vars(module).setdefault("__builtins__", __builtins__)
    exec(loaded.code, vars(module))
