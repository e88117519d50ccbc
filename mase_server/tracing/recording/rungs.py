"""The rung below meta: a real run on the CPU, for code whose path depends on values computed from weights.

The real run also checks the errors of small models, so that no error is reported that eager PyTorch does not have. It
recovers from none.
"""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from mase_server.ops.paths import named_modules
from mase_server.ops.types import Kwargs
from mase_server.system import small_memory
from mase_server.tracing.recording.calling import (
    DEVICE_WORDS,
    MOVES,
    TAKE_DEVICE_TEXT,
    Values,
    iterate_leaf_tensors,
    map_leaves,
    may_write,
    read_version_counter,
)
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.recorder import Recorder
from mase_server.tracing.recording.shadow import MOST_PARAMETERS, Shadows, ValueDependentError
from mase_server.tracing.recording.state import SEED, drawing_from, put_in_mode

#: Models with more parameters run for real only if nothing else can work.
CHEAP_PARAMETERS = 20_000_000
#: Estimated seconds of work after which a real run is aborted: few parameters may still mean much work, as in three
#: dimensions, and a search and the recording after it make one each.
MOST_REAL_SECONDS = 5.0
#: The estimate is far off where a run takes so many times as long: then the clock ends it.
_PATIENCE = 4
#: What one core does in a second, roughly, and the seconds that a call takes besides.
_MULTIPLICATIONS, _ELEMENTS, _CALL_SECONDS = 1e10, 5e8, 5e-6
#: Names of the calls that multiply each element of one tensor with many of another.
_PRODUCTS = re.compile(r"linear|conv|matmul|mm$|bmm|einsum|attention|bilinear|lstm|gru|rnn")

_GIVEN_UP = "a run with real values on the CPU had not ended after {:.0f} s"
_TOO_LARGE = "a run with real values on the CPU takes more than {:g} GiB of memory"
_META_ONLY = (
    "meta tensor",
    "Meta tensor",
    "'Meta'",
    "meta kernel",
    "Meta kernel",
    "data-dependent",
    "FakeTensor",
    "it's on meta",
    "but got meta",
    "expected TensorOptions(",
)


class TooSlowError(ValueDependentError):
    """A real run was aborted."""


class Work:
    """The estimated seconds of real torch calls.

    They are counted from the sizes of tensors and not measured, so that the load of a machine decides nothing.
    """

    def __init__(self) -> None:
        self.seconds, self._began = 0.0, time.thread_time()

    def require_time(self) -> None:
        """TooSlowError once the work has reached `MOST_REAL_SECONDS`."""
        measured = time.thread_time() - self._began
        if self.seconds > MOST_REAL_SECONDS or measured > _PATIENCE * max(MOST_REAL_SECONDS, 0.0):
            raise TooSlowError(_GIVEN_UP.format(MOST_REAL_SECONDS))

    def add_call(self, func: Callable[..., Any], args: Values, out: Any) -> None:
        """Count one call that was made."""
        given = list(iterate_leaf_tensors(args))
        made = list(iterate_leaf_tensors((out,)))
        with torch._C.DisableTorchFunction():
            elements = sum(tensor.numel() for tensor in (*given, *made))
            self.seconds += _CALL_SECONDS + elements / _ELEMENTS
            if len(given) > 1 and made and _PRODUCTS.search(getattr(func, "__name__", "")):
                self.seconds += _count_multiplications(given[0], given[1], made[0]) / _MULTIPLICATIONS


def _count_multiplications(one: torch.Tensor, other: torch.Tensor, made: torch.Tensor) -> float:
    """About m * k * n for a product of [m, k] and [k, n], and the same for batches of them and for convolutions."""
    count = math.sqrt(one.numel() * other.numel() * made.numel())
    if one.dim() > 2 and one.shape[:-2] == other.shape[:-2]:  # a batch of products
        return count / math.sqrt(max(1, math.prod(one.shape[:-2])))
    return count * math.sqrt(math.prod(other.shape[2:])) if other.dim() > 2 else count


# Limiting the memory of a guess, and of a real run: one that asks for more fails, and the next way is tried.

#: Bytes that a guess or a real run may add to its process.
ROOM = 2 << 30


@contextmanager
def limit_memory(room: int = ROOM) -> Iterator[None]:
    """Raise MemoryError for more than `room` further bytes, if the system can limit it (Linux)."""
    try:
        with small_memory(room):
            yield
    except MemoryError as error:
        if error.args:
            raise
        raise MemoryError(f"it takes more than {room / (1 << 30):g} GiB of memory") from error


class Bounded(TorchFunctionMode):
    """Inside, real code is aborted with TooSlowError after `MOST_REAL_SECONDS` of estimated work."""

    def __init__(self) -> None:
        super().__init__()
        self._work = Work()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> Any:
        """Make the call itself, while there is time."""
        self._work.require_time()
        func, args, kwargs = on_cpu(func, args, kwargs or {})
        out = _compute(func, args, kwargs)
        self._work.add_call(func, args, out)
        return out


def _compute(func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
    """Make a real torch call; TooSlowError if it asks for more memory than a real run may take."""
    with _telling_room():
        return func(*args, **kwargs)


@contextmanager
def _telling_room() -> Iterator[None]:
    """TooSlowError for what asks for more memory than a real run may take: the limit is ours, not the code's error."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        raise TooSlowError(_TOO_LARGE.format(ROOM / (1 << 30))) from error


class RealRecorder(Recorder):
    """Records a forward that runs on real values, for `MOST_REAL_SECONDS` of estimated work at most."""

    work: Work

    def record(self, args: tuple[Any, ...], kwargs: Kwargs) -> Run:
        """Record as `Recorder.record`; the caller restores the state that the forward writes."""
        for buffer in self.root.buffers():
            self.shadows.written(buffer)
        self.work = Work()
        try:
            with limit_memory(), _telling_room():  # the recorder's own copies take memory too
                return super().record(args, kwargs)
        except TooSlowError:
            self._keep.clear()  # the error holds this recorder
            self._by_memory.clear()
            raise

    def run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Compute one torch call as it is."""
        self.work.require_time()
        func, args, kwargs = on_cpu(func, args, kwargs)
        target = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if target is not None and may_write(func, args, kwargs):
            self.shadows.written(target)
        before = read_version_counter(target)
        out = _compute(func, args, kwargs)
        self.work.add_call(func, args, out)
        written = target is not None and read_version_counter(target) != before
        self.mutated = written or kwargs.get("out") is not None
        return out

    def _symbolic_inputs(self, value: Any) -> Any:
        return value


def needs_values(error: BaseException) -> bool:
    """Is this an error that only meta tensors meet?"""
    if isinstance(error, (ValueDependentError, NotImplementedError)):
        return True
    return isinstance(error, (RuntimeError, ValueError, TypeError)) and any(words in str(error) for words in _META_ONLY)


def worth_a_real_run(model: nn.Module, error: BaseException) -> bool:
    """Should a real run check this error? Always if that is cheap, so that no error is reported that eager does not
    have."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return count <= (MOST_PARAMETERS if needs_values(error) else CHEAP_PARAMETERS)


@drawing_from(SEED)
def real_copy(model: nn.Module, shadows: Shadows, construct: Callable[[], nn.Module] | None) -> nn.Module:
    """The same model with values: real ones where it is real, random ones where it is on meta, the same at any time.

    construct: makes it again; without it, values are filled in, buffers from their known values.
    """
    if not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        return model
    if construct is not None:
        try:
            with OnCpu():
                made = construct()
        except Exception:  # noqa: BLE001 - the person's constructor, outside of its program
            made = None
        if made is not None and not any(parameter.is_meta for parameter in made.parameters()):
            put_in_mode(made, model.training)
            return made
    return _copy_with_real_values(model, shadows)


def empty_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU with uninitialised values and the same sharing as in the model."""
    # Weights that a hook computes anew before each forward, as weight norm does, are results, which torch never copies.
    computed = (value for _, module in named_modules(model) for value in vars(module).values())
    results = (value for value in computed if isinstance(value, torch.Tensor) and not value.is_leaf)
    made = copy.deepcopy(model, {id(value): value.detach() for value in results}).to_empty(device="cpu")
    first: dict[int, nn.Parameter | None] = {}
    for (_, module), (_, copied) in zip(named_modules(model), named_modules(made), strict=True):
        for key, parameter in module._parameters.items():
            if parameter is not None:
                copied._parameters[key] = first.setdefault(id(parameter), copied._parameters[key])
    return made


def _copy_with_real_values(model: nn.Module, shadows: Shadows) -> nn.Module:
    values = {name: shadows.get(buffer) for name, buffer in model.named_buffers()}
    made = empty_copy(model)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.is_floating_point():
                parameter.normal_(0.0, 0.02)
            else:
                parameter.zero_()
        for name, buffer in made.named_buffers():
            value = values.get(name)
            buffer.copy_(value) if value is not None else buffer.zero_()
    return made


# Real runs on the CPU of code for other devices, which this machine may lack.

_CPU = torch.device("cpu")
#: Devices that every machine has.
_KEPT = frozenset({"cpu", "meta"})


class OnCpu(TorchFunctionMode):
    """While active, tensors made on or moved to a GPU, or another device, are on the CPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Kwargs | None = None,
    ) -> Any:
        func, args, kwargs = on_cpu(func, args, kwargs or {})
        return func(*args, **kwargs)


def on_cpu(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs
) -> tuple[Callable[..., Any], tuple[Any, ...], Kwargs]:
    """A torch call with the CPU for every device that some machines lack: the callable, and its arguments."""
    if func in MOVES:
        return torch.Tensor.cpu, args[:1], {}
    texts = func in TAKE_DEVICE_TEXT

    def change(value: Any) -> Any:
        if isinstance(value, torch.device):
            return value if value.type in _KEPT else _CPU
        if texts and isinstance(value, str) and value.partition(":")[0] in DEVICE_WORDS - _KEPT:
            return _CPU
        return value

    if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
        args = (args[0], _CPU, *args[2:])  # the number of a GPU
    named = {name: map_leaves(value, change) for name, value in kwargs.items()}
    device = named.get("device")
    if isinstance(device, int) or (isinstance(device, str) and device.partition(":")[0] not in _KEPT):
        named["device"] = _CPU
    return func, tuple(map_leaves(value, change) for value in args), named
