"""A torch call and what may be wrong with it, in words: the types that explainers, problems and quick fixes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mase_server.dtypes import short
from mase_server.ops.types import TensorType


@dataclass(frozen=True, slots=True)
class Misfit:
    """A constructor argument of the leaf module that does not fit its input: name, position, value, fitting value."""

    parameter: str
    index: int
    was: Any
    should: Any


@dataclass(frozen=True, slots=True)
class Rename:
    """A method or function whose name at the failing call should be another."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Convert:
    """An operand of the failing call, by its place, that should pass through a method: `float()`, `transpose(1, 2)`."""

    at: Any
    method: str


@dataclass(frozen=True, slots=True)
class Option:
    """An argument of the failing call itself that should have another value: name, position, value."""

    parameter: str
    index: int
    should: Any


@dataclass(frozen=True, slots=True)
class Swap:
    """The first two operands of the failing call should change places."""


@dataclass(frozen=True, slots=True)
class OtherKind:
    """The leaf module should be of another class of torch.nn, made with the same arguments."""

    kind: str


Mend = Misfit | Rename | Convert | Option | Swap | OtherKind


@dataclass(frozen=True, slots=True)
class Complaint:
    """code: of the diagnostic.  text: one or two sentences.  mend: what a quick fix may change."""

    code: str
    text: str
    mend: Mend | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A torch call, its tensors as `TensorType`.

    module, path: the leaf module it was made in, if any.  names: the source text of operands by position, (0, 1) being
    the second item of a list in first place.  symbols: for a tensor's type, its
    dimensions as probing proved them, e.g. ("B", "576").
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    module: nn.Module | None = None
    path: str = ""
    names: Mapping[Any, str] = field(default_factory=dict)
    symbols: Mapping[TensorType, Sequence[str]] = field(default_factory=dict)

    def get(self, index: int, name: str, default: Any = None) -> Any:
        """An argument by position or keyword."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name, default)

    def show(self, tensor: TensorType, at: Any = None, fallback: str = "the input") -> str:
        """A tensor as `x` f32[B=2, 576]; `fallback` where the source gives it no short name."""
        name = self.names.get(at)
        return f"{f'`{name}`' if name else fallback} {self.type_of(tensor)}"

    def type_of(self, tensor: TensorType) -> str:
        """A tensor's type and shape, named sizes with their names."""
        plain = [str(size) for size in tensor.shape]
        names = self.symbols.get(tensor, plain)
        sizes = (size if name == size else f"{name}={size}" for name, size in zip(names, plain, strict=True))
        return f"{short(tensor.dtype)}[{', '.join(sizes)}]"

    def varies(self, tensor: TensorType, dim: int) -> bool:
        """Is this size known to depend on the inputs' sizes?"""
        names = self.symbols.get(tensor)
        return names is not None and not names[dim].isdigit()

    @property
    def layer(self) -> str:
        """The leaf module as the person knows it: its path and how torch prints it."""
        if self.module is None:
            return name_of(self.func)
        try:
            text = str(self.module).partition("\n")[0]
        except Exception:  # noqa: BLE001 - `extra_repr` may be the person's own
            text = type(self.module).__name__
        return f"`{self.path}` {text}" if self.path else text

    def tensors(self) -> Iterator[tuple[Any, TensorType]]:
        """Every tensor among the arguments with its place, lists one level deep."""
        for at, value in (*enumerate(self.args), *self.kwargs.items()):
            if isinstance(value, TensorType):
                yield at, value
            elif isinstance(value, list | tuple):
                yield from (((at, i), item) for i, item in enumerate(value) if isinstance(item, TensorType))


def name_of(func: Any) -> str:
    """A callable's name as a person writes it: `view`, not `__get__`."""
    name = type(func).__name__ if isinstance(func, nn.Module) else getattr(func, "__name__", str(func))
    return name.strip("_") if name.startswith("__") else name
