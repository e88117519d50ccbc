"""What a run of a model costs: every ATen operator with its line, FLOPs and bytes, and the memory held meanwhile.

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
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from mase_server.dtypes import short
from mase_server.ops.paths import named_modules
from mase_server.protocol.records import RunCosts
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.importing.importer import owns, restore_plain_code
from mase_server.tracing.inputs.spec import LARGEST_FILLED, inputs_at, outside_modes
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.models.real import SEED, Real
from mase_server.tracing.recording.rungs import OnCpu
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.runs import Subject, answer_on_meta

#: The kinds of what is held, as people read them.
PARAMETER, BUFFER, INPUT, ACTIVATION, GRADIENT, STATE, TEMPORARY = (
    "parameter", "buffer", "input", "activation", "gradient", "optimizer state", "temporary"
)  # fmt: skip
#: Points of the curve of memory that are told.
_POINTS = 2000
#: Rows of what holds the peak that are told.
_HOLDERS = 200
#: Larger sizes are not searched for.
_LARGEST = 1 << 20
_CPU = torch.device("cpu")
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
    each operator.  phase, kind: of what comes next.
    """

    def __init__(self, model: nn.Module, workspace: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[tuple[str, str, str, _Place, int, int, int], int] = {}
        self.held: list[Held] = []
        self.live: list[int] = []
        self.places: list[_Place] = []
        self.phase = "forward"
        self.kind = ACTIVATION
        self._alive: dict[int, tuple[Any, Held]] = {}
        self._now = 0
        self._workspace = workspace
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
        held = Held(storage.nbytes(), kind, place, len(self.live))
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
        taken = _list_tensors((args, kwargs))
        fresh = [tensor for tensor in made if self._note(tensor, self.kind, place)]
        changes = func._schema.is_mutable
        if not made or not (fresh or changes):
            return result  # a view, or a look at a value
        written = made if changes else fresh
        packet = func.overloadpacket
        flops = _count_flops(packet, args, kwargs or {}, result)
        key = (
            self.phase, f"{func.namespace}.{packet.__name__}", short(str(made[0].dtype)), place, flops,
            sum({id(each): each.nbytes for each in taken}.values()), sum(each.nbytes for each in written),
        )  # fmt: skip
        self.calls[key] = self.calls.get(key, 0) + 1
        self.live.append(self._now)
        self.places.append(place)
        return result

    def _locate(self) -> _Place:
        """The line that an operator comes from; in the backward, that of the operator whose gradient it computes."""
        node: Any = torch._C._current_autograd_node()
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and not self._is_own(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            module = self._inside[-1] if self._inside else ""
            self._last = _Place(frame.f_code.co_filename, frame.f_lineno, module)
        elif node is not None:
            self._last = self._of_nodes.get(node._sequence_nr(), self._last)
        elif self.phase != "forward":
            self._last = _NOWHERE
        if node is None and torch.is_grad_enabled():
            self._of_nodes[_next_sequence_number() - 1] = self._last
        return self._last

    def _is_own(self, path: str) -> bool:
        if path not in self._owned:
            self._owned[path] = owns(self._workspace, path)
        return self._owned[path]

    def at_peak(self) -> list[Held]:
        """What is held after the operator after which most is held."""
        peak = max(range(len(self.live)), key=self.live.__getitem__, default=-1)
        return [h for h in self.held if h.born <= peak and (h.died is None or h.died > peak)]


def _list_tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


_next_sequence_number: Callable[[], int] = vars(torch.autograd)["_get_sequence_nr"]


def _count_flops(packet: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """The operations of a matrix product, a convolution or an attention, as `torch.utils.flop_counter` counts them."""
    count: Any = flop_registry.get(packet) or _FLOPS.get(packet)
    return 0 if count is None else int(count(*args, **kwargs, out_val=result))


def _count_attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
    """FLOPs of the CPU's attention kernel, which torch's table lacks: those of the other kernels."""
    same = flop_registry[_aten._scaled_dot_product_flash_attention]
    return int(same(query, key, value, out_val=named["out_val"]))


def _count_attention_backward(gradient: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
    same = flop_registry[_aten._scaled_dot_product_flash_attention_backward]
    return int(same(gradient, query, key, value, out_val=named["out_val"]))


_FLOPS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _count_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _count_attention_backward,
}


# A run: inference, or a step of training.


@dataclass(frozen=True, slots=True)
class Plan:
    """What is recorded. train: an optimizer of `OPTIMIZERS`, "auto" for the file's own, "" for inference.

    dtype: of the parameters and inputs that are floats, "" for their own.  gpu: as optimizers run on one: all
    parameters at once.  memory: bytes into which the largest sizes shall fit, 0 to search none.  checkpoint: repeated
    blocks are computed again in the backward.
    """

    train: str = ""
    dtype: str = ""
    gpu: bool = False
    memory: int = 0
    checkpoint: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Plan:
        """Read it from the parameters of a call."""
        train, dtype = str(params.get("train") or ""), str(params.get("dtype") or "")
        if train and train != "auto" and train not in OPTIMIZERS:
            raise AskError(f"there is no optimizer {train!r}; there are {', '.join(OPTIMIZERS)}")
        if dtype and dtype not in _DTYPES:
            raise AskError(f"there is no element type {dtype!r}; there are {', '.join(_DTYPES)}")
        return cls(train, dtype, bool(params.get("gpu")), int(params.get("memory") or 0))


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
            name = ast.unparse(node.func).rpartition(".")[2].lower().replace("8bit", "8bit")
            name = {"adamw8bit": "adam8bit"}.get(name, name)
            if name == "sgd" and any(each.arg == "momentum" for each in node.keywords):
                return "momentum"
            if name in OPTIMIZERS and name != "momentum":
                return name
    return ""


@dataclass(slots=True)
class Run:
    """A model that can be run at any sizes, on fake tensors or with values. loss: what is differentiated, in words."""

    subject: Subject
    model: nn.Module
    plan: Plan
    train: str
    mode: FakeTensorMode | None
    loss: str = ""
    optimizer: torch.optim.Optimizer | None = None
    sizes: dict[str, int] = field(default_factory=dict)

    def record(self, sizes: Mapping[str, int] | None = None) -> tuple[RunRecorder, dict[str, int]]:
        """Run once; returns the recording, and the bytes of parameters, gradients, the optimizer's state and inputs."""
        recorder = RunRecorder(self.model, self.subject.live.request.folder)
        args, kwargs = self._make_arguments(sizes)
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
                if not self.train:
                    with torch.no_grad():
                        result = self.model(*args, **kwargs)
                    del result
                else:
                    told["gradients"] = self._train(recorder, args, kwargs)
        return recorder, told

    def _around(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(guard_program(self.subject.live.request.scratch))
        stack.enter_context(outside_modes())
        stack.enter_context(OnCpu())
        if self.mode is not None:
            # The fused layers of transformers have no kernel for fake tensors.
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
            stack.enter_context(self.mode)
        torch.manual_seed(SEED)
        return stack

    def _make_arguments(self, sizes: Mapping[str, int] | None) -> tuple[Any, Any]:
        spec = self.subject.traced.session.inputs
        largest = None if self.mode is None else LARGEST_FILLED
        made = self.subject.example.arguments if sizes is None else inputs_at(spec, sizes, seed=SEED, largest=largest)
        change = partial(_change_tensor, self.mode, _DTYPES.get(self.plan.dtype))
        return call_arguments(self.model, tree_map_only(torch.Tensor, change, dict(made)))

    def _prepare_optimizer(self) -> None:
        """Make the optimizer's state, by a step, so that what is recorded is any step but the first."""
        if not self.train or self.optimizer is not None:
            return
        free = [each for each in self.model.parameters() if each.requires_grad]
        if not free:
            raise AskError(f"{self.subject.traced.name} has no parameter that is trained")
        more = {"foreach": self.plan.gpu} if self.train != "adam8bit" else {}
        self.optimizer = OPTIMIZERS[self.train](free, lr=1e-3, **more)
        for parameter in free:
            parameter.grad = torch.empty_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _list_state(self) -> list[torch.Tensor]:
        return [] if self.optimizer is None else _list_tensors([dict(s) for s in self.optimizer.state.values()])

    def _train(self, recorder: RunRecorder, args: Any, kwargs: Any) -> int:
        assert self.optimizer is not None
        result = self.model(*args, **kwargs)
        loss = self._find_loss(result)
        recorder.phase, recorder.kind = "backward", TEMPORARY
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = recorder.mark([each.grad for each in self.model.parameters()], GRADIENT)
        del result, loss
        recorder.phase = "optimizer"
        self.optimizer.step()
        self.optimizer.zero_grad()
        return gradients

    def _find_loss(self, result: Any) -> torch.Tensor:
        """The model's own loss, else the sum of its results: a criterion outside of the model is not known."""
        own = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
        if isinstance(own, torch.Tensor) and own.requires_grad and own.numel() == 1:
            self.loss = "its own loss"
            return own.reshape(())
        free = [each for each in _list_results(result) if each.requires_grad]
        if not free:
            raise AskError(f"no result of {self.subject.traced.name} depends on a parameter: nothing can be trained")
        self.loss = "the sum of its results"
        return sum((each.sum() for each in free[1:]), free[0].sum())


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


# What the server gets.


def send_run_costs(live: Any, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a `RunCosts` of the model as it is written, without passes; with values only if fake tensors do not do."""
    subject = Subject.of(live, ask.model, real)
    plan = Plan.of(ask.run)
    model = subject.traced.session.model if real is None else real.model
    restore_plain_code(live.request.path, list_namespaces(model))
    mode = FakeTensorMode(allow_non_fake_inputs=True) if real is None else None
    train = find_optimizer(live.request.path) or "adamw" if plan.train == "auto" else plan.train
    try:
        with outside_modes():
            make_fake(model, mode, _DTYPES.get(plan.dtype))
        run = Run(subject, model.train(bool(train)), plan, train, mode)
        told = write_costs(run)
    except AskError:
        raise
    except Exception:
        if real is not None:
            raise
        return answer_on_meta(subject, ask, send)  # its path depends on values, or a kernel knows no fake tensors
    return send({"value": told})


def list_namespaces(model: nn.Module) -> list[dict[str, Any]]:
    """The globals of the forwards of a model's modules, each once."""
    forwards = (getattr(type(module).forward, "__globals__", {}) for module in model.modules())
    return list({id(each): each for each in forwards}.values())


def write_costs(run: Run) -> RunCosts:
    """Record a run, and find the largest sizes that fit."""
    recorder, told = run.record()
    held = recorder.at_peak()
    tables = _Tables()
    calls = [
        [phase, operator, dtype, *tables.place(place), flops, reads, writes, count]
        for (phase, operator, dtype, place, flops, reads, writes), count in recorder.calls.items()
    ]
    sums: dict[tuple[str, _Place], int] = {}
    for each in held:
        sums[each.kind, each.place] = sums.get((each.kind, each.place), 0) + each.bytes
    holders = sorted(sums.items(), key=lambda pair: -pair[1])
    by_kind: dict[str, int] = {}
    for (kind, _), size in holders:
        by_kind[kind] = by_kind.get(kind, 0) + size
    before = sum(h.bytes for h in recorder.held if h.kind in (PARAMETER, BUFFER, INPUT, STATE))
    return {
        "mode": "training" if run.train else "inference",
        "optimizer": run.train,
        "loss": run.loss,
        "measured": "on values" if run.mode is None else "",
        "peak_bytes": max(recorder.live, default=before),
        "parameters_bytes": told["parameters"] + told["buffers"],
        "gradients_bytes": told["gradients"],
        "optimizer_bytes": told["optimizer"],
        "inputs_bytes": told["inputs"],
        "activations_bytes": by_kind.get(ACTIVATION, 0),
        "held": [[kind, *tables.place(place), size] for (kind, place), size in holders[:_HOLDERS]],
        "kinds": by_kind,
        "curve": [[at, recorder.live[at], *tables.place(recorder.places[at])] for at in _sample(recorder.live)],
        "calls": calls,
        "files": list(tables.files),
        "modules": list(tables.modules),
        "fits": find_fits(run) if run.plan.memory else {},
        "sizes": dict(_traced_sizes(run.subject)),
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


def _traced_sizes(subject: Subject) -> Mapping[str, int]:
    probed = subject.traced.probed
    return {} if probed is None else probed.symbols


def find_fits(run: Run) -> dict[str, int]:
    """The largest size of each symbol that fits into memory with the traced sizes of the others, recorded there.

    0: not even one fits.
    """
    sizes = dict(_traced_sizes(run.subject))
    return {name: _find_largest(run, sizes, name) for name in sizes if len(name) == 1} if run.mode is not None else {}


def _find_largest(run: Run, sizes: Mapping[str, int], name: str) -> int:
    """Follow the line through the last two peaks until the sizes at and above the largest were both recorded."""
    known: dict[int, float] = {}

    def peak(size: int) -> float:
        if size not in known:
            try:
                recorder, _ = run.record({**sizes, name: size})
                known[size] = max(recorder.live, default=0)
            except AskError:
                raise
            except Exception:  # noqa: BLE001 - the model takes no such size
                known[size] = math.inf
        return known[size]

    memory, low, high = run.plan.memory, 0, _LARGEST
    size = sizes[name]
    while high - low > 1:
        if peak(size) <= memory:
            low = size
        else:
            high = size
        size = _guess_size(known, memory, low, high)
    return low


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
