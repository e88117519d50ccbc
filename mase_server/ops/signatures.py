"""Torch's own parameter names of a callable, from its ATen schemas or Python signature, read when asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import MethodWrapperType
from typing import Any

import torch

from mase_server.ops.types import TensorType


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.  tensor: it takes a tensor, or several where `many`; positional: it may be given by position."""

    name: str
    tensor: bool
    many: bool
    positional: bool = True


Signature = tuple[Parameter, ...]

#: Parameters that take tensors in Python signatures that say no types.
TENSOR_NAMES = frozenset(
    {"self", "input", "other", "tensor", "tensors", "mask", "mat2", "target", "src", "tgt", "query", "key"}
)


#: Operators whose plainest overload (one tensor, no dimension) is the usual one.
PLAIN_FIRST = frozenset({"max", "min"})


def signatures(target: object, aten: str | None = None) -> tuple[Signature, ...]:
    """Every overload of a callable, the plainest first; () if unknown.  aten: a schema to use if it has none."""
    if isinstance(target, MethodWrapperType):  # a property such as x.T
        return ((Parameter("self", True, False),),)
    if inspect.isfunction(target):
        written = _from_python(target)
        if written is not None:
            return (written,)
    name = getattr(target, "__name__", "")
    for candidate in (name, name.rstrip("_") if not name.startswith("__") else "", aten):
        if candidate and (found := _from_schemas(candidate)):
            return found
    written = _from_python(target) if callable(target) else None
    return (written,) if written is not None else ()


@cache
def _from_schemas(name: str) -> tuple[Signature, ...]:
    read: Callable[[str], Any] | None = getattr(torch._C, "_jit_get_schemas_for_operator", None)
    if read is None:
        return ()
    schemas = [s for s in read(f"aten::{name}") if not any(a.is_out for a in s.arguments)]
    schemas.sort(key=lambda s: (not _takes_tensor(s), name in PLAIN_FIRST and s.overload_name != ""))
    return tuple(tuple(_from_argument(a) for a in s.arguments) for s in schemas)


def _takes_tensor(schema: Any) -> bool:
    return any("Tensor" in str(a.type) for a in schema.arguments)


def _from_argument(argument: Any) -> Parameter:
    kind = str(argument.type)
    return Parameter(argument.name, "Tensor" in kind, "List" in kind or "[]" in kind, not argument.kwarg_only)


def _from_python(function: Any) -> Signature | None:
    """None where the function takes *args, which says nothing."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in given):
        return None
    return tuple(_plain(given))


def _plain(given: Any) -> Iterator[Parameter]:
    for p in given:
        if p.kind is p.VAR_KEYWORD or p.name.startswith("_"):
            continue
        kind = "" if p.annotation is p.empty else str(p.annotation)
        takes = "Tensor" in kind if kind else p.name in TENSOR_NAMES
        many = kind.lower().replace("typing.", "").startswith(("list", "tuple", "sequence"))
        yield Parameter(p.name, takes, many, p.kind is not p.KEYWORD_ONLY)


def best(overloads: tuple[Signature, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    """The overload that the arguments fit, else the longest."""
    fitting = (signature for signature in overloads if _fits(signature, args, kwargs))
    return next(fitting, max(overloads, key=len, default=()))


def _fits(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    positional = [p for p in signature if p.positional]
    spread = bool(positional) and positional[-1].many
    if len(args) > len(positional) and not spread:
        return False
    names = {"input" if p.name == "self" else p.name for p in signature}
    if not {"input" if name == "self" else name for name in kwargs} <= names:
        return False
    return all(_accepts(p, value) for p, value in zip(positional, args, strict=False))


def _accepts(parameter: Parameter, value: Any) -> bool:
    if value is None:
        return True
    is_tensor = isinstance(value, TensorType)
    holds_tensors = isinstance(value, (list, tuple)) and any(isinstance(item, TensorType) for item in value)
    return parameter.tensor == (is_tensor or holds_tensors)
