"""Failed torch calls: the recorder's knowledge of a call that raised, and what may be wrong with it, in words.

Explainers, problems and quick fixes share these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from mase_server.dtypes import short
from mase_server.ops.types import Kwargs, TensorType
from mase_server.tracing.recording.calling import map_leaves
from mase_server.tracing.recording.positions import Stack
from mase_server.tracing.recording.values import tensor_type
from mase_server.visible import hide_addresses

#: Exceptions that the user's code may raise at our borders, including its `sys.exit` and KeyboardInterrupt.
RAISED = (Exception, SystemExit, KeyboardInterrupt)


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of an operand: the path of a layer or the name of a function, and the frames that called it."""

    maker: str
    stack: Stack


@dataclass(frozen=True, slots=True)
class Failure:
    """A torch callable that raised `error`.

    args, kwargs: its arguments with tensors replaced by `TensorType`.  scope: path of the module whose forward ran.
    module, path: the leaf module inside which it happened, if any.  origins: the sources of operands, by position.
    """

    error: BaseException
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Kwargs
    scope: str
    module: nn.Module | None = None
    path: str = ""
    origins: Mapping[Any, Origin] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException, func: Callable[..., Any], args: Any, kwargs: Kwargs, scope: str) -> Failure:
        """Describe the call while its arguments are at hand."""

        def change(value: Any) -> Any:
            return tensor_type(value) if isinstance(value, torch.Tensor) else value

        return cls(error, func, map_leaves(args, change), map_leaves(kwargs, change), scope)

    def inside(self, module: nn.Module, path: str) -> Failure:
        """The same failure, known to have happened inside a leaf module."""
        return replace(self, module=module, path=path)


# A torch call and what may be wrong with it, in words: the types that explainers, problems and quick fixes share.


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
        """The leaf module as the user knows it: its path and its representation in torch."""
        if self.module is None:
            return name_of(self.func)
        text = write_repr(self.module).partition("\n")[0]
        return f"`{self.path}` {text}" if self.path else text

    def tensors(self) -> Iterator[tuple[Any, TensorType]]:
        """Every tensor among the arguments with its place, lists one level deep."""
        for at, value in (*enumerate(self.args), *self.kwargs.items()):
            if isinstance(value, TensorType):
                yield at, value
            elif isinstance(value, (list, tuple)):
                yield from (((at, i), item) for i, item in enumerate(value) if isinstance(item, TensorType))


def write_repr(value: Any) -> str:
    """`repr` without addresses, which differ from run to run; the class's name if its own `repr` fails."""
    try:
        return hide_addresses(repr(value))
    except RAISED:  # the border to other people's classes
        return type(value).__name__


def name_of(func: Any) -> str:
    """A callable's name as people write it: `view`, not `__get__`."""
    name = type(func).__name__ if isinstance(func, nn.Module) else getattr(func, "__name__", str(func))
    return name.strip("_") if name.startswith("__") else name
