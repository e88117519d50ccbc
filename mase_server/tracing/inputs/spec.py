"""Specifications of a model's inputs: trees of tensors whose sizes are numbers or symbols; and their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import index
from typing import Any

import torch
from torch import nn, overrides

from mase_server.dtypes import LONG
from mase_server.tracing.recording.calling import map_leaves
from mase_server.tracing.recording.shadow import Shadows

Dim = int | str
Number = int | float
#: The values that a forward is called with, by the names of its parameters.
InputValues = dict[str, Any]

#: The ways to make the values of a tensor, and their meaning; `_FILL_FUNCTIONS` implements them.
FILLS = {
    "below": "whole numbers from 0 to below the argument",
    "zeros": "zeros",
    "ones": "ones",
    "full": "the argument, everywhere",
    "uniform": "between 0 and 1",
    "bernoulli": "true (or 1) with the argument as probability",
    "arange": "0, 1, 2, ... along the last dimension",
    "causal": "true, 1 or 0.0 where the last dimension may see the past; else false, 0 or -inf",
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
        # numpy's integers are no int, and would be taken for names of symbols.
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
    build: Callable[[Mapping[str, Any]], Any] | None = field(default=None, compare=False)


Spec = TensorSpec | ConstantSpec | SequenceSpec | MapSpec


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs bound by parameter name, and the sizes of their symbols that are known."""

    entries: Mapping[str, Spec]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def symbols(self) -> tuple[str, ...]:
        """Every symbol that some dimension is written with, in order of first use."""
        found = (dim for spec in self.entries.values() for leaf in iterate_leaves(spec) for dim in leaf.dims)
        return tuple(dict.fromkeys(dim for dim in found if isinstance(dim, str)))


def iterate_leaves(spec: Spec) -> Iterator[TensorSpec]:
    """The tensors of a tree, in order."""
    match spec:
        case TensorSpec():
            yield spec
        case SequenceSpec(items):
            for item in items:
                yield from iterate_leaves(item)
        case MapSpec(items):
            for _, item in items:
                yield from iterate_leaves(item)


def resize_inputs(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    """The same inputs with other sizes for some symbols."""
    return Inputs(inputs.entries, {**inputs.sizes, **sizes})


# Real tensors from specifications, at any size of their symbols, and the same values every time.


#: Default sizes of symbols.
SIZES = {"B": 2, "T": 16, "S": 12, "H": 32, "W": 32, "D": 16, "N": 8, "E": 20}
DEFAULT_SIZE = 8
#: The range of integers without a given one.
DEFAULT_BELOW = 2
#: Larger float tensors have no values if only shapes are tried: filling one can take seconds.
LARGEST_FILLED = 1 << 20

Shape = tuple[int, ...]
Fill = Callable[[Shape, torch.dtype, Number, torch.Generator], torch.Tensor]


def complete_sizes(inputs: Inputs) -> Inputs:
    """The same inputs with a size for every symbol, and no sizes of other symbols."""
    named = (leaf.argument for spec in inputs.entries.values() for leaf in iterate_leaves(spec))
    symbols = dict.fromkeys((*inputs.symbols(), *(name for name in named if isinstance(name, str))))
    return Inputs(inputs.entries, {name: inputs.sizes.get(name, SIZES.get(name, DEFAULT_SIZE)) for name in symbols})


def inputs_at(
    inputs: Inputs, sizes: Mapping[str, int] | None = None, seed: int = 0, largest: int | None = None,
    shadows: Shadows | None = None,
) -> InputValues:  # fmt: skip
    """Values for every input, as real CPU tensors, with the given sizes in place of the known ones.

    Deterministic: the same inputs at the same sizes with the same seed give equal tensors. Floats of more than
    `largest` elements are meta tensors instead.  shadows: keeps the values of one that is large, until they are asked
    for, in place of the tensor: to draw an image may take as long as to record a model.
    """
    maker = _Maker({**complete_sizes(inputs).sizes, **(sizes or {})}, seed, largest=largest)
    if shadows is not None:
        maker.defer(inputs, shadows)
    # These values are real under any mode that is active.
    with torch._C.DisableTorchFunction():
        return {name: maker.make(spec) for name, spec in inputs.entries.items()}


def extremes_at(inputs: Inputs) -> InputValues:
    """Values at the known sizes with every integer as large as possible; {} if no integers are drawn."""
    drawn = (leaf for spec in inputs.entries.values() for leaf in iterate_leaves(spec))
    if not any(leaf.fill == "below" or not leaf.dtype.startswith(("f", "b", "c")) for leaf in drawn):
        return {}
    maker = _Maker(complete_sizes(inputs).sizes, 0, {"below": _fill_largest}, LARGEST_FILLED)
    with torch._C.DisableTorchFunction():
        return {name: maker.make(spec) for name, spec in inputs.entries.items()}


class _Maker:
    def __init__(
        self, sizes: Mapping[str, int], seed: int, fills: Mapping[str, Fill] | None = None, largest: int | None = None
    ) -> None:
        self.sizes, self.largest, self.fills = sizes, largest, {**_FILL_FUNCTIONS, **(fills or {})}
        self.generator = torch.Generator(device="cpu").manual_seed(seed)
        self.shadows: Shadows | None = None
        self.deferred: Spec | None = None

    def defer(self, inputs: Inputs, shadows: Shadows) -> None:
        """Draw the last input only when its values are asked for, if it is a tensor: nothing is drawn after it."""
        last = list(inputs.entries.values())[-1:]
        leaves = [leaf for spec in inputs.entries.values() for leaf in iterate_leaves(spec)]
        if last and isinstance(last[0], TensorSpec) and sum(leaf is last[0] for leaf in leaves) == 1:
            self.shadows, self.deferred = shadows, last[0]

    def make(self, spec: Spec) -> Any:
        match spec:
            case TensorSpec():
                return self.tensor(spec)
            case SequenceSpec(items, is_list, build):
                values = [self.make(item) for item in items]
                return build(values) if build else (values if is_list else tuple(values))
            case MapSpec(pairs, build):
                named = {key: self.make(item) for key, item in pairs}
                return build(named) if build else named
            case ConstantSpec(value):
                return value

    def tensor(self, spec: TensorSpec) -> torch.Tensor:
        shape = tuple(self.size(dim) for dim in spec.dims)
        dtype = getattr(torch, LONG.get(spec.dtype, spec.dtype))
        if self.largest is not None and dtype.is_floating_point and math.prod(shape) > self.largest:
            return torch.empty(shape, dtype=dtype, device="meta")
        argument = self.size(spec.argument) if isinstance(spec.argument, str) else spec.argument
        fill = spec.fill or _choose_usual_fill(dtype)
        if argument is None:
            argument = 0.5 if fill == "bernoulli" else DEFAULT_BELOW
        draw = partial(self.fills[fill], shape, dtype, argument, self.generator)
        large = self.shadows is not None and dtype.is_floating_point and math.prod(shape) > self.shadows.limit
        if self.shadows is None or not large or spec is not self.deferred:
            return draw()
        return self.shadows.put_later(torch.empty(shape, dtype=dtype, device="meta"), partial(_draw_plainly, draw))

    def size(self, dim: Dim) -> int:
        return dim if isinstance(dim, int) else self.sizes.get(dim, SIZES.get(dim, DEFAULT_SIZE))


def _draw_plainly(draw: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        return draw()


def _choose_usual_fill(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "ones"
    return "normal" if dtype.is_floating_point or dtype.is_complex else "below"


def _fill_normal(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _fill_below(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, max(1, int(argument)), shape, generator=generator).to(dtype)


def _fill_largest(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.full(shape, max(0, int(argument) - 1)).to(dtype)


def _fill_constant(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.full(shape, argument, dtype=dtype)


def _fill_uniform(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator).to(dtype)


def _fill_bernoulli(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return (torch.rand(shape, generator=generator) < argument).to(dtype)


def _fill_arange(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.arange(shape[-1] if shape else 1).to(dtype).expand(shape).clone()


def _fill_causal(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    past = torch.ones(shape, dtype=torch.bool)
    # A single row is that of the last position, which sees all of them.
    past = past.tril() if len(shape) > 1 else past
    if dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype).masked_fill(~past, float("-inf"))
    return past.to(dtype)


def _fill_upper(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    ahead = torch.ones(shape, dtype=torch.bool)
    return (ahead.triu(1) if len(shape) > 1 else ~ahead).to(dtype)


def _fill_lengths(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    count = shape[-1] if shape else 1
    falling = torch.linspace(float(argument), max(1.0, float(argument) / 2), count).floor()
    return falling.to(dtype).expand(shape).clone()


#: One row for each word of `spec.FILLS`, and the usual values of floats.
_FILL_FUNCTIONS: dict[str, Fill] = {
    "normal": _fill_normal,
    "below": _fill_below,
    "zeros": lambda shape, dtype, argument, generator: torch.zeros(shape, dtype=dtype),
    "ones": lambda shape, dtype, argument, generator: torch.ones(shape, dtype=dtype),
    "full": _fill_constant,
    "uniform": _fill_uniform,
    "bernoulli": _fill_bernoulli,
    "arange": _fill_arange,
    "causal": _fill_causal,
    "upper": _fill_upper,
    "lengths": _fill_lengths,
}


# Leaving the active torch function modes, and handing in real values.


@contextmanager
def outside_modes() -> Iterator[None]:
    """Run as if no torch function mode were active (the tracer brings its own)."""
    depth = torch._C._len_torch_function_stack()
    modes = [overrides._pop_mode() for _ in range(depth)]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for mode in reversed(modes):
            overrides._push_mode(mode)  # type: ignore[no-untyped-call]


def _put_on_meta(held: nn.Parameter | None) -> nn.Parameter | None:
    return None if held is None else nn.Parameter(held.data.to("meta"), held.requires_grad)


def on_meta(value: Any, shadows: Shadows) -> Any:
    """Nested values with a meta tensor in place of every real one; small ones keep their values in `shadows`. Modules
    are changed themselves."""

    def change(item: Any) -> Any:
        if isinstance(item, nn.Module):
            for part in item.modules():
                part._buffers.update({name: change(held) for name, held in part._buffers.items()})
                part._parameters.update({name: _put_on_meta(held) for name, held in part._parameters.items()})
            return item
        if not isinstance(item, torch.Tensor) or item.is_meta:
            return item
        # The values of big images decide nothing, and computing with them takes longer than all else.
        return shadows.twin(item, known=not item.is_floating_point() or item.numel() <= shadows.limit)

    with torch._C.DisableTorchFunction():
        return map_leaves(value, change)
