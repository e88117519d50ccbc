"""Shadow values and the logical device: what makes real model code run on meta tensors.

Meta tensors have shapes but no values, and code that asks for a value (`.item()`, `if mask.all()`) or for its device
stops on them. So every small tensor that does not depend on weights is *also* computed for real, and traced code sees
the device `cpu`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from mase_server.tracing.rules import RULES

#: Tensors with more elements keep no real value; code that needs one is traced again with the larger limit.
SHADOW_LIMIT = 1 << 14
LARGE_SHADOW_LIMIT = 1 << 20

Values = tuple[Any, ...]


class ValueDependentError(RuntimeError):
    """Code needs the value of a tensor that depends on weights or is too big to be kept."""


@dataclass(frozen=True, slots=True)
class Result:
    """The type of a new tensor that a call gave."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def made(self, device: torch.device) -> torch.Tensor:
        """Another such tensor."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


class Shadows:
    """Real values of meta (or fake) tensors, kept by identity.

    Every tensor that was ever given a value stays alive, so that ids are unique.
    """

    def __init__(self, limit: int = SHADOW_LIMIT) -> None:
        self.limit = limit
        #: What calls gave that depend on nothing but the types of their arguments: meta kernels are slow.
        self.results: dict[Any, Result] = {}
        self._real: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tainted: set[int] = set()
        self._undo: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self._watched = 0, frozenset[int]()

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The real value of `tensor`, None where it is not known."""
        entry = self._real.get(id(tensor))
        if entry is None:
            return None
        real = entry[1]
        if self._tainted:
            with torch._C.DisableTorchFunction():
                if real.untyped_storage()._cdata in self._tainted:
                    return None
        return real

    def put(self, tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Remember `real` as the value of `tensor`, if it is small; gives `tensor` back."""
        if real.numel() <= self.limit:
            self._real[id(tensor)] = (tensor, real)
        return tensor

    def twin(self, real: torch.Tensor, *, known: bool = True) -> torch.Tensor:
        """The meta tensor that stands for `real`: always the same one for the same tensor."""
        entry = self._twins.get(id(real))
        if entry is not None:
            return entry[1]
        meta = like(real, "meta")
        self._twins[id(real)] = (real, meta)
        if known:
            self._real[id(meta)] = (meta, real)
        return meta

    def taint(self, tensor: torch.Tensor) -> None:
        """An unknown value was written into `tensor`: neither it nor its views and bases are known any more."""
        real = self.get(tensor)
        if real is not None:
            with torch._C.DisableTorchFunction():
                self._tainted.add(real.untyped_storage()._cdata)

    def written(self, real: torch.Tensor) -> None:
        """`real` is about to be changed in place: keep a copy while a `rewind` watches."""
        if self._undo is not None:
            self._undo.append((real, real.clone()))

    def watch(self) -> None:
        """From now on, remember what is overwritten."""
        self._undo = []
        self._watched = len(self._real), frozenset(self._tainted)

    def rewind(self) -> None:
        """Put back every value that was overwritten since `watch`; what was known then is known again."""
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


def like(real: torch.Tensor, device: str) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype on `device`; its values are not set."""
    return torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=device)


def _asked_by(module: str) -> bool:
    """Does the innermost code outside of this package belong to `module`?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("mase_server."):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == module


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Has this tensor no values of its own?"""
    return tensor.is_meta or hasattr(tensor, "fake_mode")


def leaves(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples, dicts and slices of arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments with `change` applied to everything that is not a container; containers keep their types."""
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, list | tuple):
        items = [map_leaves(item, change) for item in value]
        if isinstance(value, tuple) and type(value) is not tuple:
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return type(value)(items)
    if isinstance(value, dict) and type(value) is dict:
        return {key: map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(change(value.start), change(value.stop), change(value.step))
    return change(value)


CONSTRUCTORS: frozenset[Callable[..., Any]] = frozenset(_device_constructors())
#: Constructors whose argument is the data: their value is made first, then the meta tensor.
FROM_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.from_numpy})
#: Results without values worth keeping.
UNDEFINED = frozenset(
    {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.empty_permuted}
)

#: Fill a tensor with new values: nothing to do where there are none.
FILLING = frozenset(
    getattr(torch.Tensor, f"{name}_")
    for name in ("normal", "uniform", "zero", "fill", "exponential", "log_normal", "cauchy", "bernoulli", "random")
)

#: Callables that read values.
READS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__",
        "__contains__", "__repr__", "__format__", "equal", "allclose", "is_nonzero", "__reversed__",
    )
) | {torch.equal, torch.allclose, torch.is_nonzero}  # fmt: skip
PRINTS = frozenset({torch.Tensor.__repr__, torch.Tensor.__format__})

#: What traced code sees in place of a meta tensor's own answer.
LOGICAL_ATTRIBUTES: dict[str, Any] = {
    "device": torch.device("cpu"), "is_meta": False, "is_cpu": True, "is_cuda": False, "is_mps": False, "is_xpu": False,
}  # fmt: skip
#: The module that asks `is_meta` to leave out drawing weights, some of which it draws until their values please it.
INITIALISERS = "torch.nn.init"
MOVES = frozenset({torch.Tensor.cpu, torch.Tensor.cuda})
#: Callables that take a device as a plain string among their arguments.
TAKE_DEVICE_TEXT = frozenset({torch.Tensor.to, torch.Tensor.type})
DEVICE_WORDS = frozenset({"cpu", "cuda", "mps", "xpu", "hpu", "npu", "meta"})
_GETTER = type(vars(torch._C.TensorBase)["T"].__get__)


class MetaMode(TorchFunctionMode):
    """While active, tensors are made and computed on meta, with real values beside them where `Shadows` can keep them.

    Real tensors that meet it (the weights of a caller's model, tensors made by numpy) stand for themselves; they are
    replaced by their meta twins inside each call, so nothing real is computed with weights.
    """

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self.shadows = shadows
        self.mutated = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Values = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
        """Compute one torch call; `mutated` says afterwards whether it changed its first argument in place."""
        self.mutated = False
        if type(func) is _GETTER:
            return self._get(func, args, kwargs)
        if func in READS:
            return self._read(func, args, kwargs)
        if func in MOVES:
            func, args, kwargs = torch.Tensor.to, (args[0], torch.device("cpu")), {}
        meta_args, meta_kwargs, known = self._to_meta(func, args, kwargs)
        if func in CONSTRUCTORS or func in FROM_DATA:
            return self._construct(func, args, kwargs, meta_args, meta_kwargs, known)
        if func is torch.Tensor.__deepcopy__:
            return self._deepcopy(meta_args[0], args[1])
        if known and (func not in UNDEFINED or is_whole(meta_args[0], meta_kwargs)):
            try:
                return self._run_known(func, meta_args, meta_kwargs)
            except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
                pass  # the same call on meta raises the same error, or the real kernel is stricter
        return self._run_meta(func, meta_args, meta_kwargs)

    def _deepcopy(self, tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        out: torch.Tensor = torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]
        real = self.shadows.get(tensor)
        return out if real is None else self.shadows.put(out, real.clone())

    def _get(self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
        name = func.__self__.__name__  # type: ignore[attr-defined]
        if name in LOGICAL_ATTRIBUTES:
            if name == "is_meta" and _asked_by(INITIALISERS):
                self.shadows.taint(args[0])
                return True
            return LOGICAL_ATTRIBUTES[name]
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and out is not args[0]:
            real = self.shadows.get(args[0])
            if real is not None and self.shadows.get(out) is None:
                self.shadows.put(out, func(real))
        return out

    def _read(self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
        def real(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not is_symbolic(value):
                return value
            found = self.shadows.get(value)
            if found is None and func not in PRINTS:
                text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
                raise ValueDependentError(
                    f"{func.__name__}() needs the value of a tensor {text} that depends on weights"
                )
            return value if found is None else found

        return func(*map_leaves(args, real), **map_leaves(kwargs, real))

    def _to_meta(
        self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]
    ) -> tuple[Values, dict[str, Any], bool]:
        """Arguments with every tensor symbolic and every device meta; and whether all values are known."""
        known, get = True, self.shadows.get
        texts = func in TAKE_DEVICE_TEXT

        def change(value: Any) -> Any:
            nonlocal known
            if isinstance(value, torch.Tensor):
                if not is_symbolic(value):
                    value = self._stand_in(value)
                if get(value) is None:
                    known = False
                return value
            if isinstance(value, torch.device):
                return self.device
            if texts and isinstance(value, str) and value.partition(":")[0] in DEVICE_WORDS:
                return self.device
            return value

        meta_args = tuple(map_leaves(value, change) for value in args)
        meta_kwargs = {name: map_leaves(value, change) for name, value in kwargs.items()}
        if meta_kwargs.get("device") is not None:
            meta_kwargs["device"] = self.device
        return meta_args, meta_kwargs, known

    #: The device that values really live on.
    device = torch.device("meta")

    def _stand_in(self, real: torch.Tensor) -> torch.Tensor:
        if real.layout is not torch.strided or type(real) not in (torch.Tensor, torch.nn.Parameter):
            return real
        return self.shadows.twin(real, known=not isinstance(real, torch.nn.Parameter))

    def _construct(
        self,
        func: Callable[..., Any],
        args: Values,
        kwargs: dict[str, Any],
        meta_args: Values,
        meta_kwargs: dict[str, Any],
        known: bool,
    ) -> Any:
        if func in FROM_DATA:
            out = self._from_data(func, args, kwargs)
            if out is not None:
                return out
        if func is not torch.from_numpy:
            meta_kwargs["device"] = self.device
        out = self._run_meta(func, meta_args, meta_kwargs)
        # Whole numbers are no weights: `torch.empty((), dtype=torch.int64).random_()` is how loaders draw their seeds.
        defined = func not in UNDEFINED or not out.dtype.is_floating_point
        if known and defined and isinstance(out, torch.Tensor) and out.numel() <= self.shadows.limit:
            self.shadows.put(out, func(*self._to_real(meta_args), **self._to_real(meta_kwargs)))
        return out

    def _from_data(self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> torch.Tensor | None:
        """A tensor from Python or numpy data: the value comes first, the meta tensor stands for it."""
        if any(self.shadows.get(tensor) is None for tensor in leaves((args, kwargs)) if is_symbolic(tensor)):
            return None
        source = args[0] if args else kwargs.get("data")
        if isinstance(source, torch.Tensor) and func is not torch.tensor:
            return None
        real = func(*self._to_real(args), **self._to_real(kwargs))
        return self.shadows.put(self._like(real), real)

    def _like(self, real: torch.Tensor) -> torch.Tensor:
        return like(real, "meta")

    def _to_real(self, value: Any) -> Any:
        def change(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                real = self.shadows.get(item)
                return item if real is None else real
            return torch.device("cpu") if isinstance(item, torch.device) else item

        return map_leaves(value, change)

    def _run_known(self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
        real_args, real_kwargs = self._to_real(args), self._to_real(kwargs)
        target = real_args[0] if real_args and isinstance(real_args[0], torch.Tensor) else None
        before = version(target)
        if target is not None and may_write(func, args, kwargs):
            self.shadows.written(target)
        out = func(*real_args, **real_kwargs)
        if target is not None and version(target) != before:
            self.mutated = True
            return None if out is None else func(*args, **kwargs)
        pairs = list(zip(leaves((real_args, real_kwargs)), leaves((args, kwargs)), strict=True))

        def back(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            for real, symbolic in pairs:
                if real is item:
                    return symbolic
            if item.layout is not torch.strided:
                return item
            return self.shadows.put(self._like(item), item)

        return map_leaves(out, back)

    def _run_meta(self, func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
        if func in FILLING and self.shadows.get(args[0]) is None:
            self.mutated = True
            return args[0]
        target = args[0] if args and isinstance(args[0], torch.Tensor) else None
        before = version(target)
        rule = RULES.get(func)
        key = None if rule is not None else call_key(func, args, kwargs)
        if key is not None and (known := self.shadows.results.get(key)) is not None:
            return known.made(self.device)
        try:
            out = func(*args, **kwargs) if rule is None else rule(self.shadows, func, args, kwargs)
        except RuntimeError as error:
            if "item()" not in str(error):
                raise
            out, key = func(*self._scalars(args), **self._scalars(kwargs)), None
        if target is not None and version(target) != before:
            self.mutated = True
            self.shadows.taint(target)
        elif key is not None and type(out) is torch.Tensor and is_fresh(out, args):
            self.shadows.results[key] = Result(tuple(out.shape), out.stride(), out.dtype)
        return out

    def _scalars(self, value: Any) -> Any:
        """Single elements of known value as numbers: `view(B, torch.div(n, 2))`, `x[i:t]`, `F.pad(x, [n // 2, n])`."""

        def change(item: Any) -> Any:
            if isinstance(item, torch.Tensor) and item.numel() == 1 and item is not subject:
                real = self.shadows.get(item)
                return item if real is None else real.item()
            return item

        first = value[0] if isinstance(value, tuple) and value else None
        # What the call is about stays a tensor.
        subject = first if isinstance(first, torch.Tensor) and first.dim() else None
        return map_leaves(value, change)


def is_whole(like: Any, kwargs: dict[str, Any]) -> bool:
    """Will a tensor made like this one hold whole numbers? These are no weights, so any value of theirs is kept."""
    dtype = kwargs.get("dtype") or like.dtype
    return not (dtype.is_floating_point or dtype.is_complex)


def call_key(func: Callable[..., Any], args: Values, kwargs: dict[str, Any]) -> Any:
    """What the type of a call's result depends on; None if that cannot be said."""
    try:
        parts = [_key_part(value) for value in args]
        parts += [(name, _key_part(value)) for name, value in kwargs.items()]
        key = (func, torch.is_grad_enabled(), *parts)
        hash(key)
    except TypeError:
        return None
    return key


def _key_part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise TypeError("only strided tensors are described by their strides")
        return (torch.Tensor, value.shape, value.stride(), value.dtype, value.requires_grad)
    if isinstance(value, list | tuple):
        return (type(value), *map(_key_part, value))
    # 1, 1.0 and True are equal, but not the same argument.
    return (type(value), value)


def is_fresh(out: torch.Tensor, args: Values) -> bool:
    """Is a result a tensor of its own: no view of an argument, and no part of an autograd graph?"""
    if out.layout is not torch.strided or out.requires_grad or not out.is_meta:
        return False
    if out._base is None:
        return all(tensor is not out for tensor in leaves(args))
    storage = out.untyped_storage()._cdata
    return all(tensor.untyped_storage()._cdata != storage for tensor in leaves(args))


def version(tensor: torch.Tensor | None) -> int:
    """How often `tensor` was written to; -1 where torch does not count (inference mode)."""
    if tensor is None:
        return -1
    try:
        return int(tensor._version)
    except RuntimeError:
        return -1


def may_write(func: Callable[..., Any], args: Values, kwargs: Mapping[str, Any]) -> bool:
    """Can this call write to its first argument: by its name, or by an `inplace=True` of torch.nn.functional?"""
    return writes(func) or bool(kwargs.get("inplace")) or any(value is True for value in args[1:])


def writes(func: Callable[..., Any]) -> bool:
    """Is this a callable that writes to its first argument, by torch's naming rule?"""
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name in IN_PLACE_OPERATORS


IN_PLACE_OPERATORS = frozenset(
    f"__i{name}__"
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "div",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    )
)
