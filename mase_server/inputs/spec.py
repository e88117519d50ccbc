"""What a model's inputs are: trees of tensors whose sizes are numbers or symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any

Dim = int | str
Number = int | float

#: How the values of a tensor may be made, and what that means; generate.py makes them.
FILLS = {
    "below": "whole numbers from 0 to below the argument",
    "zeros": "zeros",
    "ones": "ones",
    "full": "the argument, everywhere",
    "uniform": "between 0 and 1",
    "bernoulli": "true (or 1) with the argument as probability",
    "arange": "0, 1, 2, ... along the last dimension",
    "causal": "what the last dimension may see of the past: true, 1 or 0.0; else false, 0 or -inf",
    "upper": "true or 1 strictly above the diagonal of the last two dimensions",
    "lengths": "whole numbers from the argument down to at least 1",
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor: element type (short name), sizes (numbers or symbols) and how its values are made.

    fill: "" for the usual values of the type, else a word of `FILLS`; argument: its number or symbol.
    """

    dtype: str
    dims: tuple[Dim, ...]
    fill: str = ""
    argument: Number | str | None = None

    def __post_init__(self) -> None:
        # numpy's whole numbers are no int, and would be taken for the names of symbols.
        dims = tuple(dim if isinstance(dim, str) else index(dim) for dim in self.dims)
        object.__setattr__(self, "dims", dims)


@dataclass(frozen=True, slots=True)
class ConstantSpec:
    """A value that is no tensor: a Python constant in text, any object when it was observed."""

    value: Any


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """A tuple or list; `build` turns the list of its members into the observed type (a named tuple, ...)."""

    items: tuple[Spec, ...]
    is_list: bool = False
    build: Callable[[list[Any]], Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class MapSpec:
    """A dict; `build` turns the dict of its members into the observed type (a dataclass, a BatchEncoding, ...)."""

    items: tuple[tuple[str, Spec], ...]
    build: Callable[[dict[str, Any]], Any] | None = field(default=None, compare=False)


Spec = TensorSpec | ConstantSpec | SequenceSpec | MapSpec


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs bound by parameter name, and the sizes of their symbols that are known."""

    entries: Mapping[str, Spec]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def symbols(self) -> tuple[str, ...]:
        """Every symbol that some dimension is written with, in order of first use."""
        found = (dim for spec in self.entries.values() for leaf in leaves(spec) for dim in leaf.dims)
        return tuple(dict.fromkeys(dim for dim in found if isinstance(dim, str)))


def leaves(spec: Spec) -> Iterator[TensorSpec]:
    """The tensors of a tree, in order."""
    match spec:
        case TensorSpec():
            yield spec
        case SequenceSpec(items):
            for item in items:
                yield from leaves(item)
        case MapSpec(items):
            for _, item in items:
                yield from leaves(item)


def resize(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    """The same inputs with other sizes for some symbols."""
    return Inputs(inputs.entries, {**inputs.sizes, **sizes})
