"""The costs of a model's run: every ATen operator with its line, FLOPs and bytes, and the memory held meanwhile.

The model runs in a fork of the trace child under PyTorch's fake tensors, which have no storage and take the kernels of
a CPU. A dispatch mode sees each operator below autograd, and each storage as it is made and freed, so activations,
gradients and the state of an optimizer need no formulas. The result knows no device: the server lays a device's rates
over it.
"""

from __future__ import annotations

import ast
import math
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

from mase_server.dtypes import short
from mase_server.ir.parallel_costs import Parallel, find_share, follow_memory, parse_parallel
from mase_server.ops.paths import named_modules
from mase_server.protocol.records import MOST_SEARCHED, RunCosts
from mase_server.tracing.importing.importer import owns
from mase_server.tracing.inputs.spec import outside_modes
from mase_server.tracing.recording.rungs import OnCpu
from mase_server.tracing.recording.state import SEED

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph

#: The kinds of what is held, as people read them.
PARAMETER, BUFFER, INPUT, ACTIVATION, GRADIENT, STATE, TEMPORARY, UPDATE, GATHERED = (
    "parameter", "buffer", "input", "activation", "gradient", "optimizer state", "temporary", "optimizer step",
    "gathered"
)  # fmt: skip
#: The kinds that devices share out.
_OWNED = (PARAMETER, GRADIENT, STATE, UPDATE)
#: Points of the curve of memory that are told.
_POINTS = 2000
#: Rows of what holds the peak that are told.
_HOLDERS = 200
_CPU = torch.device("cpu")
#: Elements of an image up to which one alone is unfolded.
_UNFOLDED = 20480
#: Channels up to which an image is taken as it lies.
_PLAIN = 3
#: Bytes of which a GPU's allocator gives whole multiples.
_GRAIN = 512
_SILENT = frozenset({"prim", "profiler", "inductor"})
_aten = torch.ops.aten


# The recorder.


@dataclass(slots=True)
class Held:
    """A storage. born, died: numbers of operators; died is None while it lives."""

    bytes: int
    kind: str
    place: _Place
    born: int
    died: int | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an operator was called for. file: "" if that is none of the workspace's.  module: its path."""

    file: str = ""
    line: int = 0
    module: str = ""


_NOWHERE = _Place()


class RunRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each ATen operator of a run, and each storage from its first result to its end.

    calls: (phase, operator, element type, place, FLOPs, bytes read, bytes written) -> how often.  live: bytes after
    each operator.  phase, kind: of what comes next.  gpu: without what convolutions need on a CPU alone.
    """

    def __init__(self, model: nn.Module, workspace: str, *, gpu: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[tuple[str, str, str, _Place, int, int, int], int] = {}
        self.held: list[Held] = []
        self.live: list[int] = []
        self.places: list[_Place] = []
        self.phase = "forward"
        self.kind = ACTIVATION
        self._alive: dict[int, tuple[Any, Held]] = {}
        self._now = 0
        # Relative to where it is now: `owns` remembers its answers.
        self._workspace, self._gpu = str(Path.cwd() / workspace), gpu
        self._owned: dict[str, bool] = {}
        self._paths = {id(module): path for path, module in named_modules(model)}
        self._inside: list[str] = []
        self._of_nodes: dict[int, _Place] = {}
        self._last = _NOWHERE
        self._hooks = ExitStack()

    def __enter__(self) -> RunRecorder:
        """Begin to record."""
        before = nn.modules.module.register_module_forward_pre_hook(self._enter_module)
        self._hooks.enter_context(before)
        after = nn.modules.module.register_module_forward_hook(self._leave_module, always_call=True)
        self._hooks.enter_context(after)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *told: object) -> None:
        """End."""
        super().__exit__(*told)  # type: ignore[no-untyped-call]
        self._hooks.close()

    def _enter_module(self, module: nn.Module, args: object) -> None:
        self._inside.append(self._paths.get(id(module), self._inside[-1] if self._inside else ""))

    def _leave_module(self, module: nn.Module, args: object, result: object) -> None:
        if self._inside:
            self._inside.pop()

    def keep(self, tensors: Any, kind: str) -> int:
        """Note what is held before the run; returns its bytes, each storage counted once."""
        before = self._now
        for tensor in _list_tensors(tensors):
            self._note(tensor, kind, _NOWHERE)
        return self._now - before

    def mark(self, tensors: Any, kind: str) -> int:
        """Tell what the storages of these tensors are; returns their bytes."""
        found = {id(held): held for each in _list_tensors(tensors) if (held := self._find(each)) is not None}
        for held in found.values():
            held.kind = kind
        return sum(held.bytes for held in found.values())

    def _find(self, tensor: torch.Tensor) -> Held | None:
        known = self._alive.get(tensor.untyped_storage()._cdata)
        return None if known is None else known[1]

    def _note(self, tensor: torch.Tensor, kind: str, place: _Place) -> bool:
        """Note the storage of a tensor; was it unknown?"""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return False
        size = math.ceil(storage.nbytes() / _GRAIN) * _GRAIN if self._gpu else storage.nbytes()
        held = Held(size, kind, place, len(self.live))
        self._alive[key] = weakref.ref(storage, partial(self._free, key)), held
        self.held.append(held)
        self._now += held.bytes
        return True

    def _free(self, key: int, reference: object) -> None:
        _, held = self._alive.pop(key)
        held.died = len(self.live)
        self._now -= held.bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator and note it."""
        result = func(*args, **(kwargs or {}))
        if func.namespace in _SILENT:
            return result
        made = _list_tensors(result)
        place = self._locate()
        fresh = [tensor for tensor in made if self._note(tensor, self.kind, place)]
        # One that changes many tensors at once returns none of them.
        written = (made or _list_tensors(args[:1])) if func._schema.is_mutable else fresh
        if not written:
            return result  # a view, or a look at a value
        taken = _list_tensors((args, kwargs))
        packet = func.overloadpacket
        flops = _count_flops(packet, args, kwargs or {}, result)
        key = (
            self.phase, f"{func.namespace}.{packet.__name__}", short(str(written[0].dtype)), place, flops,
            sum({id(each): each.nbytes for each in taken}.values()), sum(each.nbytes for each in written),
        )  # fmt: skip
        self.calls[key] = self.calls.get(key, 0) + 1
        scratch = 0 if self._gpu else measure_scratch(packet, args, made)
        if scratch:
            self.held.append(Held(scratch, TEMPORARY, place, len(self.live), len(self.live) + 1))
        self.live.append(self._now + scratch)
        self.places.append(place)
        return result

    def _locate(self) -> _Place:
        """The line that an operator comes from; in the backward, that of the operator whose gradient it computes."""
        node: Any = torch._C._current_autograd_node()
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and not self._is_own(frame.f_code.co_filename):
            # What is above is whoever asked for the recording.
            frame = None if frame.f_code is Run.record.__code__ else frame.f_back
        module = self._inside[-1] if self._inside else ""
        if frame is not None:
            self._last = _Place(frame.f_code.co_filename, frame.f_lineno, module)
        elif node is not None:
            self._last = self._of_nodes.get(node._sequence_nr(), self._last)
        else:
            self._last = _Place(module=module)
        if node is None and torch.is_grad_enabled():
            self._of_nodes.setdefault(_next_sequence_number() - 1, self._last)
        return self._last

    def _is_own(self, path: str) -> bool:
        if path not in self._owned:
            self._owned[path] = owns(self._workspace, path)
        return self._owned[path]

    def at_start(self) -> int:
        """Bytes of parameters and buffers."""
        return sum(each.bytes for each in self.held if each.kind in (PARAMETER, BUFFER))

    def at_peak(self) -> list[Held]:
        """The tensors held after the operator after which most is held."""
        peak = max(range(len(self.live)), key=self.live.__getitem__, default=-1)
        return [h for h in self.held if h.born <= peak and (h.died is None or h.died > peak)]


def _list_tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


_next_sequence_number: Callable[[], int] = vars(torch.autograd)["_get_sequence_nr"]


def _count_flops(packet: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """The operations of a matrix product, a convolution or an attention, as `torch.utils.flop_counter` counts them.

    That one knows neither the CPU's attention nor grouped heads.
    """
    name = packet.__name__
    if name.startswith("_scaled_dot_product") and "attention_math" not in name:
        backward = name.endswith("_backward")
        query, key, value = args[1:4] if backward else args[:3]
        scores = 2 * query.shape[:-1].numel() * key.shape[-2]
        times = (3, 2) if backward else (1, 1)  # scores again, and a gradient of each factor
        return int(scores * (times[0] * query.shape[-1] + times[1] * value.shape[-1]))
    count: Any = flop_registry.get(packet)
    return 0 if count is None else int(count(*args, **kwargs, out_val=result))


def measure_scratch(packet: Any, args: Sequence[Any], made: Sequence[torch.Tensor]) -> int:
    """Bytes beside its results that a convolution holds while it runs on a CPU.

    oneDNN copies images and kernels into layouts with blocks of channels, and its result back; small ones are unfolded
    instead. Read from the allocator's events.
    """
    if packet is _aten.convolution:
        image, kernel, result = args[0], args[1], made[0]
    elif packet is _aten.convolution_backward:
        result, image, kernel = args[:3]
    else:
        return 0
    count, channels = image.shape[:2]
    transposed, wanted = args[6 if packet is _aten.convolution else 7], args[-1]
    if count == 1 and max(kernel.shape[2:]) <= 3 and image.numel() <= _UNFOLDED:
        return int(kernel[0].numel() * result[0, 0].numel() * image.itemsize)
    block = 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8
    images, results = _pad_channels(image, block), _pad_channels(result, block)
    kernels = int(kernel.nbytes * images / image.nbytes) if channels == kernel.shape[1] else kernel.nbytes
    if packet is _aten.convolution:
        taken = image.nbytes if channels >= block else 0
        if transposed:
            return 2 * int((result if result.shape[1] >= block else image).nbytes)
        return int(max(taken + kernel.nbytes + results - result.nbytes, results))
    of_kernel = results + (images if channels > _PLAIN else 0) + kernels - kernel.nbytes
    of_image = results + images + kernels - image.nbytes - kernel.nbytes
    return int(max(of_kernel, of_image) if wanted[0] else of_kernel)


def _pad_channels(image: torch.Tensor, block: int) -> int:
    """The bytes of images whose channels fill whole blocks."""
    return image.nbytes * math.ceil(image.shape[1] / block) * block // image.shape[1]


# A run: inference, or a step of training.


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recorded. train: an optimizer of `OPTIMIZERS`, "" for inference.

    dtype: of the parameters and inputs that are floats, "" for their own, or AMP.  gpu: as optimizers run on one: all
    parameters at once.  memory: bytes into which the largest sizes shall fit, 0 to search none.  checkpoint: training
    keeps only the inputs of the model's blocks, and computes them again in the backward.  parallel: how several devices
    share it, such as "fsdp=8".
    """

    train: str = ""
    dtype: str = ""
    gpu: bool = False
    memory: int = 0
    checkpoint: bool = False
    parallel: str = ""

    def __post_init__(self) -> None:
        """ValueError for an optimizer, an element type or a use of several devices that is not known."""
        for what, name, known in (("optimizer", self.train, OPTIMIZERS), ("element type", self.dtype, (*_DTYPES, AMP))):
            if name and name not in known:
                raise ValueError(f"there is no {what} {name!r}; there are {', '.join(known)}")
        parse_parallel(self.parallel)


#: Parameters and inputs as they are, and the forward under an autocast to bf16.
AMP = "amp"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


class _Adam8bit(torch.optim.Optimizer):
    """Adam with a byte for each element of its two moments, and a scale for each block of 256, as bitsandbytes has."""

    def __init__(self, parameters: Any, **told: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make the state, as far as there is none."""
        for parameter in (each for group in self.param_groups for each in group["params"] if each.grad is not None):
            state = self.state[parameter]
            for name in ("first", "second") if not state else ():
                state[name] = torch.empty_like(parameter, dtype=torch.uint8)
                state[f"{name}_scales"] = torch.empty(math.ceil(parameter.numel() / 256))


#: The optimizers by the names that `--train` takes.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
    "adam8bit": _Adam8bit,
}


def find_optimizer(path: str) -> str:
    """The optimizer that a file makes, by the name in `OPTIMIZERS`; "" if it makes none of them."""
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(Path(path).read_bytes())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2].lower()
            name = {"adamw8bit": "adam8bit"}.get(name, name)
            if name == "sgd" and any(each.arg == "momentum" for each in node.keywords):
                return "momentum"
            if name in OPTIMIZERS and name != "momentum":
                return name
    return ""


#: The arguments of a call at the sizes of these symbols; None for those that the model is known to be called with.
Feed = Callable[[Mapping[str, int] | None], tuple[tuple[Any, ...], Mapping[str, Any]]]


class _AsOnGpu(TorchFunctionMode):
    """Has attention and dropout take kernels that save for the backward what those of a GPU do.

    With dropout or a mask, a CPU computes attention in parts; and its masks of dropout have the type of the values.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function of torch."""
        given = dict(kwargs or {})
        if func is torch.dropout and given.get("train", args[2:] and args[2]):
            return torch.native_dropout(args[0], given.get("p", args[1] if len(args) > 1 else 0.5), True)[0]
        if func is F.scaled_dot_product_attention:
            mask = given.get("attn_mask", args[3] if len(args) > 3 else None)
            if mask is None or not mask.requires_grad:
                given.pop("dropout_p", None)
                args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
        return func(*args, **given)


_start_autocast: Callable[..., None] = torch.autocast.__init__


def _autocast_on_cpu(self: torch.autocast, device_type: str, *args: Any, **told: Any) -> None:
    _start_autocast(self, "cpu", *args, **told)


@dataclass(slots=True)
class Run:
    """A model that can be run at any sizes. It is changed: `model` must belong to this process alone.

    feed: makes its arguments.  folder: whose lines count.  sizes: of the symbols in its known inputs.  values: run on
    values in place of fake tensors, if a path depends on them.  loss: what is differentiated, in words.  checkpointed:
    the blocks that are computed again, in words.  cache: the keys and values that the last inference returned.
    parallel: how several devices share it.  sharding: a graph of the model, and what
    `autosharding_analysis_pass` found for it, to split tensors.
    """

    model: nn.Module
    feed: Feed
    plan: Plan = field(default_factory=lambda: Plan())
    folder: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: bool = False
    loss: str = ""
    checkpointed: str = ""
    cache: list[torch.Tensor] = field(default_factory=list)
    parallel: Parallel = field(init=False)
    sharding: tuple[MaseGraph, Mapping[str, Any]] | None = None
    mode: FakeTensorMode | None = None
    optimizer: torch.optim.Optimizer | None = None

    def __post_init__(self) -> None:
        """Exchange the tensors of the model; ValueError for a plan of several devices that cannot be."""
        self.parallel = Parallel.of(self.plan.parallel, bool(self.plan.train))
        if self.sharding is not None:
            self.parallel.split(*self.sharding)
        self.mode = None if self.values else FakeTensorMode(allow_non_fake_inputs=True)
        self.model.train(bool(self.plan.train))
        with outside_modes():
            make_fake(self.model, self.mode, _DTYPES.get(self.plan.dtype))
        if self.parallel.devices:
            self.parallel.gather(self.model, find_blocks(self.model))
        if self.plan.checkpoint and self.plan.train:
            self.checkpoint_blocks()

    def checkpoint_blocks(self) -> bool:
        """Have the model's blocks compute their results again in the backward; False if it has none."""
        blocks = find_blocks(self.model)
        for block in blocks:
            # Recomputed dropout may draw other numbers: no size depends on them.
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
        self.checkpointed = f"{len(blocks)} {type(blocks[0]).__name__}" if blocks else ""
        return bool(blocks)

    def record(self, sizes: Mapping[str, int] | None = None) -> tuple[RunRecorder, dict[str, int]]:
        """Run once; returns the recording, and the bytes of parameters, gradients, the optimizer's state and inputs."""
        recorder = RunRecorder(self.model, self.folder, gpu=self.plan.gpu)
        change = partial(_change_tensor, self.mode, _DTYPES.get(self.plan.dtype))
        args, kwargs = tree_map_only(torch.Tensor, change, self.feed(sizes))
        with self._around():
            self._prepare_optimizer()
            told = {
                "parameters": recorder.keep(list(self.model.parameters()), PARAMETER),
                "buffers": recorder.keep(list(self.model.buffers()), BUFFER),
                "optimizer": recorder.keep(self._list_state(), STATE),
                "inputs": recorder.keep((args, kwargs), INPUT),
                "gradients": 0,
            }
            with recorder:
                if not self.plan.train:
                    with torch.no_grad():
                        result = self._call(args, kwargs)
                    self.cache = _list_within(_read_cache(result))
                    del result
                else:
                    told["gradients"] = self._train(recorder, args, kwargs)
        if self.parallel.devices:
            if self.parallel.gathered:
                recorder.held.append(Held(self.parallel.gathered, GATHERED, _NOWHERE, 0))
            self.parallel.share(recorder.held, _OWNED, (ACTIVATION, TEMPORARY))
            recorder.live = follow_memory(recorder.held, len(recorder.live))
        return recorder, told

    def _call(self, args: Any, kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16) if self.plan.dtype == AMP else nullcontext():
            return self.model(*args, **kwargs)

    def _around(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(outside_modes())
        stack.enter_context(OnCpu())
        if self.plan.gpu:
            stack.enter_context(_AsOnGpu())
            # The model stands on the CPU, so an autocast of its code means that.
            stack.enter_context(patch.object(torch.autocast, "__init__", _autocast_on_cpu))
        if self.mode is not None:
            # The fused layers of transformers have no kernel for fake tensors.
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
            stack.enter_context(self.mode)
        torch.manual_seed(SEED)
        return stack

    def _prepare_optimizer(self) -> None:
        """Make the optimizer's state, by a step, so that what is recorded is any step but the first."""
        if not self.plan.train or self.optimizer is not None:
            return
        free = [each for each in self.model.parameters() if each.requires_grad]
        if not free:
            return  # a part without parameters, or a frozen one: its step is a forward
        more = {"foreach": self.plan.gpu} if self.plan.train != "adam8bit" else {}
        self.optimizer = OPTIMIZERS[self.plan.train](free, lr=1e-3, **more)
        for parameter in free:
            parameter.grad = torch.empty_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _list_state(self) -> list[torch.Tensor]:
        return [] if self.optimizer is None else _list_tensors([dict(s) for s in self.optimizer.state.values()])

    def _train(self, recorder: RunRecorder, args: Any, kwargs: Any) -> int:
        if self.optimizer is None:
            self.loss = "none, nothing is trained"
            with torch.no_grad():
                self._call(args, kwargs)
            return 0
        result = self._call(args, kwargs)
        loss, self.loss = find_loss(result)
        recorder.phase, recorder.kind = "backward", TEMPORARY
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = recorder.mark([each.grad for each in self.model.parameters()], GRADIENT)
        del result, loss
        recorder.phase, recorder.kind = "optimizer", UPDATE
        self.optimizer.step()
        self.optimizer.zero_grad()
        return gradients


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The parts that a person would checkpoint: those of one class in lists, with the most parameters in all."""
    by_class: dict[type, dict[str, nn.Module]] = {}
    for path, each in named_modules(model):
        if isinstance(each, nn.ModuleList | nn.Sequential):
            for name, part in each.named_children():
                if any(True for _ in part.children()):
                    by_class.setdefault(type(part), {})[f"{path}.{name}".lstrip(".")] = part
    repeated = [parts for parts in by_class.values() if len(parts) > 1]
    if not repeated:
        return []

    def weigh(parts: Mapping[str, nn.Module]) -> tuple[int, int]:
        return sum(each.numel() for part in parts.values() for each in part.parameters()), -len(parts)

    parts = max(repeated, key=weigh)
    inner = {path for path in parts for other in parts if path.startswith(f"{other}.")}
    return [part for path, part in parts.items() if path not in inner]


def find_loss(result: Any) -> tuple[torch.Tensor, str]:
    """The value that training differentiates, and its name in words; ValueError if nothing depends on a parameter.

    It is the model's own loss, else the sum of the squares of its results: a criterion outside of the model is not
    known. The gradient of a sum alone would be one number, expanded.
    """
    free = [each for each in _list_results(result) if each.requires_grad]
    numbers = [each for each in free if not each.dim()]
    own = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    if isinstance(own, torch.Tensor) or len(numbers) == 1:
        return own if isinstance(own, torch.Tensor) else numbers[0], "its own"
    if not free:
        raise ValueError("no result depends on a parameter: nothing can be trained")
    squares = [each.square().sum() for each in free]
    return sum(squares[1:], squares[0]), "the squares of its results"


def _read_cache(result: Any) -> Any:
    """The keys and values that a model of transformers returns for the next tokens."""
    return result.get("past_key_values") if isinstance(result, Mapping) else getattr(result, "past_key_values", None)


def _list_within(value: Any, depth: int = 4) -> list[torch.Tensor]:
    """The tensors in an object that torch does not know, and in those that it has."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    elif not isinstance(value, list | tuple):
        value = list(vars(value).values()) if hasattr(value, "__dict__") else []
    return [each for part in value for each in _list_within(part, depth - 1)] if depth else []


def measure_token(run: Run) -> tuple[int, int]:
    """Bytes of cache for each further token of a sequence, and the number of sequences; (0, 0) without a cache.

    Read from the shapes at sizes that are one larger: the batch is the first dimension.
    """
    first = [tuple(each.shape) for each in run.cache]
    if first and run.mode is not None:
        before = sum(each.nbytes for each in run.cache)
        for name, size in run.sizes.items():
            run.record({**run.sizes, name: size + 1})
            more = sum(each.nbytes for each in run.cache) - before
            same_batch = all(each.shape[0] == old[0] for each, old in zip(run.cache, first, strict=True))
            if more > 0 and same_batch:
                return more // first[0][0], first[0][0]
    return 0, 0


def _list_results(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, also of a dataclass that torch does not know."""
    return _list_tensors(result if isinstance(result, torch.Tensor | tuple | list | Mapping) else vars(result))


def _change_tensor(mode: FakeTensorMode | None, dtype: torch.dtype | None, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of an element type, if it holds floats; fake if there is a mode."""
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    if mode is None:
        return tensor
    if tensor.is_meta:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU)
    return mode.from_tensor(tensor, static_shapes=True)


def make_fake(model: nn.Module, mode: FakeTensorMode | None, dtype: torch.dtype | None) -> None:
    """Exchange all tensors of a model; parts that share one still do."""
    made: dict[int, torch.Tensor] = {}
    with torch.no_grad():
        for _, module in named_modules(model):
            tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, vars(module))
            for table in tables:
                for name, value in list(table.items()):
                    if not isinstance(value, torch.Tensor):
                        continue
                    if id(value) not in made:
                        found = _change_tensor(mode, dtype, value.detach())
                        kept = isinstance(value, nn.Parameter)
                        made[id(value)] = nn.Parameter(found, value.requires_grad) if kept else found
                    table[name] = made[id(value)]
            if isinstance(module, nn.RNNBase):
                names = module._flat_weights_names
                module._flat_weights = [getattr(module, name) if hasattr(module, name) else None for name in names]


# The result, as plain values.


def write_costs(run: Run) -> RunCosts:
    """Record a run, and find the largest sizes that fit."""
    recorder, told = run.record()
    held = recorder.at_peak()
    tables = _Tables()
    calls, owned = [], run.parallel.owned
    for (phase, operator, dtype, place, *work), count in recorder.calls.items():
        if run.parallel.devices:
            part = owned if phase == "optimizer" else find_share(run.parallel.work, place.module)
            work = [round(each * part) for each in work]
        calls.append([phase, operator, dtype, *tables.place(place), *work, count])
    sums: dict[tuple[str, _Place], int] = {}
    for each in held:
        sums[each.kind, each.place] = sums.get((each.kind, each.place), 0) + each.bytes
    holders = sorted(sums.items(), key=lambda pair: -pair[1])
    by_kind: dict[str, int] = {}
    for (kind, _), size in holders:
        by_kind[kind] = by_kind.get(kind, 0) + size
    token, sequences = measure_token(run)
    room = run.plan.memory - recorder.at_start()
    fits = find_fits(run) if run.plan.memory else {}
    # Last: it changes the model.
    asked = run.plan.memory and run.plan.train and not run.plan.checkpoint
    more = find_fits(run) if asked and run.checkpoint_blocks() else {}
    return {
        "facts": {
            "mode": "training" if run.plan.train else "inference",
            "optimizer": run.plan.train,
            "loss": run.loss,
            "measured": "on values" if run.mode is None else "",
            "peak_bytes": max(recorder.live, default=sum(told.values())),
            "parameters_bytes": round(told["parameters"] * owned) + told["buffers"],
            "gradients_bytes": round(told["gradients"] * owned),
            "optimizer_bytes": round(told["optimizer"] * owned),
            "activations_bytes": by_kind.get(ACTIVATION, 0),
            "inputs_bytes": told["inputs"],
            "kinds": by_kind,
            "sizes": dict(run.sizes),
            "fits": fits,
            "fits_checkpointed": more,
            "checkpointed": run.checkpointed,
            "parallel": run.plan.parallel,
            "devices": math.prod(run.parallel.devices.values()),
            "sent_bytes": run.parallel.count_sent(told["parameters"], told["gradients"]),
            "split_seconds": run.parallel.tp_seconds,
            "token_bytes": token,
            "longest": max(0, room // (token * sequences)) if token else 0,
        },
        "held": [[kind, *tables.place(place), size] for (kind, place), size in holders[:_HOLDERS]],
        "curve": [[at, recorder.live[at], *tables.place(recorder.places[at])] for at in _sample(recorder.live)],
        "calls": calls,
        "files": list(tables.files),
        "modules": list(tables.modules),
    }


@dataclass(slots=True)
class _Tables:
    """Numbers for texts that occur often."""

    files: dict[str, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)

    def place(self, place: _Place) -> tuple[int, int, int]:
        """The number of its file, its line, and the number of its module."""
        file = self.files.setdefault(place.file, len(self.files))
        return file, place.line, self.modules.setdefault(place.module, len(self.modules))


def _sample(live: Sequence[int]) -> list[int]:
    """Numbers of operators that show the curve: the highest of each stretch."""
    stretch = max(1, math.ceil(len(live) / _POINTS))
    starts = range(0, len(live), stretch)
    return [max(range(at, min(at + stretch, len(live))), key=live.__getitem__) for at in starts]


def find_fits(run: Run) -> dict[str, int]:
    """The largest size of each symbol that fits into memory with the traced sizes of the others, recorded there.

    0: not even one fits.
    """
    sizes = dict(run.sizes)
    return {name: _find_largest(run, sizes, name) for name in sizes if len(name) == 1} if run.mode is not None else {}


def _find_largest(run: Run, sizes: Mapping[str, int], name: str) -> int:
    """The largest size that fits; of a model that takes only multiples of a power of two, the largest of these."""
    known: dict[int, float] = {}

    def peak(size: int) -> float:
        if size not in known:
            try:
                recorder, _ = run.record({**sizes, name: size})
                known[size] = max(recorder.live, default=0)
            except Exception:  # noqa: BLE001 - the model takes no such size
                known[size] = math.inf
        return known[size]

    step, memory = 1, run.plan.memory
    largest = _search(peak, memory, sizes[name], step)
    while largest and sizes[name] % (2 * step) == 0 and math.isinf(peak(_next_multiple(largest, step))):
        step *= 2
        if peak(_next_multiple(largest, step)) <= memory:
            largest = _search(peak, memory, sizes[name], step)
    return largest


def _next_multiple(size: int, step: int) -> int:
    return (size // step + 1) * step


def _search(peak: Callable[[int], float], memory: int, start: int, step: int) -> int:
    """Follow the line through the last two peaks until the multiples at and above the largest were both recorded."""
    known: dict[int, float] = {}
    low, high = 0, MOST_SEARCHED // step + 1
    size, slow = start // step, False
    while high - low > 1:
        width = high - low
        known[size] = peak(size * step)
        low, high = (size, high) if known[size] <= memory else (low, size)
        # After a line that did not halve what is left comes a half, or a double where nothing was too large yet.
        slow = not slow and 2 * (high - low) > width
        middle = 2 * low if high > MOST_SEARCHED // step else (low + high) // 2
        size = min(max(middle if slow else _guess_size(known, memory, low, high), low + 1), high - 1)
    return low * step


def _guess_size(known: Mapping[int, float], memory: int, low: int, high: int) -> int:
    """A size between two, where the line through the peaks of the two that are nearest meets the memory."""
    measured = sorted((abs(peak - memory), size) for size, peak in known.items() if peak < math.inf)[:2]
    guess = 2 * low if low else high // 2
    if len(measured) == 2:
        (_, first), (_, second) = measured
        slope = (known[second] - known[first]) / (second - first)
        if slope > 0:
            guess = first + math.floor((memory - known[first]) / slope)
            guess = guess + 1 if guess == low else guess
    elif low:
        guess = 2 * low
    if math.isinf(known.get(high, 0.0)):
        guess = min(guess, (low + high) // 2)  # where the model ends, no line helps
    return min(max(guess, low + 1), high - 1)
