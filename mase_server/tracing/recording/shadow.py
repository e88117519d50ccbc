"""Shadow values and the logical device, which let real model code run on meta tensors.

Meta tensors have shapes but no values, and code that reads a value (`.item()`, `if mask.all()`) or its device fails
on them. So every small tensor that does not depend on weights is *also* computed for real, and traced code sees the
device `cpu`.

Values of tensors up to `SHADOW_LIMIT` elements are kept; if the code asks for a larger one, the file is traced once
more with `LARGE_SHADOW_LIMIT`. A value that depends on weights is never known here: `rungs` then runs the model for
real. Many meta kernels are slow Python, and deep models repeat a call a hundred times, so a call whose result depends
only on the types of its arguments is computed once (`Shadows.results`). Views and aliases never are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mase_server.ops.paths import identity
from mase_server.ops.types import Kwargs
from mase_server.tracing.recording.calling import (
    CONSTRUCTORS,
    DEVICE_WORDS,
    FROM_DATA,
    GETTER,
    INITIALISERS,
    LOGICAL_ATTRIBUTES,
    MOVES,
    PRINTS,
    READS,
    SWITCH,
    TAKE_DEVICE_TEXT,
    TELLS,
    UNDEFINED,
    Values,
    autocast_key,
    find_filled,
    find_replaced,
    gives_data,
    is_symbolic,
    is_whole,
    iterate_leaf_tensors,
    make_empty_like,
    map_leaves,
    may_write,
    read_version_counter,
    wrap_with_autocast,
)
from mase_server.tracing.recording.positions import get_first_argument
from mase_server.tracing.recording.rules import BY_TYPE, RULES, make_plain_result
from mase_server.tracing.recording.sizes import TracedInt, is_asserting

# Results of calls that depend only on the types of their arguments: computed once, made anew each time.


@dataclass(frozen=True, slots=True)
class Result:
    """The type of a new tensor that a call returned."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def made(self, device: torch.device) -> torch.Tensor:
        """Another such tensor."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


def call_key(func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
    """A key of everything that determines the type of a call's result; None if there is no such key."""
    try:
        parts = [_key_part(value) for value in args]
        parts += [(name, _key_part(value)) for name, value in kwargs.items()]
        key = (func, torch.is_grad_enabled(), autocast_key(), *parts)
        hash(key)
    except TypeError:
        return None
    return key


def _key_part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise TypeError("only strided tensors are described by their strides")
        return (torch.Tensor, value.shape, value.stride(), value.dtype, value.requires_grad)
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_key_part, value))
    # 1, 1.0 and True are equal, but not the same argument.
    return (int if type(value) is TracedInt else type(value), value)


def is_fresh(out: torch.Tensor, args: Values) -> bool:
    """Is a result a new tensor: no view of an argument, and no part of an autograd graph?"""
    if out.layout is not torch.strided or out.requires_grad or not out.is_meta:
        return False
    if out._base is None:
        return all(tensor is not out for tensor in iterate_leaf_tensors(args))
    storage = out.untyped_storage()._cdata
    return all(tensor.untyped_storage()._cdata != storage for tensor in iterate_leaf_tensors(args))


# Real values of meta tensors, kept by identity.

#: Arguments of these types are the same on every device.
_NUMBERS = frozenset({int, float, bool, type(None), TracedInt})

#: Tensors with more elements keep no real value; code that needs one is traced again with the larger limit.
SHADOW_LIMIT = 1 << 14
LARGE_SHADOW_LIMIT = 1 << 20
#: The same for an order of things, by which loaders shuffle their data.
ORDER_LIMIT = 1 << 22
#: Parameters of a model above which it is neither made nor run with values.
MOST_PARAMETERS = 400_000_000


class Shadows:
    """Real values of meta (or fake) tensors, kept by identity.

    Every tensor that was ever given a value stays alive, so that ids are unique.

    builds: constructors of modules run with real tensors, up to `MOST_PARAMETERS` elements.
    """

    def __init__(self, limit: int = SHADOW_LIMIT, *, builds: bool = False) -> None:
        self.limit = limit
        self.builds = builds
        #: Did a constructor ask for the value of a weight?
        self.lacked = False
        #: Elements that constructors made.
        self.built = 0
        #: Results of calls that depend only on the types of their arguments: meta kernels are slow.
        self.results: dict[Any, Result] = {}
        #: The work done so far, in torch calls. Searches are limited by it and not by time, so that the load of a
        #: machine changes no result.
        self.steps = 0
        self._real: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._later: dict[int, tuple[torch.Tensor, Callable[[], torch.Tensor]]] = {}
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tainted: set[int] = set()
        self._undo: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self._watched = 0, frozenset[int]()

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The real value of `tensor`, None if it is unknown."""
        entry = self._real.get(identity(tensor))
        if entry is None:
            if identity(tensor) not in self._later:
                return None
            make = self._later.pop(identity(tensor))[1]
            entry = self._real[identity(tensor)] = tensor, make()
        real = entry[1]
        if self._tainted:
            with torch._C.DisableTorchFunction():
                if real.untyped_storage()._cdata in self._tainted:
                    return None
        return real

    def knows(self, tensor: torch.Tensor) -> bool:
        """Is the value of `tensor` known? It is not made for that."""
        key = identity(tensor)
        return key in self._later or (key in self._real and self.get(tensor) is not None)

    def put_later(self, tensor: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """`make` returns the value of `tensor`, once somebody asks for it; gives `tensor` back."""
        self._later[identity(tensor)] = tensor, make
        return tensor

    def put(self, tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Remember `real` as the value of `tensor`, if it is small; gives `tensor` back."""
        if _count_stored_elements(real) <= self.limit:
            self._real[identity(tensor)] = (tensor, real)
        return tensor

    def twin(self, real: torch.Tensor, *, known: bool = True) -> torch.Tensor:
        """The meta tensor for `real`: always the same one for the same tensor."""
        entry = self._twins.get(identity(real))
        if entry is not None:
            return entry[1]
        meta = make_empty_like(real, "meta")
        self._twins[identity(real)] = (real, meta)
        if known:
            self._real[identity(meta)] = (meta, real)
        return meta

    def part_from_twin(self, real: torch.Tensor) -> None:
        """`real` gets other data, maybe of another shape."""
        self._twins.pop(identity(real), None)

    def taint(self, tensor: torch.Tensor) -> None:
        """An unknown value was written into `tensor`: it, its views and its bases are unknown from now on."""
        real = self.get(tensor)
        if real is not None:
            with torch._C.DisableTorchFunction():
                self._tainted.add(real.untyped_storage()._cdata)

    def written(self, real: torch.Tensor) -> None:
        """`real` is about to be changed in place: keep a copy while a `rewind` watches."""
        if self._undo is not None:
            self._undo.append((real, real.clone()))

    def watch(self) -> None:
        """From now on, remember overwritten values."""
        self._undo = []
        self._watched = len(self._real), frozenset(self._tainted)

    def rewind(self) -> None:
        """Restore every value that was overwritten since `watch`, and all knowledge from then."""
        undo, self._undo = self._undo or [], None
        for real, before in reversed(undo):
            if real.shape == before.shape:
                with torch.no_grad():
                    real.copy_(before)
        count, tainted = self._watched
        if new := self._tainted - tainted:
            with torch._C.DisableTorchFunction():
                known = (real for _, real in islice(self._real.values(), count))
                self._tainted -= new & {real.untyped_storage()._cdata for real in known}


def _count_stored_elements(real: torch.Tensor) -> int:
    """Elements that a value takes in memory; one that repeats a few (`mask.expand(...)`) takes only those."""
    count = real.numel()
    if count > LARGE_SHADOW_LIMIT or real.layout is not torch.strided:
        return count
    with torch._C.DisableTorchFunction():
        return min(count, real.untyped_storage().nbytes() // max(1, real.element_size()))


__all__ = ["LARGE_SHADOW_LIMIT", "MOST_PARAMETERS", "SHADOW_LIMIT", "MetaMode", "Shadows", "ValueDependentError"]


class ValueDependentError(RuntimeError):
    """Code needs the value of a tensor that depends on weights or is too big to be kept."""


def asking_module() -> str:
    """The name of the module whose code makes the current torch call; "" if unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("mase_server.", "torch.overrides")):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def is_in_constructor() -> bool:
    """Is the current torch call made while a module is made?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(get_first_argument(frame), torch.nn.Module):
            return True
        frame = frame.f_back
    return False


class _WithoutGradients:
    """The replacement for `torch.inference_mode` during a trace.

    Its values are the same, but a real inference tensor may not be written to outside of the mode, counts no
    versions, and is recorded neither as an alias nor as written in place.
    """

    def __init__(self, mode: bool = True) -> None:
        self._mode, self._before = mode, True

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch.set_grad_enabled(not self._mode)

    def __exit__(self, *raised: object) -> None:
        torch.set_grad_enabled(self._before)


class MetaMode(TorchFunctionMode):
    """While active, tensors are made and computed on meta, with real values beside them where `Shadows` can keep them.

    Real tensors that meet it (the weights of a caller's model, tensors made by numpy) stand for themselves; they are
    replaced by their meta twins inside each call, so nothing real is computed with weights.
    """

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self.shadows = shadows
        self.mutated = False
        self._inference: list[Any] = []

    def __enter__(self) -> MetaMode:
        self._inference.append(torch._C._InferenceMode)
        torch._C._InferenceMode = _WithoutGradients  # type: ignore[misc, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        torch._C._InferenceMode = self._inference.pop()  # type: ignore[misc]
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Values = (), kwargs: Kwargs | None = None
    ) -> Any:
        return self.run(find_replaced(func), args, kwargs or {})

    def run(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        """Compute one torch call; afterwards `mutated` says whether it changed its first argument in place."""
        self.mutated = False
        self.shadows.steps += 1
        if self.shadows.builds and self.shadows.built < MOST_PARAMETERS and is_in_constructor():
            return self._run_really(func, args, kwargs)
        if type(func) is GETTER:
            return self._get_attribute(func, args, kwargs)
        if func is SWITCH or func in TELLS:
            return func(*args, **kwargs)
        if func in READS:
            return self._read_values(func, args, kwargs)
        if func in MOVES:
            func, args, kwargs = torch.Tensor.to, (args[0], torch.device("cpu")), {}
        if kwargs.get("out") is not None:
            return self._run_into(func, args, kwargs)
        meta_args, meta_kwargs, known = self._to_meta(func, args, kwargs)
        if func in CONSTRUCTORS or func in FROM_DATA:
            return self._construct_tensor(func, args, kwargs, meta_args, meta_kwargs, known)
        if func is torch.Tensor.__deepcopy__:
            return self._copy_tensor(meta_args[0], args[1])
        if known and (func not in UNDEFINED or is_whole(meta_args[0], meta_kwargs)):
            try:
                return self._run_known(func, meta_args, meta_kwargs)
            except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
                pass  # the same call on meta raises the same error, or the real kernel is stricter
        return self._run_meta(func, meta_args, meta_kwargs)

    def _run_really(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        """Compute a call of a constructor with values."""
        if func in MOVES:
            func, args, kwargs = torch.Tensor.cpu, args[:1], {}
        named = {name: "cpu" if name == "device" else value for name, value in kwargs.items()}
        out = func(*self._to_real(args), **self._to_real(named))
        if func in CONSTRUCTORS and isinstance(out, torch.Tensor):
            self.shadows.built += out.numel()
        return out

    def _run_into(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        """Compute a call with `out=`, whose tensors take the sizes and the values of the results."""
        made = self.run(func, args, {name: value for name, value in kwargs.items() if name != "out"})
        meta_args, meta_kwargs, _ = self._to_meta(func, args, kwargs)
        func(*meta_args, **meta_kwargs)
        for target, value in zip(iterate_leaf_tensors(meta_kwargs["out"]), iterate_leaf_tensors(made), strict=True):
            real = self.shadows.get(value)
            self._replace_value(target, None if real is None else real.to(target.dtype))
        self.mutated = True
        return kwargs["out"]

    def _replace_value(self, tensor: torch.Tensor, real: torch.Tensor | None) -> None:
        """Forget the value of a tensor that has another one now: `real`, or None if that is unknown."""
        self.shadows.taint(tensor)
        if real is not None:
            self.shadows.put(tensor, real)

    def _copy_tensor(self, tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        out: torch.Tensor = torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]
        real = self.shadows.get(tensor)
        return out if real is None else self.shadows.put(out, real.clone())

    def _get_attribute(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        name = func.__self__.__name__  # type: ignore[attr-defined]
        if name in LOGICAL_ATTRIBUTES:
            if name == "is_meta" and asking_module() == INITIALISERS:
                self.shadows.taint(args[0])
                return True
            return LOGICAL_ATTRIBUTES[name]
        if func.__name__ == "__set__" and isinstance(args[1], torch.Tensor) and args[1].is_meta and not args[0].is_meta:
            # `weight.data *= 0` on a weight that `torch.Tensor(64)` made: a weight keeps no value in any case.
            self.shadows.part_from_twin(args[0])
            args = (args[0], make_empty_like(args[1], args[0].device.type))
        if gives_data(func):
            real = self.shadows.get(args[1])
            func(*args, **kwargs)
            self._replace_value(args[0], real)
            return None
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and out is not args[0]:
            real = self.shadows.get(args[0])
            if real is not None and self.shadows.get(out) is None:
                self.shadows.put(out, func(real))
        return out

    def _read_values(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        def real(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not is_symbolic(value):
                return value
            found = self.shadows.get(value)
            if found is None and func is torch.Tensor.__bool__ and value.numel() == 1 and is_asserting():
                # Code that asserts something expects it of its data; the graph notes that this was taken as true.
                found = torch.ones(value.shape, dtype=value.dtype, device="cpu")
                self.shadows.put(value, found)
            if found is None and func not in PRINTS:
                self.shadows.lacked |= is_in_constructor()
                text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
                raise ValueDependentError(
                    f"{func.__name__}() needs the value of a tensor {text} that depends on weights"
                )
            return value if found is None else found

        return func(*map_leaves(args, real), **map_leaves(kwargs, real))

    def _to_meta(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> tuple[Values, Kwargs, bool]:
        """Arguments with every tensor symbolic and every device meta; and whether all values are known."""
        known, knows = True, self.shadows.knows
        texts = func in TAKE_DEVICE_TEXT

        def change(value: Any) -> Any:
            nonlocal known
            if isinstance(value, torch.Tensor):
                if not is_symbolic(value):
                    value = self._stand_in(value)
                if known and not knows(value):
                    known = False
                return value
            if isinstance(value, torch.device):
                return self.device
            if texts and isinstance(value, str) and value.partition(":")[0] in DEVICE_WORDS:
                return self.device
            return value

        if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], self.device, *args[2:])  # the number of a GPU
        meta_args = tuple(value if type(value) in _NUMBERS else map_leaves(value, change) for value in args)
        meta_kwargs = {name: map_leaves(value, change) for name, value in kwargs.items()} if kwargs else {}
        if meta_kwargs.get("device") is not None:
            meta_kwargs["device"] = self.device
        return meta_args, meta_kwargs, known

    #: The device on which values really are.
    device = torch.device("meta")

    def _stand_in(self, real: torch.Tensor) -> torch.Tensor:
        if real.layout is not torch.strided or type(real) not in (torch.Tensor, torch.nn.Parameter):
            return real
        return self.shadows.twin(real, known=not isinstance(real, torch.nn.Parameter))

    def _construct_tensor(
        self,
        func: Callable[..., Any],
        args: Values,
        kwargs: Kwargs,
        meta_args: Values,
        meta_kwargs: Kwargs,
        known: bool,
    ) -> Any:
        if func in FROM_DATA:
            out = self._from_data(func, args, kwargs)
            if out is not None:
                return out
        if func is not torch.from_numpy:
            meta_kwargs["device"] = self.device
        out = self._run_meta(func, meta_args, meta_kwargs)
        # Integers are no weights: loaders draw their seeds with `torch.empty((), dtype=torch.int64).random_()`.
        defined = func not in UNDEFINED or not out.dtype.is_floating_point
        if known and func is torch.randperm and self.shadows.limit < out.numel() <= ORDER_LIMIT:
            real_args, real_kwargs = self._to_real(meta_args), self._to_real(meta_kwargs)
            return self.shadows.put_later(out, lambda: func(*real_args, **real_kwargs))
        if known and defined and isinstance(out, torch.Tensor) and out.numel() <= self.shadows.limit:
            self.shadows.put(out, func(*self._to_real(meta_args), **self._to_real(meta_kwargs)))
        return out

    def _from_data(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> torch.Tensor | None:
        """A tensor from Python or numpy data: the value comes first, the meta tensor stands for it."""
        if any(
            self.shadows.get(tensor) is None for tensor in iterate_leaf_tensors((args, kwargs)) if is_symbolic(tensor)
        ):
            return None
        source = args[0] if args else kwargs.get("data")
        if isinstance(source, torch.Tensor) and func is not torch.tensor:
            return None
        real = func(*self._to_real(args), **self._to_real(kwargs))
        return self.shadows.put(self._make_meta_like(real), real)

    def _make_meta_like(self, real: torch.Tensor) -> torch.Tensor:
        return make_empty_like(real, "meta")

    def _to_real(self, value: Any) -> Any:
        def change(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                real = self.shadows.get(item)
                return item if real is None else real
            return torch.device("cpu") if isinstance(item, torch.device) else item

        return map_leaves(value, change)

    def _run_known(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        real_args, real_kwargs = self._to_real(args), self._to_real(kwargs)
        target = real_args[0] if real_args and isinstance(real_args[0], torch.Tensor) else None
        before = read_version_counter(target)
        if target is not None and may_write(func, args, kwargs):
            self.shadows.written(target)
        out = func(*real_args, **real_kwargs)
        if target is not None and read_version_counter(target) != before:
            self.mutated = True
            return None if out is None else func(*args, **kwargs)
        pairs = list(
            zip(iterate_leaf_tensors((real_args, real_kwargs)), iterate_leaf_tensors((args, kwargs)), strict=True)
        )

        def back(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            for real, symbolic in pairs:
                if real is item:
                    return symbolic
            if item.layout is not torch.strided:
                return item
            return self.shadows.put(self._make_meta_like(item), item)

        return map_leaves(out, back)

    def _run_meta(self, func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
        filled = find_filled(func, args, kwargs)
        if filled is not None and self.shadows.get(filled) is None:
            self.mutated = True
            return filled
        target = args[0] if args and isinstance(args[0], torch.Tensor) else None
        before = read_version_counter(target)
        if autocast_key() is None and (plain := make_plain_result(func, args, kwargs)) is not None:
            return plain
        rule = RULES.get(func)
        key = call_key(func, args, kwargs) if rule is None or func in BY_TYPE else None
        if key is not None and (known := self.shadows.results.get(key)) is not None:
            return known.made(self.device)
        try:
            call = func if autocast_key() is None else wrap_with_autocast(func)
            out = call(*args, **kwargs) if rule is None else rule(self.shadows, call, args, kwargs)
        except RuntimeError as error:
            if "item()" not in str(error):
                raise
            out, key = func(*self._scalars_to_numbers(args), **self._scalars_to_numbers(kwargs)), None
        if target is not None and read_version_counter(target) != before:
            self.mutated = True
            self.shadows.taint(target)
        elif key is not None and type(out) is torch.Tensor and is_fresh(out, args):
            self.shadows.results[key] = Result(tuple(out.shape), out.stride(), out.dtype)
        return out

    def _scalars_to_numbers(self, value: Any) -> Any:
        """Single elements of known value as numbers: `view(B, torch.div(n, 2))`, `x[i:t]`, `F.pad(x, [n // 2, n])`."""

        def change(item: Any) -> Any:
            if isinstance(item, torch.Tensor) and item.numel() == 1 and item is not subject:
                real = self.shadows.get(item)
                return item if real is None else real.item()
            return item

        first = value[0] if isinstance(value, tuple) and value else None
        # The tensor that the call works on stays a tensor.
        subject = first if isinstance(first, torch.Tensor) and first.dim() else None
        return map_leaves(value, change)
