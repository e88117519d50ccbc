"""Torch callables and their arguments, as far as running them on meta tensors requires."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch._functorch import apis
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from mase_server.ops.types import Kwargs

Values = tuple[Any, ...]

CONSTRUCTORS: frozenset[Callable[..., Any]] = frozenset(_device_constructors())
#: Constructors whose argument is the data: their value is made first, then the meta tensor.
FROM_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.from_numpy})
#: Results without values worth keeping.
UNDEFINED = frozenset(
    {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty, torch.empty_permuted}
)

#: Callables that fill a tensor with new values: on meta they have nothing to do.
FILLING = frozenset(
    getattr(torch.Tensor, f"{name}_")
    for name in ("normal", "uniform", "zero", "fill", "exponential", "log_normal", "cauchy", "bernoulli", "random")
)


#: Initialisers that hand themselves over, and what layers give to the one that checks its arguments.
_INITS = frozenset({"normal_", "uniform_", "kaiming_uniform_"})
_LAYERS_OWN = {"mode": "fan_in", "nonlinearity": "leaky_relu"}


def find_filled(func: Callable[..., Any], args: Values, kwargs: Kwargs) -> torch.Tensor | None:
    """The tensor that a call only fills with new floats, by a method or as `nn.init.normal_` does; None for others.

    The functions of `nn.init` hand over what stands under their name, which a library may have replaced.
    """
    if func not in FILLING:
        name = getattr(func, "__name__", "")
        if "tensor" not in kwargs or name not in _INITS or func is not getattr(torch.nn.init, name):
            return None
        if name == "kaiming_uniform_" and not (kwargs["tensor"].dim() > 1 and _LAYERS_OWN.items() <= kwargs.items()):
            return None  # it may be refused
    filled = args[0] if args else kwargs.get("tensor")
    return filled if isinstance(filled, torch.Tensor) and filled.dtype.is_floating_point else None


#: Callables that read values.
READS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__array__",
        "__contains__", "__repr__", "__format__", "equal", "allclose", "is_nonzero", "__reversed__",
    )
) | {torch.equal, torch.allclose, torch.is_nonzero}  # fmt: skip
PRINTS = frozenset({torch.Tensor.__repr__, torch.Tensor.__format__})

#: The answers that traced code gets in place of a meta tensor's own.
LOGICAL_ATTRIBUTES: Mapping[str, object] = {
    "device": torch.device("cpu"), "is_meta": False, "is_cpu": True, "is_cuda": False, "is_mps": False, "is_xpu": False,
}  # fmt: skip
#: The module that reads `is_meta` to skip drawing weights, some of which it draws until their values suit.
INITIALISERS = "torch.nn.init"
MOVES = frozenset({torch.Tensor.cpu, torch.Tensor.cuda, torch.Tensor.pin_memory})
#: Callables that take a device as a plain string among their arguments.
TAKE_DEVICE_TEXT = frozenset({torch.Tensor.to, torch.Tensor.type})
DEVICE_WORDS = frozenset({"cpu", "cuda", "mps", "xpu", "hpu", "npu", "meta"})
#: Callables that tell the shape or the element type of a tensor, which its stand-in has too.
TELLS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("dim", "ndimension", "size", "numel", "nelement", "element_size", "is_floating_point", "is_complex")
)
#: The switch of gradients: `no_grad` calls it twice around each weight that a layer draws.
SWITCH = torch._C._set_grad_enabled
#: The type of the callables behind attributes such as `Tensor.shape`.
GETTER = type(vars(torch._C.TensorBase)["T"].__get__)


#: The functions and methods of PyTorch, by module or class and name, before a file or a stand-in can have replaced any.
_FUNCTIONS: Mapping[Any, Mapping[str, Any]] = {
    **{module: dict(vars(module)) for module in (torch.nn.functional, torch.functional, torch.nn.init)},
    torch.Tensor: {**vars(torch._C.TensorBase), **vars(torch.Tensor)},
}
_OWN = frozenset(id(value) for functions in _FUNCTIONS.values() for value in functions.values())


def find_replaced(func: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function in whose place a file has put `func`, as counters of operations do; else `func` itself.

    The function of PyTorch has the name that rules, costs and graphs know it by. It hands over what its module or class
    holds under its own name, so a replacement that calls it comes here in its place.
    """
    if id(func) in _OWN or (hasattr(func, "__name__") and not isinstance(func, FunctionType)):
        return func
    for module, functions in _FUNCTIONS.items():
        for name, now in vars(module).items():
            if now is func:
                original: Callable[..., Any] = functions.get(name, func)
                return original
    return func


def gives_data(func: Callable[..., Any]) -> bool:
    """Is this the call behind `tensor.data = other`?"""
    return type(func) is GETTER and (func.__name__, func.__self__.__name__) == ("__set__", "data")  # type: ignore[attr-defined]


def iterate_leaf_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples, dicts and slices of arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from iterate_leaf_tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from iterate_leaf_tensors(item)
    elif isinstance(value, slice):
        yield from iterate_leaf_tensors((value.start, value.stop, value.step))


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments with `change` applied to everything that is not a container; containers keep their types."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, (list, tuple)):
        items = [map_leaves(item, change) for item in value]
        if isinstance(value, tuple) and type(value) is not tuple:
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return type(value)(items)
    if isinstance(value, dict) and type(value) is dict:
        return {key: map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(change(value.start), change(value.stop), change(value.step))
    return change(value)


def make_empty_like(real: torch.Tensor, device: str) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype on `device`; its values are not set."""
    return torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Does this tensor have no values of its own?"""
    return tensor.is_meta or hasattr(tensor, "fake_mode")


def is_whole(like: Any, kwargs: Kwargs) -> bool:
    """Will a tensor made like this one hold integers? They are no weights, so any values of theirs are kept."""
    dtype = kwargs.get("dtype") or like.dtype
    return not (dtype.is_floating_point or dtype.is_complex)


def read_version_counter(tensor: torch.Tensor | None) -> int:
    """The number of writes to `tensor`; -1 if torch does not count them (inference mode)."""
    if tensor is None:
        return -1
    try:
        return int(tensor._version)
    except RuntimeError:
        return -1


def may_write(func: Callable[..., Any], args: Values, kwargs: Mapping[str, Any]) -> bool:
    """Can this call write to its first argument: by its name, or by an `inplace=True` of torch.nn.functional?"""
    return is_in_place_by_name(func) or bool(kwargs.get("inplace")) or any(value is True for value in args[1:])


def is_in_place_by_name(func: Callable[..., Any]) -> bool:
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


# Every `module(...)`, while forwards are recorded and programs are watched.


class ModuleCalls:
    """current: the function that each call of a module goes through while `module_calls_routed`."""

    routed = False
    current: Callable[..., Any] = nn.Module.__call__


@contextmanager
def module_calls_routed() -> Iterator[None]:
    """Inside, `ModuleCalls.current` decides: to exchange it takes no time, while to exchange `nn.Module.__call__` tells
    each class of modules."""
    if ModuleCalls.routed:
        yield
        return

    def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        return ModuleCalls.current(module, *args, **kwargs)

    original = nn.Module.__call__
    ModuleCalls.current, ModuleCalls.routed = original, True
    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]
        ModuleCalls.routed = False


# `torch.vmap` in a forward: one node, whose function runs anew in every run of the graph.
#
# Outside values that the function holds become arguments of the node, so that no tensor of the recording stays in it.

#: Called in place of torch's own: (original, function, in_dims, out_dims, randomness, chunk_size, *args).
Hook = Callable[..., Any]


@contextmanager
def vmap_through(hook: Hook) -> Iterator[None]:
    """While inside, functions made by `torch.vmap` call `hook`."""
    before = vars(apis)["vmap_impl"]
    vars(apis)["vmap_impl"] = functools.partial(hook, before)
    try:
        yield
    finally:
        vars(apis)["vmap_impl"] = before


class Vmapped:
    """A vmapped function as the target of a node: called with its arguments and with the outside values that it
    holds."""

    __name__ = "vmap"

    def __init__(self, run: Callable[..., Any], held: Sequence[torch.Tensor]) -> None:
        self._run, self._held = run, tuple(held)

    def __repr__(self) -> str:
        return "a function that torch.vmap maps, and of whose code no file is made"

    def __call__(self, args: Sequence[Any], kwargs: Kwargs, held: Sequence[torch.Tensor], state: str) -> Any:
        """The function's result; `state` only records what else it was made with."""
        replacing = Replacing(dict(zip(map(id, self._held), held, strict=True)))
        with replacing, vmap_through(replacing.nested):
            return self._run(*args, **kwargs)


class Replacing(TorchFunctionMode):
    """While active, calls take other tensors in place of some, by identity."""

    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._others = others

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Kwargs | None = None
    ) -> Any:
        return func(*self.replaced(tuple(args)), **self.replaced(kwargs or {}))

    def nested(self, original: Callable[..., Any], function: Callable[..., Any], *rest: Any, **kwargs: Any) -> Any:
        """A vmap inside the function: its arguments bypass the mode."""
        return original(function, *self.replaced(rest), **kwargs)

    def replaced(self, value: Any) -> Any:
        """Nested arguments with the replacement tensors."""

        def change(item: Any) -> Any:
            return self._others.get(id(item), item) if isinstance(item, torch.Tensor) else item

        return map_leaves(value, change)


class Held:
    """Collects the tensors used by a function that `is_known` reports from before it ran."""

    def __init__(self, is_known: Callable[[torch.Tensor], bool]) -> None:
        self._is_known = is_known
        self.tensors: dict[int, torch.Tensor] = {}

    def look(self, arguments: Any) -> None:
        """Note one call's arguments."""
        for tensor in iterate_leaf_tensors(arguments):
            if id(tensor) not in self.tensors and self._is_known(tensor):
                self.tensors[id(tensor)] = tensor


def state_of(function: Any, depth: int = 0) -> str:
    """The plain numbers that a function was made with, as text: if they vary, it is not generic."""
    if isinstance(function, (bool, int, float, str, torch.Size)):
        return repr(function)
    if depth > 4:
        return ""
    parts: list[Any] = []
    if isinstance(function, functools.partial):
        parts = [function.func, *function.args, *function.keywords.values()]
    elif isinstance(function, (list, tuple)):
        parts = list(function)
    else:
        parts = [*_iterate_cell_contents(function), *(getattr(function, "__defaults__", None) or ())]
    return f"({','.join(state_of(part, depth + 1) for part in parts)})"


def _iterate_cell_contents(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


# Autocast on meta tensors: torch casts by device, and meta has no casts of its own.
#
# Traced code sees the device `cpu`, so the casts are those of `torch.autocast("cpu")`; a CUDA autocast without CUDA
# does
# nothing, as in eager.


def autocast_key() -> torch.dtype | None:
    """The type to which autocast casts on the CPU now; None while it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


@cache
def _get_fake_mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)


def wrap_with_autocast(func: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable for meta tensors, with the casts of autocast."""
    return lambda *args, **kwargs: _run_with_autocast(func, args, kwargs)


def _run_with_autocast(func: Callable[..., Any], args: Values, kwargs: Kwargs) -> Any:
    """Make the call on fake CPU tensors, where autocast works; return meta tensors again.

    A call that returns one of its arguments returns that very tensor.
    """
    stand_ins: dict[int, torch.Tensor] = {}
    originals: dict[int, torch.Tensor] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return torch.device("cpu") if isinstance(value, torch.device) else value
        if id(value) not in stand_ins:
            made = FakeTensor(_get_fake_mode(), value.detach(), torch.device("cpu"))
            stand_ins[id(value)] = made
            originals[id(made)] = value
        return stand_ins[id(value)]

    def meta(value: Any) -> Any:
        if not isinstance(value, FakeTensor):
            return value
        return originals[id(value)] if id(value) in originals else make_empty_like(value, "meta")

    with _get_fake_mode():
        out = func(*map_leaves(args, fake), **map_leaves(kwargs, fake))
    return map_leaves(out, meta)
