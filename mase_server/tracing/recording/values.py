"""The values that names are bound to: descriptions without the tensors themselves, and templates to rebuild them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from mase_server.dtypes import SHORT
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.sizes import TracedInt

#: The attributes of an object, by their names, as its `__dict__` has them.
Attributes = dict[str, Any]

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
    """The code makes a nested tensor, whose rows have sizes of their own: it has no shape to show."""


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """dtype and shape of a tensor, NestedTensorError for a nested one. Call it only while no torch function mode is
    active."""
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
    """Does `value` contain a tensor, at most MAX_DEPTH containers deep?"""
    if isinstance(value, torch.Tensor):
        return True
    if depth >= MAX_DEPTH:
        return False
    if isinstance(value, (list, tuple)):
        return any(holds_tensor(item, depth + 1) for item in value[:MAX_ITEMS])
    if isinstance(value, (str, int, float, type, type(None))):
        return False
    fields = fields_of(value)
    return fields is not None and any(holds_tensor(item, depth + 1) for item in islice(fields.values(), MAX_ITEMS))


def describe_value(value: Any, depth: int = 0) -> Value:
    """The description of any value; `Python` for one without tensors."""
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if value is None:
        return NONE
    if depth < MAX_DEPTH:
        # A size by itself is not shown; beside a tensor it is an ordinary tuple.
        if isinstance(value, (list, tuple)) and (depth or not isinstance(value, torch.Size)):
            return TupleOf(tuple(describe_value(item, depth + 1) for item in value[:MAX_ITEMS]))
        fields = None if isinstance(value, (str, int, float, type)) else fields_of(value)
        if fields is not None:
            items = islice(fields.items(), MAX_ITEMS)
            return DictOf(tuple((str(key), describe_value(item, depth + 1)) for key, item in items))
    return Python("int" if isinstance(value, TracedInt) else type(value).__name__)


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors of a value, as many and in the same order as `tensors_of` its description."""
    if isinstance(value, torch.Tensor):
        yield value
    elif value is None or depth >= MAX_DEPTH or isinstance(value, (str, int, float, type)):
        return
    elif isinstance(value, (list, tuple)):
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


# Objects with tensors inside, taken apart and rebuilt with other tensors: model outputs, caches and other objects of
# types unknown to fx can so be arguments and results of a graph.


MAX_REBUILT_DEPTH = 8


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of the tensor with this index."""

    index: int


@dataclass(frozen=True, slots=True)
class _Object:
    """An object whose attributes (`parts` under None) or items hold tensors."""

    original: Any
    parts: dict[Any, Any]
    attributes: Attributes


@dataclass(frozen=True)
class Rebuild:
    """A template of an object. Calling it with as many tensors as `tensors` returns a new object with those."""

    plan: Any
    tensors: tuple[torch.Tensor, ...]
    __name__ = "rebuild"

    @classmethod
    def of(cls, value: Any) -> Rebuild:
        """Take `value` apart; objects without tensors are kept as they are."""
        tensors: list[torch.Tensor] = []
        plan = _take_apart(value, tensors, 0)
        return cls(plan, tuple(tensors))

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """A new object, with these tensors in place of the first ones."""
        return _put_together(self.plan, tensors)

    def written(self, tensors: Sequence[str], literal: Callable[[Any], str]) -> str:
        """The object's text with these texts for its tensors. literal: gives the text of everything else."""
        return _write_plan(self.plan, tensors, literal)

    def classes(self) -> set[type]:
        """The classes that the text of the object calls."""
        return set(_list_classes(self.plan))

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """The object with `change` applied to each of its tensors."""
        return self([change(tensor) for tensor in self.tensors])


def _take_apart(value: Any, tensors: list[torch.Tensor], depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Slot(len(tensors) - 1)
    if isinstance(value, TracedInt):
        return value.plain
    if depth > MAX_REBUILT_DEPTH or isinstance(value, (str, int, float, type, type(None), torch.nn.Module, torch.Size)):
        return value
    before = len(tensors)
    parts: dict[Any, Any] = {}
    if isinstance(value, (list, tuple)):
        parts = {key: _take_apart(item, tensors, depth + 1) for key, item in enumerate(value)}
    elif isinstance(value, Mapping):
        parts = {key: _take_apart(item, tensors, depth + 1) for key, item in value.items()}
    data = getattr(value, "__dict__", None)
    attributes: Attributes = {}
    if not parts and isinstance(data, dict) and not callable(value):
        attributes = {key: _take_apart(item, tensors, depth + 1) for key, item in data.items()}
    return value if len(tensors) == before else _Object(value, parts, attributes)


def _put_together(plan: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(plan, _Slot):
        return tensors[plan.index]
    if not isinstance(plan, _Object):
        return plan
    parts = {key: _put_together(item, tensors) for key, item in plan.parts.items()}
    original = plan.original
    if isinstance(original, tuple):
        items = list(parts.values())
        return type(original)(*items) if hasattr(original, "_fields") else type(original)(items)
    if isinstance(original, list):
        return type(original)(parts.values())
    if type(original) is dict:
        return parts
    new = copy.copy(original)
    if plan.attributes:
        new.__dict__.update({key: _put_together(item, tensors) for key, item in plan.attributes.items()})
    elif type(original).__name__ in ("BatchEncoding", "BatchFeature"):
        new.data = parts
    elif isinstance(original, Mapping):
        return _rebuild_mapping(original, parts)
    return new


def _write_plan(plan: Any, tensors: Sequence[str], literal: Callable[[Any], str]) -> str:
    if isinstance(plan, _Slot):
        return tensors[plan.index]
    if not isinstance(plan, _Object):
        return literal(plan)
    kind = type(plan.original)
    parts = {key: _write_plan(part, tensors, literal) for key, part in (plan.parts or plan.attributes).items()}
    if kind in (list, tuple):
        return f"[{', '.join(parts.values())}]" if kind is list else f"({', '.join(parts.values())},)"
    if kind is dict:
        return f"{{{', '.join(f'{key!r}: {part}' for key, part in parts.items())}}}"
    told = (part if isinstance(key, int) else f"{key}={part}" for key, part in parts.items())
    return f"{kind.__name__}({', '.join(told)})"


def _list_classes(plan: Any) -> Iterator[type]:
    if isinstance(plan, _Object):
        yield type(plan.original)
        for part in (plan.parts or plan.attributes).values():
            yield from _list_classes(part)


def _rebuild_mapping(original: Any, parts: dict[Any, Any]) -> Any:
    """A mapping of the same type: model outputs take their fields by name, others their items."""
    try:
        return type(original)(**parts)
    except TypeError:
        return type(original)(parts)


@dataclass(frozen=True)
class Seeded:
    """Makes a random generator with this seed."""

    seed: int
    __name__ = "generator"

    def __call__(self) -> torch.Generator:
        """A new generator, at the beginning of its numbers."""
        return torch.Generator().manual_seed(self.seed)
