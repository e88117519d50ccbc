"""Objects with tensors inside, taken apart and put together again with other tensors.

Model outputs, caches and other objects of no type that fx knows can so be arguments and results of a graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mase_server.tracing.sizes import TracedInt

MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where the tensor with this index stood."""

    index: int


@dataclass(frozen=True, slots=True)
class _Object:
    """An object whose attributes (`parts` under None) or items hold tensors."""

    original: Any
    parts: dict[Any, Any]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Rebuild:
    """A template of an object. Calling it with as many tensors as `tensors` gives the object anew with those."""

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
        """The object anew, with these tensors in place of the first ones."""
        return _put_together(self.plan, tensors)

    def written(self, tensors: Sequence[str], literal: Callable[[Any], str]) -> str:
        """How the object would be written with these texts for its tensors. literal: the text of all else."""
        return _written(self.plan, tensors, literal)

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """The object with `change` applied to each of its tensors."""
        return self([change(tensor) for tensor in self.tensors])


def _take_apart(value: Any, tensors: list[torch.Tensor], depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Slot(len(tensors) - 1)
    if isinstance(value, TracedInt):
        return value.plain
    if depth > MAX_DEPTH or isinstance(value, str | int | float | type | None | torch.nn.Module | torch.Size):
        return value
    before = len(tensors)
    parts: dict[Any, Any] = {}
    if isinstance(value, list | tuple):
        parts = {key: _take_apart(item, tensors, depth + 1) for key, item in enumerate(value)}
    elif isinstance(value, Mapping):
        parts = {key: _take_apart(item, tensors, depth + 1) for key, item in value.items()}
    data = getattr(value, "__dict__", None)
    attributes: dict[str, Any] = {}
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
        return _mapping(original, parts)
    return new


def _written(plan: Any, tensors: Sequence[str], literal: Callable[[Any], str]) -> str:
    if isinstance(plan, _Slot):
        return tensors[plan.index]
    if not isinstance(plan, _Object):
        return literal(plan)
    kind = type(plan.original)
    parts = {key: _written(part, tensors, literal) for key, part in (plan.parts or plan.attributes).items()}
    if kind in (list, tuple):
        return f"[{', '.join(parts.values())}]" if kind is list else f"({', '.join(parts.values())},)"
    if kind is dict:
        return f"{{{', '.join(f'{key!r}: {part}' for key, part in parts.items())}}}"
    told = (part if isinstance(key, int) else f"{key}={part}" for key, part in parts.items())
    return f"{kind.__name__}({', '.join(told)})"


def _mapping(original: Any, parts: dict[Any, Any]) -> Any:
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
