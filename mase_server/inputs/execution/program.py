"""The person's file as a running program: its place in `sys`, its arguments, its folder, and a calm environment."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
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

from mase_server.inputs.execution.argv import plausible_arguments
from mase_server.inputs.execution.machine import plain_machine
from mase_server.inputs.execution.weights import loaded_where_present
from mase_server.tracing.loading.instrument import remaining
from mase_server.tracing.loading.resume import Cuts, Start, execute_to_end

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


_RELATIVE_IMPORT = re.compile(rb"^from[ \t]+(\.+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Code to run and the globals that it needs beside the usual ones.

    code_from: the same code from the statement at a line and column on.
    """

    code: CodeType
    names: dict[str, Any]
    code_from: Callable[[Start], CodeType]


def compile_plainly(path: str) -> Loaded:
    """The file's own code, as Python would run it."""
    source = Path(path).read_bytes()

    def code_from(start: Start) -> CodeType:
        tree = remaining(ast.parse(source, path), start)
        return compile(tree, path, "exec", dont_inherit=True)

    return Loaded(compile(source, path, "exec", dont_inherit=True), {}, code_from)


@contextmanager
def as_program(path: str, workspace: str = "") -> Iterator[list[str]]:
    """`sys.argv`, `sys.path` and the folder as if the person had started the file; gives arguments that were made up.

    A file in a package is imported from the package's root first, since a module may bear its package's name. Last
    comes the workspace, from where programs that import the file are likely to be started.
    """
    folder, root = str(Path(path).parent), Place.of(path).root
    before = Path.cwd()
    folders = dict.fromkeys([root, folder, *sys.path, *([workspace] if workspace else [])])
    with patch.object(sys, "argv", [path]), patch.object(sys, "path", list(folders)), calm() as made_up:
        os.chdir(folder)
        try:
            yield made_up
        finally:
            os.chdir(before)


@contextmanager
def calm() -> Iterator[list[str]]:
    """No worker processes, compilation, saving, windows, progress bars, or checks of values in distributions.

    Gives the command-line arguments that were made up for a parser that requires them.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.distributions.Distribution, "_validate_args", False))
        stack.enter_context(patch.dict(os.environ, ENVIRONMENT))
        # It reads its variable once; where it was imported before, it would retry what is refused for half a minute.
        if (hub := sys.modules.get("huggingface_hub.constants")) is not None:
            stack.enter_context(patch.object(hub, "HF_HUB_OFFLINE", True))
        stack.enter_context(patch.object(DataLoader, "__init__", _loader(DataLoader.__init__)))
        stack.enter_context(loaded_where_present())
        stack.enter_context(plain_machine())
        made_up = stack.enter_context(plausible_arguments())
        stack.enter_context(patch.object(torch, "save", lambda *args, **kwargs: None))
        stack.enter_context(patch.object(torch, "compile", _identity))
        stack.enter_context(patch.object(torch.jit, "script", _identity))
        stack.enter_context(patch.object(torch.jit, "trace", _called))
        stack.enter_context(patch.object(torch.nn.Module, "compile", lambda self, *args, **kwargs: None))
        yield made_up


def _identity(thing: Any = None, *args: Any, **kwargs: Any) -> Any:
    return (lambda inner: inner) if thing is None else thing


def _called(function: Callable[..., Any], example_inputs: Any = (), *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """What torch.jit.trace gives, after the call that it makes."""
    given = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    function(*given)
    return function


def _loader(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    def init(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.arguments.update({name: value for name, value in _IN_PROCESS.items() if name in bound.arguments})
        original(*bound.args, **bound.kwargs)

    return init


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file stands among packages: its dotted name, its package ("" for none) and the folder to import from."""

    name: str
    package: str
    root: str

    @classmethod
    def of(cls, path: str) -> Place:
        """Follow the chain of `__init__.py` files upwards, and as far as the file's relative imports reach."""
        file = Path(path)
        folder, packages, depth = file.parent, list[str](), _relative_depth(file)
        while ((folder / "__init__.py").exists() or len(packages) < depth) and folder.parent != folder:
            packages.insert(0, folder.name)
            folder = folder.parent
        parts = packages if file.stem == "__init__" else [*packages, file.stem]
        name = ".".join(parts)
        # A file called random.py must not become the `random` that libraries import.
        taken = name in sys.stdlib_module_names or (name in sys.modules and not packages)
        return cls(f"mase_file_{name}" if taken else name, ".".join(packages), str(folder))


def _relative_depth(file: Path) -> int:
    """How many packages a file must be in for its `from ..x import y`."""
    try:
        return max((len(dots) for dots in _RELATIVE_IMPORT.findall(file.read_bytes())), default=0)
    except OSError:
        return 0


@contextmanager
def modules_kept(*names: str) -> Iterator[None]:
    """Put `sys.modules` back under these names at the end."""
    before = {name: sys.modules.get(name) for name in names}
    try:
        yield
    finally:
        for name, module in before.items():
            if module is not None:
                sys.modules[name] = module
            else:
                sys.modules.pop(name, None)


def module_for(path: str, name: str) -> ModuleType:
    """A module for a file, in `sys.modules` under `name`, where pickle and dataclasses look for its classes.

    A fresh one, unless the file's package has already imported the file.
    """
    found = sys.modules.get(name)
    if found is not None and name != "__main__" and _is_imported(found, path):
        return found
    module = ModuleType(name)
    module.__file__ = path
    module.__package__ = Place.of(path).package or None
    sys.modules[name] = module
    return module


def _is_imported(module: ModuleType, path: str) -> bool:
    return module.__spec__ is not None and getattr(module, "__file__", None) == path


def execute(loaded: Loaded, module: ModuleType, cuts: Cuts | None = None) -> tuple[ModuleType, BaseException | None]:
    """Run code in a module; gives the module that then holds the file's names, and the first error of a statement.

    The package is imported first, as Python would: where it imports this very file, that was the run. A second one
    would register everything twice.
    """
    if module.__package__ and module.__package__ != module.__name__:
        module = _after_its_package(module)
    if module.__spec__ is None:
        vars(module).update(loaded.names)
        error = execute_to_end(str(module.__file__), loaded.code, vars(module), loaded.code_from, cuts)
        return module, error
    return module, None


def _after_its_package(module: ModuleType) -> ModuleType:
    assert module.__package__ is not None
    assert module.__file__ is not None
    if module.__name__ == "__main__" or module.__spec__ is not None:
        importlib.import_module(module.__package__)
        return module
    # The package must not meet this file unfinished.
    del sys.modules[module.__name__]
    try:
        importlib.import_module(module.__package__)
    finally:
        found = sys.modules.setdefault(module.__name__, module)
    if not _is_imported(found, module.__file__):
        found = sys.modules[module.__name__] = module
    return found
