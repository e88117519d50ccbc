"""What a recording holds: calls in execution order, in plain data from which an fx graph is built when wanted."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from mase_server.ops.types import TensorType
from mase_server.tracing.bindings import Event
from mase_server.tracing.positions import Stack
from mase_server.tracing.sizes import SizeLog
from mase_server.tracing.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """In a call's arguments: the result of the call with this index. Made by `ref`, one object for each index."""

    index: int


_REFS: list[Ref] = []


def ref(index: int) -> Ref:
    """The one `Ref` to a call: arguments of two recordings are so compared by identity, in C."""
    while len(_REFS) <= index:
        _REFS.append(Ref(len(_REFS)))
    return _REFS[index]


@dataclass(frozen=True, slots=True)
class Constant:
    """In a call's arguments, or as the target of a get_attr: an object that belongs to the graph, by its name."""

    name: str


@dataclass(slots=True)
class Call:
    """One node to be: fx op, target, arguments with `Ref` for results of earlier calls, and what came out.

    For call_module and get_attr the target is the qualified name. `helper` marks a getitem or getattr that only takes
    a container apart: it is dropped where nothing uses it. `cast`: the type to which autocast casts while it runs.
    """

    kind: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Value
    scope: int
    stack: Stack
    helper: bool = False
    cast: torch.dtype | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One look at values: the name of the method, what it was asked of, and what was seen. after: the calls before."""

    asked: str
    arguments: tuple[Any, ...]
    seen: Any
    after: int
    stack: Stack


@dataclass(slots=True)
class Run:
    """One recording of one forward.

    scopes: (module path, module type), index 0 is the root.  inputs: forward's parameters by name, as descriptions.
    placeholders: parameter name -> index of its call.  constants: what `Constant` names stand for.  result: the
    description of what forward returned.  seconds: wall time of the recording.  reads: how often the forward looked at
    values; looks: those looks that the graph can check.  sizes: what the forward asked of sizes.
    state: the attribute by which a second call would compute something else, "" for none.
    """

    calls: list[Call]
    scopes: list[tuple[str, type]]
    events: list[Event]
    placeholders: dict[str, int]
    constants: dict[str, Any]
    result: Value
    seconds: float
    untracked: list[str] = field(default_factory=list)
    reads: int = 0
    sizes: SizeLog | None = None
    looks: list[Look] = field(default_factory=list)
    state: str = ""


_METHOD_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType)


def classify(func: Callable[..., Any]) -> tuple[str, Any]:
    """fx op and target of a torch callable: methods of Tensor become call_method, operators their `operator`."""
    name = getattr(func, "__name__", "")
    if name in _OPERATORS and getattr(torch.Tensor, name, None) == func:
        return "call_function", _OPERATORS[name]
    if isinstance(func, _METHOD_TYPES):
        return "call_method", name
    # `__pow__` is a wrapper of torch._tensor that is named `pow`.
    if isinstance(func, types.FunctionType) and func.__module__ == "torch._tensor" and hasattr(torch.Tensor, name):
        return "call_method", name
    return "call_function", func


def _operators() -> dict[str, Any]:
    import operator

    return {"__getitem__": operator.getitem, "__setitem__": operator.setitem}


_OPERATORS = _operators()


def references(value: Any) -> list[int]:
    """Indices of the calls that nested arguments refer to, in order."""
    found: list[int] = []

    def walk(item: Any) -> None:
        if isinstance(item, Ref):
            found.append(item.index)
        elif isinstance(item, list | tuple):
            for part in item:
                walk(part)
        elif isinstance(item, dict):
            for part in item.values():
                walk(part)
        elif isinstance(item, slice):
            walk((item.start, item.stop, item.step))

    walk(value)
    return found


def with_types(value: Any, calls: list[Call]) -> Any:
    """Nested arguments with every `Ref` replaced by the `TensorType` (or description) of that call's result."""
    if isinstance(value, Ref):
        return calls[value.index].value
    if isinstance(value, list | tuple):
        items = [with_types(item, calls) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: with_types(item, calls) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(with_types(item, calls) for item in (value.start, value.stop, value.step)))
    return value


__all__ = ["Call", "Constant", "Ref", "Run", "TensorType", "classify", "ref", "references", "with_types"]
