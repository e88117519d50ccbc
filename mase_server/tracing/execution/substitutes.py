"""Substitutes for what a program expects outside of itself: weights that are not on this disk, and other processes.

Models have the same shapes without the weights, so the program continues without.
"""

from __future__ import annotations

import ast
import errno
import functools
import importlib
import importlib.util
import inspect
import itertools
import os
import re
import sys
import tempfile
import textwrap
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.modules.module import _IncompatibleKeys
from torch.nn.parallel import DataParallel, DistributedDataParallel

from mase_server.reading import is_folder
from mase_server.tracing.execution.guard import RefusedError, Replaced, change_environment, find_refusal
from mase_server.tracing.importing.lookups import note_read
from mase_server.tracing.importing.standins import stand_in
from mase_server.tracing.inputs.spec import outside_modes
from mase_server.tracing.recording.positions import get_first_argument


class AbsentWeights(dict[str, Any]):
    """Stands for a missing file of weights: it has no entries, and every look-up returns another one like it."""

    def __missing__(self, key: str) -> AbsentWeights:
        return AbsentWeights()

    def pop(self, key: str, *default: Any) -> Any:
        """Return an absent value: a removed entry does not exist either."""
        return default[0] if default else AbsentWeights()


@dataclass(frozen=True, slots=True)
class Loading:
    """One call that loads weights. values: the loaded ones, each beside the module's tensor that it was loaded into.

    files: those read since the call before.  absent: what the program wanted since then and does without, in words.
    """

    module: nn.Module
    values: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()
    files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


#: The loads of a program in this process, in order, so that they can be repeated with values.
LOADED: list[Loading] = []
_read: list[str] = []
_absent: list[str] = []


@contextmanager
def loaded_where_present() -> Iterator[None]:
    """Inside, weights on the disk are loaded with their values; others are neither downloaded nor required."""
    wanted: set[str] = set()
    with (
        change_environment(_choose_download_folder()),
        Replaced(
            torch.hub,
            {
                "download_url_to_file": lambda url, dst, *args, **kwargs: _do_without(dst, wanted),
                "load": _wrap_hub_load(torch.hub.load),
            },
        ),
        Replaced(urllib.request, {"urlretrieve": _wrap_retrieval(urllib.request.urlretrieve, wanted)}),
        Replaced(torch, {"load": _wrap_torch_load(torch.load, wanted)}),
        Replaced(torch.jit, {"load": _wrap_compiled_load(torch.jit.load)}),
        Replaced(nn.Module, {"load_state_dict": _load_state_dict(nn.Module.load_state_dict, wanted)}),
        _patch_safetensors(),
    ):
        yield


#: Names of functions that only give values to weights.
_LOADING = re.compile(r"load|pretrain|weight|checkpoint|ckpt|download")


def skip_failed_download(error: BaseException) -> bool:
    """After a refused download: turn the function of the person's that only wanted weights from it into one that does
    nothing. Return whether there was one.

    It is the outermost function that is called for nothing else: as a statement, without a result, and without setting
    an attribute of its object.
    """
    refused = find_refusal(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for caller, called in itertools.pairwise(frames) if refused and "network" in str(refused) else ():
        name = called.f_code.co_name
        first = get_first_argument(caller)
        owner = type(first) if isinstance(first, nn.Module) and hasattr(type(first), name) else caller.f_globals
        held = getattr(owner, name, None) if isinstance(owner, type) else owner.get(name)
        if not _LOADING.search(name) or getattr(held, "__code__", None) is not called.f_code or not _only_loads(held):
            continue
        if isinstance(owner, type):
            setattr(owner, name, _make_skipped(name))
        else:
            owner[name] = _make_skipped(name)
        return True
    return False


def _only_loads(function: Any) -> bool:
    """Does a function neither return a value nor set an attribute?"""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    except (OSError, SyntaxError, TypeError):
        return False
    returns = any(isinstance(node, ast.Return | ast.Yield) and node.value is not None for node in nodes)
    return not returns and not any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in nodes)


def _make_skipped(name: str) -> Callable[..., None]:
    """A function that does nothing, and notes which models are without what it would have loaded."""

    def skip(*args: Any, **kwargs: Any) -> None:
        models = (each for each in (*args, *kwargs.values()) if isinstance(each, nn.Module))
        LOADED.extend(Loading(model, absent=(f"what {name} downloads",)) for model in models)

    return skip


def _iterate_loaded_pairs(module: nn.Module, values: Mapping[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            value = values.get(name)
            if isinstance(value, torch.Tensor) and not value.is_meta and value.shape == tensor.shape:
                yield tensor, value


@contextmanager
def _patch_safetensors() -> Iterator[None]:
    """Let safetensors load values too, if it is installed."""
    if importlib.util.find_spec("safetensors") is None:
        yield
        return
    module = importlib.import_module("safetensors.torch")
    with Replaced(module, {"load_file": _wrap_file_load(module.load_file)}):
        yield


def _wrap_file_load(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        _read.append(os.fsdecode(file))
        note_read(file)  # it is opened outside of Python, where no audit event reports it
        with outside_modes():
            return original(file)

    return read


def _choose_download_folder() -> dict[str, str]:
    """A folder for downloads if there is none, since none may be created."""
    usual = Path(torch.hub.get_dir()) / "checkpoints"
    return {} if is_folder(usual) else {"TORCH_HOME": str(Path(tempfile.gettempdir()) / "torch")}


def _do_without(file: Any, wanted: set[str]) -> AbsentWeights:
    """Note a file of weights that is not there."""
    wanted.add(str(file))
    _absent.append(Path(file).name)
    return AbsentWeights()


#: Repositories on GitHub whose networks are torchvision's: owner and name -> what follows the name of the network.
_HUBS: Mapping[str, str] = {
    "pytorch/vision": "",
    "facebookresearch/WSL-Images": "_wsl",
    "facebookresearch/semi-supervised-ImageNet1K-models": r"_s?w?sl",
    "facebookresearch/barlowtwins": "",
}


def _wrap_hub_load(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make networks of torchvision with the package that is here, or with its replacement, and download no weights."""

    @functools.wraps(original)
    def load(repo_or_dir: Any, model: str, *args: Any, **kwargs: Any) -> Any:
        ending = _HUBS.get(str(repo_or_dir).partition(":")[0])
        builder = None
        if ending is not None and kwargs.get("source", "github") == "github":
            builder = _find_network(re.sub(f"{ending}$", "", model))
        if builder is None:
            return original(repo_or_dir, model, *args, **kwargs)
        weights = kwargs.pop("pretrained", False) or kwargs.pop("weights", None)
        options = {key: value for key, value in kwargs.items() if key not in _HUB_OPTIONS}
        net = builder(*args, **options)
        if weights:
            LOADED.append(Loading(net, absent=(f"{model} of {repo_or_dir}",)))
        return net

    return load


def _find_network(name: str) -> Any:
    """The function of torchvision that makes a network; None if there is none."""
    if importlib.util.find_spec("torchvision") is None:
        return stand_in(f"torchvision.models.{name}")
    models = importlib.import_module("torchvision.models")
    return getattr(models, name, None) or getattr(models.segmentation, name, None)


#: Options of `torch.hub.load` itself.
_HUB_OPTIONS = ("source", "trust_repo", "force_reload", "verbose", "skip_validation")
#: Endings of files of weights.
_WEIGHTS = re.compile(r"\.(pth?|ckpt|bin|tar|th|safetensors|weights|pkl)$")


def _wrap_retrieval(original: Callable[..., Any], wanted: set[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def retrieve(url: str, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
        if filename is None or not _WEIGHTS.search(str(filename)):
            return original(url, filename, *args, **kwargs)
        _do_without(filename, wanted)
        return filename, None

    return retrieve


def _wrap_torch_load(original: Callable[..., Any], wanted: set[str]) -> Callable[..., Any]:
    """Load tensors to the device on which every tensor of the program seems to be."""

    @functools.wraps(original)
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | os.PathLike) and (str(file) in wanted or not Path(file).exists()):
            return _do_without(file, wanted)
        kwargs["map_location"] = "cpu"
        if isinstance(file, str | os.PathLike):
            _read.append(os.fsdecode(file))
        with outside_modes():
            return original(file, *args[1:], **kwargs)

    return load


def _wrap_compiled_load(original: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled model that is not on the disk is a missing file, as for `open`; torch raises a ValueError."""

    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, str | os.PathLike) and not Path(f).exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(f))
        return original(f, *args, **kwargs)

    return load


def _load_state_dict(original: Callable[..., Any], wanted: set[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_state_dict(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            found = original(self, state_dict, *args, **kwargs)
        except Exception:  # the border to hooks and to overridden methods of the user's
            # An object made from absent weights has too few entries, or is no mapping, however it was made.
            if not wanted:
                raise
            found = _IncompatibleKeys([], [])
        values = tuple(_iterate_loaded_pairs(self, state_dict)) if isinstance(state_dict, Mapping) else ()
        LOADED.append(Loading(self, values, tuple(_read), tuple(_absent)))
        _read.clear()
        _absent.clear()
        return found

    return load_state_dict


# Programs for many processes, run by one: a group of one process, and wrappers that only pass calls to their model.


_SHARDED = "FullyShardedDataParallel"
#: Importing it registers the backend `fake`, whose collectives do nothing.
_FAKE = "torch.testing._internal.distributed.fake_pg"


class _Done:
    """The result of an asynchronous collective operation."""

    def wait(self, *args: Any) -> bool:
        """Return at once."""
        return True

    is_completed = is_success = wait


def _put_first(result: list[Any], value: Any) -> None:
    result[0] = value


def _copy_collected(result: Any, value: Any) -> None:
    result.copy_(value.view_as(result))


#: Collective operations by the name of their result, and the result for one process; None: it already has it.
_COLLECTIVES: dict[str, tuple[str, str, Callable[[Any, Any], Any]] | None] = {
    **dict.fromkeys(
        ("barrier", "monitored_barrier", "all_reduce", "reduce", "broadcast", "broadcast_object_list", "send", "isend",
         "recv", "irecv", "all_reduce_coalesced", "batch_isend_irecv"),
    ),
    "all_gather": ("tensor_list", "tensor", _put_first),
    "gather": ("gather_list", "tensor", lambda result, value: _put_first(result, value) if result else None),
    "scatter": ("tensor", "scatter_list", lambda result, value: value and result.copy_(value[0])),
    "all_gather_object": ("object_list", "obj", _put_first),
    "gather_object": ("object_gather_list", "obj", lambda result, value: _put_first(result, value) if result else None),
    "scatter_object_list": ("scatter_object_output_list", "scatter_object_input_list",
                            lambda result, value: _put_first(result, value[0]) if value else None),
    "all_gather_into_tensor": ("output_tensor", "input_tensor", _copy_collected),
    "reduce_scatter_tensor": ("output", "input", _copy_collected),
    "reduce_scatter": ("output", "input_list", lambda result, value: result.copy_(value[0])),
    "all_to_all_single": ("output", "input", _copy_collected),
    "all_to_all": ("output_tensor_list", "input_tensor_list", lambda result, value: _put_first(result, value[0])),
}  # fmt: skip


#: A trace asks for these several times.
_read_signature = functools.cache(inspect.signature)


def _make_collective(original: Callable[..., Any], does: tuple[str, str, Callable[[Any, Any], Any]] | None) -> Any:
    signature = _read_signature(original)

    def operate(*args: Any, **kwargs: Any) -> _Done | None:
        given = signature.bind(*args, **kwargs).arguments
        if does is not None:
            result, value, put = does
            put(given.get(result), given.get(value))
        return _Done() if given.get("async_op") or original.__name__ in ("isend", "irecv") else None

    return operate


def _make_lone_functions(c10d: Any) -> dict[str, Callable[..., Any]]:
    """The functions of `torch.distributed` for a process that is alone."""
    init, new_group, default_group = c10d.init_process_group, c10d.new_group, c10d._get_default_group

    def form(*args: Any, **kwargs: Any) -> None:
        """Form a group when the program asks for one; before that, `is_initialized` returns the truth."""
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
            name: _make_collective(getattr(c10d, name), does)
            for name, does in _COLLECTIVES.items()
            if hasattr(c10d, name)
        },
    }  # fmt: skip


def _refuse_to_wait(*args: Any, **kwargs: Any) -> None:
    raise RefusedError("waiting for other processes was refused while the model is traced")


def _make_mesh_function(meshes: Any, form: Callable[..., Any]) -> Callable[..., Any]:
    original = meshes.init_device_mesh

    def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], **named: Any) -> Any:
        form()
        with outside_modes():
            return original("cpu", (1,) * len(mesh_shape), mesh_dim_names=named.get("mesh_dim_names"))

    return init_device_mesh


@contextmanager
def simulate_single_process(source: str) -> Iterator[None]:
    """Inside, `torch.distributed` acts as a group of one process, and a wrapped model is called directly.

    source: of the program. Sharding takes long to import, so it is only patched in programs that use it.
    """
    with ExitStack() as stack:
        if distributed.is_available():
            c10d = distributed.distributed_c10d
            was_formed, destroy = distributed.is_initialized(), c10d.destroy_process_group
            answers = _make_lone_functions(c10d)
            meetings = sys.modules["torch.distributed.rendezvous"]
            stack.enter_context(Replaced(meetings, {"_create_c10d_store": _refuse_to_wait}))
            for owner in (distributed, c10d):
                known = {name: answer for name, answer in answers.items() if hasattr(owner, name)}
                stack.enter_context(Replaced(owner, known))
            if "mesh" in source:
                meshes = importlib.import_module("torch.distributed.device_mesh")
                mesh = _make_mesh_function(meshes, answers["init_process_group"])
                for owner in (distributed, meshes):
                    stack.enter_context(Replaced(owner, {"init_device_mesh": mesh}))
            stack.callback(lambda: destroy() if distributed.is_initialized() and not was_formed else None)
        kinds: list[type[nn.Module]] = [DataParallel, DistributedDataParallel]
        if distributed.is_available() and ("fsdp" in source or _SHARDED in source):
            sharding = importlib.import_module("torch.distributed.fsdp")
            kinds.append(sharding.FullyShardedDataParallel)
            stack.enter_context(Replaced(sharding, {"fully_shard": lambda module, *args, **kwargs: module}))
        for kind in kinds:
            stack.enter_context(Replaced(kind, {"__init__": _init_wrapper, "forward": _call_wrapped}))
        yield


def _init_wrapper(self: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> None:
    nn.Module.__init__(self)
    # If `module` is a property, it reads the attribute of the other name.
    setattr(self, "_fsdp_wrapped_module" if type(self).__name__ == _SHARDED else "module", module)


def _call_wrapped(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return unwrap_model(self)(*args, **kwargs)


def is_wrapper(model: object) -> bool:
    """Does a module only hold a whole model as `module`?"""
    return isinstance(model, DataParallel | DistributedDataParallel) or type(model).__name__ == _SHARDED


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model inside its wrappers."""
    while is_wrapper(model) and isinstance(inner := getattr(model, "module", None), nn.Module):
        model = inner
    return model
