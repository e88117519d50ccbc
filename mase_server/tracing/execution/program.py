"""The user's file as a running program: its place in `sys`, its arguments, its folder, a quiet environment, and the way
to its end past statements that fail.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import os
import pdb
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, WeightedRandomSampler

from mase_server.tracing.execution.guard import Replaced, change_environment
from mase_server.tracing.execution.substitutes import loaded_where_present
from mase_server.tracing.importing.datasets import replacing_absent_data
from mase_server.tracing.importing.placeholders import Absent, Placeholder
from mase_server.tracing.importing.rewrite import Start
from mase_server.tracing.importing.source import Namespace, read_source
from mase_server.tracing.importing.statements import Cuts, execute_to_end, plain_code_from

#: Variables that keep libraries quiet and away from windows and the network.
ENVIRONMENT = {
    "MPLBACKEND": "Agg",
    "TQDM_DISABLE": "1",
    "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}

#: Arguments of every DataLoader, whatever the program asks for: no other process, thread or pinned memory.
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
    names: Namespace
    code_from: Callable[[Start], CodeType]


def compile_plainly(path: str) -> Loaded:
    """The file's own code, as Python would run it."""
    code = compile(read_source(path), path, "exec", dont_inherit=True)
    return Loaded(code, {}, partial(plain_code_from, path))


@contextmanager
def as_program(path: str, workspace: str = "") -> Iterator[list[str]]:
    """`sys.argv`, `sys.path` and the folder as if the user had started the file; yields invented arguments.

    A file in a package is imported from the package's root first, since a module may have its package's name. The
    workspace comes last, since programs that import the file are probably started there.
    """
    folder, root = str(Path(path).parent), Place.of(path).root
    before = Path.cwd()
    folders = dict.fromkeys([root, folder, *sys.path, *([workspace] if workspace else [])])
    with Replaced(sys, {"argv": [path], "path": list(folders)}), calm_environment() as made_up:
        os.chdir(folder)
        try:
            yield made_up
        finally:
            os.chdir(before)


@contextmanager
def calm_environment() -> Iterator[list[str]]:
    """Disable worker processes, compilation, saving, windows, progress bars, and checks of values in distributions.

    Yields the command-line arguments that were invented for a parser that requires them.
    """
    with ExitStack() as stack:
        stack.enter_context(Replaced(torch.distributions.Distribution, {"_validate_args": False}))
        stack.enter_context(change_environment(ENVIRONMENT))
        # It reads its variable once; if imported before, it would retry refused operations for half a minute.
        if (hub := sys.modules.get("huggingface_hub.constants")) is not None:
            stack.enter_context(Replaced(hub, {"HF_HUB_OFFLINE": True}))
        stack.enter_context(Replaced(DataLoader, {"__init__": _wrap_loader_init(DataLoader.__init__)}))
        stack.enter_context(Replaced(WeightedRandomSampler, {"__iter__": _draw_in_turn}))
        stack.enter_context(loaded_where_present())
        stack.enter_context(replacing_absent_data(lambda kind, to: stack.enter_context(Replaced(kind, to))))
        stack.enter_context(plain_machine())
        made_up = stack.enter_context(plausible_arguments())
        stack.enter_context(Replaced(torch, {"save": lambda *args, **kwargs: None, "compile": _return_unchanged}))
        stack.enter_context(Replaced(torch.jit, {"script": _return_unchanged, "trace": _trace_by_calling}))
        stack.enter_context(Replaced(torch.nn.Module, {"compile": lambda self, *args, **kwargs: None}))
        yield made_up


def _return_unchanged(thing: Any = None, *args: Any, **kwargs: Any) -> Any:
    return (lambda inner: inner) if thing is None else thing


def _trace_by_calling(
    function: Callable[..., Any], example_inputs: Any = (), *args: Any, **kwargs: Any
) -> Callable[..., Any]:
    """The result of torch.jit.trace, after the call that it makes."""
    given = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    function(*given)
    return function


def _draw_in_turn(self: WeightedRandomSampler) -> Iterator[int]:
    """The indices that a sampler may draw: its weights may be unknown."""
    return (index % len(self.weights) for index in range(self.num_samples))


def _wrap_loader_init(original: Callable[..., None]) -> Callable[..., None]:
    def init(*args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.arguments.update({name: value for name, value in _IN_PROCESS.items() if name in bound.arguments})
        original(*bound.args, **bound.kwargs)

    return init


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a file among packages: its dotted name, its package ("" for none) and the folder to import from."""

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
    """The number of packages that a file must be in for its `from ..x import y`."""
    try:
        return max((len(dots) for dots in _RELATIVE_IMPORT.findall(read_source(str(file)))), default=0)
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


def execute_program(
    loaded: Loaded,
    module: ModuleType,
    cuts: Cuts | None = None,
    goes_past: Callable[[BaseException], bool] = lambda error: True,
) -> tuple[ModuleType, BaseException | None]:
    """Run code in a module; return the module that then holds the file's names, and the first error of a statement.

    The package is imported first, as Python would: if it imports this very file, that was the run. A second run
    would register everything twice.
    """
    if module.__package__ and module.__package__ != module.__name__:
        module = _after_its_package(module)
    if module.__spec__ is None:
        vars(module).update(loaded.names)
        error = execute_to_end(str(module.__file__), loaded.code, vars(module), loaded.code_from, cuts, goes_past)
        parent, _, name = module.__name__.rpartition(".")
        if parent in sys.modules:  # as an import does at its end
            setattr(sys.modules[parent], name, module)
        return module, error
    return module, None


def _after_its_package(module: ModuleType) -> ModuleType:
    assert module.__package__ is not None
    assert module.__file__ is not None
    if module.__name__ == "__main__" or module.__spec__ is not None:
        importlib.import_module(module.__package__)
        return module
    # The package must not import this file while it is unfinished.
    del sys.modules[module.__name__]
    try:
        importlib.import_module(module.__package__)
    finally:
        found = sys.modules.setdefault(module.__name__, module)
    if not _is_imported(found, module.__file__):
        found = sys.modules[module.__name__] = module
    return found


# The command line of a program that got none: required arguments are invented, unless they may be sizes.

#: Names of numbers that determine no shape: ranks, seeds, counts of steps.
_HARMLESS = re.compile(
    r"rank|gpu|seed|epoch|batch|bs$|worker|step|iter|port|node|world|device|log|save|eval|print|interval|freq|thread"
    r"|fold|run|trial|patience|warmup|^lr|rate|decay|momentum|dropout|alpha|beta|gamma|lambda|temp|eps"
)
_TEXTS = ("0", "1", "data", "True", "2020-01-01", "1,2")


@contextmanager
def plausible_arguments() -> Iterator[list[str]]:
    """Inside, parsers find their required arguments; yields the invented ones, in written form."""
    made_up: list[str] = []
    original = argparse.ArgumentParser.parse_known_args

    def parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        if args is not None and list(args):
            return original(self, args, namespace)
        texts, unknown = _list_required_texts(self)
        parsed, rest = original(self, texts, namespace)
        for name in unknown:
            setattr(parsed, name, Placeholder(_make_absent_argument(name), name, made=True))
        made_up.extend(texts)
        return parsed, rest

    with Replaced(argparse.ArgumentParser, {"parse_known_args": parse}):
        yield made_up


def _list_required_texts(parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """The texts for a parser's required arguments, and the names of those whose value stays unknown."""
    texts, unknown = list[str](), list[str]()
    groups = [group for group in parser._mutually_exclusive_groups if group.required]
    actions = [each for each in parser._actions if each.required] + [group._group_actions[0] for group in groups]
    for action in sorted(actions, key=lambda each: not each.option_strings):
        if isinstance(action, argparse._SubParsersAction):
            name, inner = next(iter(action.choices.items()))
            more, also = _list_required_texts(inner)
            texts, unknown = [*texts, name, *more], [*unknown, *also]
            continue
        count = action.nargs if isinstance(action.nargs, int) else 1
        texts += [*action.option_strings[:1], *[_choose_text(action)] * count]
        if action.type in (int, float) and action.choices is None and not _HARMLESS.search(action.dest):
            unknown.append(action.dest)
    return texts, unknown


def _choose_text(action: argparse.Action) -> str:
    """A text that the action accepts."""
    if action.choices:
        return str(next(iter(action.choices)))
    read: Callable[[str], Any] = action.type if callable(action.type) else str
    order: Sequence[str] = _TEXTS if action.type is not None else ("data",)
    return next((text for text in order if _can_read_text(read, text)), order[0])


def _can_read_text(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except Exception:  # noqa: BLE001 - the person's own function
        return False
    return True


def _make_absent_argument(name: str) -> Absent:
    return Absent("", lambda thing: None, lambda path: False, f"the argument {name} has no default")


# The machine that a program sees: one process, a GPU that does nothing, and nobody at the keyboard.

#: Variables that launchers of several processes set, for programs that read them without a default.
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
    """A stream, event or graph: it can be recorded, waited for and entered, and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _make_constant_function(None)

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


def _make_constant_function(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _make_silent_functions(*names: str) -> dict[str, Callable[..., Any]]:
    """A function for each name: torch.compile's tables do not take one function under two names."""
    return {name: _make_constant_function(None) for name in names}


_PARSE_TO = torch._C._nn._parse_to


def _convert_device(value: Any) -> Any:
    """Convert a number that means a GPU, as in `model.to(0)`."""
    return torch.device("cuda", value) if type(value) is int else value


class _LegacyType(type):
    """A type such as torch.FloatTensor whose instances may be tensors without storage, whose own type is none."""

    dtype: torch.dtype
    made: Callable[..., torch.Tensor]

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == cls.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        match args:
            case [torch.Tensor(dtype=cls.dtype) as given]:
                return given.view_as(given)  # the type itself knows no tensors without storage
        return cls.made(*args, **kwargs)


_LEGACY = {
    name: _LegacyType(name, (), {"__module__": "torch", "dtype": kind.dtype, "made": kind})
    for name, kind in vars(torch).items()
    if type(kind) is type(torch.FloatTensor)
}
_TENSOR_TYPE = torch.Tensor.type


def _convert_type(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Tensor.type, which knows only the types of its own."""
    return _TENSOR_TYPE(self, dtype.dtype if isinstance(dtype, _LegacyType) else dtype, *args, **kwargs)


#: Each device that has not been used keeps the stack of its caller, which takes as long as a small model's forward.
_SEEDS = ("manual_seed", "manual_seed_all", "seed", "seed_all")
#: Functions of torch.cuda that fail without a GPU, and their results. Whether there is one is decided elsewhere.
_GPU: Mapping[str, object] = {
    **_make_silent_functions(
        "init", "set_device", "synchronize", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated",
        "reset_max_memory_cached", "reset_accumulated_memory_stats", "set_per_process_memory_fraction",
        "set_rng_state", "set_rng_state_all", "set_stream", *_SEEDS,
    ),
    **{name: type(name, (_Idle,), {}) for name in ("current_stream", "default_stream", "Stream", "Event", "CUDAGraph")},
    "current_device": _make_constant_function(0),
    "device_count": _make_constant_function(1),
    "get_device_name": _make_constant_function("GPU"),
    "get_device_capability": _make_constant_function((8, 0)),
    "get_device_properties": lambda *args, **kwargs: SimpleNamespace(**_PROPERTIES),
    "mem_get_info": _make_constant_function((16 * _GIB, 16 * _GIB)),
    "memory_summary": _make_constant_function(""),
    "utilization": _make_constant_function(0),
    "is_bf16_supported": _make_constant_function(True),
    **_LEGACY,
    "get_rng_state": lambda *args, **kwargs: torch.get_rng_state(),
    "get_rng_state_all": lambda *args, **kwargs: [torch.get_rng_state()],
    "stream": lambda *args, **kwargs: nullcontext(),
    "graph": lambda *args, **kwargs: nullcontext(),
    "device": lambda *args, **kwargs: nullcontext(),
    "device_of": lambda *args, **kwargs: nullcontext(),
}  # fmt: skip
_QUIET: tuple[tuple[Any, Mapping[str, object]], ...] = (
    (torch.cuda, _GPU),
    # A torch without CUDA has no version of it, and programs read its parts.
    (torch.version, {"cuda": torch.version.cuda or "12.6"}),
    (
        torch.accelerator,
        {
            **_make_silent_functions(
                "synchronize", "set_device_index", "set_stream", "empty_cache", "reset_peak_memory_stats"
            ),
            **{
                name: _make_constant_function(0)
                for name in ("current_device_index", "memory_allocated", "max_memory_allocated")
            },
            "device_count": _make_constant_function(1),
        },
    ),
    (torch.cuda.nvtx, _make_silent_functions("range_push", "range_pop", "mark", "range_start", "range_end")),
    (torch.cuda.profiler, _make_silent_functions("start", "stop", "init")),
    (torch._C._nn, {"_parse_to": lambda *args, **kwargs: _PARSE_TO(*map(_convert_device, args), **kwargs)}),
    (torch.mps, _make_silent_functions("empty_cache", "synchronize", *_SEEDS)),
    (torch.xpu, _make_silent_functions(*_SEEDS)),
    (torch.mtia, _make_silent_functions(*_SEEDS)),
    (torch, {"set_default_tensor_type": lambda kind: _set_default_type(kind), **_LEGACY}),
    (torch.Tensor, {"type": _convert_type}),
    (multiprocessing, {"spawn": lambda function, args=(), *more, **named: function(0, *args)}),
    # A debugger would wait at an empty terminal forever.
    (builtins, {"input": _make_constant_function(""), "breakpoint": _make_constant_function(None)}),
    (pdb, {"set_trace": _make_constant_function(None)}),
)


@contextmanager
def plain_machine() -> Iterator[None]:
    """Inside, programs for a GPU, for several processes and for a terminal find what they need."""
    with ExitStack() as stack:
        for owner, answers in _QUIET:
            stack.enter_context(Replaced(owner, {key: each for key, each in answers.items() if hasattr(owner, key)}))
        reading = _wrap_environment_read(type(os.environ).__getitem__)
        stack.enter_context(Replaced(type(os.environ), {"__getitem__": reading}))
        yield


def _set_default_type(kind: Any) -> None:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    dtype = torch.tensor([], dtype=getattr(torch, name.rpartition(".")[2].removesuffix("Tensor").lower())).dtype
    torch.set_default_dtype(dtype)


def _wrap_environment_read(original: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    def read(self: Any, key: str) -> str:
        try:
            return original(self, key)
        except KeyError:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_globals is globals():  # one machine inside of another
                frame = frame.f_back
            # `get` and `in` look up entries in this way too, and need no replacement.
            if key not in LAUNCHED or frame.f_globals.get("__name__") == "collections.abc":
                raise
            return LAUNCHED[key]

    return read
