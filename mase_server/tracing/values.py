"""Descriptions of what names are bound to: shapes and types, without the tensors themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from mase_server.dtypes import SHORT
from mase_server.ops.types import TensorType
from mase_server.tracing.sizes import TracedInt

MAX_DEPTH = 6
MAX_ITEMS = 512


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A tuple, list or named tuple that holds tensors somewhere."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class DictOf:
    """A dict, dataclass or model output that holds tensors somewhere."""

    items: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Python:
    """Anything else, by the name of its type; None is `Python("None")`."""

    name: str


Value = TensorType | TupleOf | DictOf | Python
NONE = Python("None")

_DTYPE_NAMES = {getattr(torch, name): name for name in SHORT if hasattr(torch, name)}
_INTERNED: dict[tuple[torch.dtype, tuple[int, ...]], TensorType] = {}


class NestedTensorError(RuntimeError):
    """The code makes a nested tensor, whose rows have sizes of their own: it has no shape that could be shown."""


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """dtype and shape of a tensor, NestedTensorError for a nested one. Call it where no torch function mode listens."""
    try:
        shape = tuple(tensor.shape)
        key = (tensor.dtype, shape)
        found = _INTERNED.get(key)
        if found is None:
            name = _DTYPE_NAMES.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")
            found = _INTERNED[key] = TensorType(name, tuple(int(size) for size in shape))
    except (RuntimeError, AttributeError):
        if not tensor.is_nested:
            raise
        raise NestedTensorError("a nested tensor is not traced: its rows have sizes of their own") from None
    return found


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """The named parts of a mapping or a dataclass instance; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    data = getattr(value, "data", None) if type(value).__name__ in ("BatchEncoding", "BatchFeature") else None
    return data if isinstance(data, Mapping) else None


def holds_tensor(value: Any, depth: int = 0) -> bool:
    """Is there a tensor in `value`, at most MAX_DEPTH containers deep?"""
    if isinstance(value, torch.Tensor):
        return True
    if depth >= MAX_DEPTH:
        return False
    if isinstance(value, list | tuple):
        return any(holds_tensor(item, depth + 1) for item in value[:MAX_ITEMS])
    if isinstance(value, str | int | float | type | None):
        return False
    fields = fields_of(value)
    return fields is not None and any(holds_tensor(item, depth + 1) for item in islice(fields.values(), MAX_ITEMS))


def describe(value: Any, depth: int = 0) -> Value:
    """The description of any value; what holds no tensor is `Python`."""
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if value is None:
        return NONE
    if depth < MAX_DEPTH:
        # A size by itself says nothing; beside a tensor it is a tuple as any other.
        if isinstance(value, list | tuple) and (depth or not isinstance(value, torch.Size)):
            return TupleOf(tuple(describe(item, depth + 1) for item in value[:MAX_ITEMS]))
        fields = None if isinstance(value, str | int | float | type) else fields_of(value)
        if fields is not None:
            items = islice(fields.items(), MAX_ITEMS)
            return DictOf(tuple((str(key), describe(item, depth + 1)) for key, item in items))
    return Python("int" if isinstance(value, TracedInt) else type(value).__name__)


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors of a value itself, as many and in the same order as `tensors_of` its description."""
    if isinstance(value, torch.Tensor):
        yield value
    elif value is None or depth >= MAX_DEPTH or isinstance(value, str | int | float | type):
        return
    elif isinstance(value, list | tuple):
        for item in value[:MAX_ITEMS]:
            yield from tensors_in(item, depth + 1)
    elif (fields := fields_of(value)) is not None:
        for item in islice(fields.values(), MAX_ITEMS):
            yield from tensors_in(item, depth + 1)


def tensors_of(value: Value) -> Iterator[TensorType]:
    """The tensors of a description, in order."""
    if isinstance(value, TensorType):
        yield value
    elif isinstance(value, TupleOf):
        for item in value.items:
            yield from tensors_of(item)
    elif isinstance(value, DictOf):
        for _, item in value.items:
            yield from tensors_of(item)
