"""Torch callables and their arguments, as far as running them on meta tensors needs to know them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._device import _device_constructors

Values = tuple[Any, ...]

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
MOVES = frozenset({torch.Tensor.cpu, torch.Tensor.cuda, torch.Tensor.pin_memory})
#: Callables that take a device as a plain string among their arguments.
TAKE_DEVICE_TEXT = frozenset({torch.Tensor.to, torch.Tensor.type})
DEVICE_WORDS = frozenset({"cpu", "cuda", "mps", "xpu", "hpu", "npu", "meta"})
#: The type of the callables behind attributes such as `Tensor.shape`.
GETTER = type(vars(torch._C.TensorBase)["T"].__get__)


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


def like(real: torch.Tensor, device: str) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype on `device`; its values are not set."""
    return torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=device)


def is_symbolic(tensor: torch.Tensor) -> bool:
    """Has this tensor no values of its own?"""
    return tensor.is_meta or hasattr(tensor, "fake_mode")


def is_whole(like: Any, kwargs: dict[str, Any]) -> bool:
    """Will a tensor made like this one hold whole numbers? These are no weights, so any value of theirs is kept."""
    dtype = kwargs.get("dtype") or like.dtype
    return not (dtype.is_floating_point or dtype.is_complex)


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
