"""Real tensors from input specifications, at any size of their symbols, and the same values every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from mase_server.dtypes import LONG
from mase_server.inputs.spec import ConstantSpec, Dim, Inputs, MapSpec, Number, SequenceSpec, Spec, TensorSpec, leaves

#: Sizes of symbols that say none.
SIZES = {"B": 2, "T": 16, "S": 12, "H": 32, "W": 32, "D": 16, "N": 8, "E": 20}
DEFAULT_SIZE = 8
#: Whole numbers whose range nobody said.
DEFAULT_BELOW = 2
#: Larger tensors of floats are made without values where only shapes are tried: filling one can take seconds.
LARGEST_FILLED = 1 << 20

Shape = tuple[int, ...]
Fill = Callable[[Shape, torch.dtype, Number, torch.Generator], torch.Tensor]


def complete(inputs: Inputs) -> Inputs:
    """The same inputs with a size for every symbol, and for nothing else."""
    named = (leaf.argument for spec in inputs.entries.values() for leaf in leaves(spec))
    symbols = dict.fromkeys((*inputs.symbols(), *(name for name in named if isinstance(name, str))))
    return Inputs(inputs.entries, {name: inputs.sizes.get(name, SIZES.get(name, DEFAULT_SIZE)) for name in symbols})


def inputs_at(
    inputs: Inputs, sizes: Mapping[str, int] | None = None, seed: int = 0, largest: int | None = None
) -> dict[str, Any]:
    """Values for every input, as real CPU tensors, with the given sizes in place of the known ones.

    Deterministic: the same inputs at the same sizes with the same seed give equal tensors. Floats of more than
    `largest` elements are meta tensors instead.
    """
    maker = _Maker({**complete(inputs).sizes, **(sizes or {})}, seed, largest=largest)
    # Whatever mode is active, these values are real.
    with torch._C.DisableTorchFunction():
        return {name: maker.make(spec) for name, spec in inputs.entries.items()}


def extremes_at(inputs: Inputs) -> dict[str, Any]:
    """Values at the known sizes with every whole number as large as it may be; nothing where none is drawn."""
    drawn = (leaf for spec in inputs.entries.values() for leaf in leaves(spec))
    if not any(leaf.fill == "below" or not leaf.dtype.startswith(("f", "b", "c")) for leaf in drawn):
        return {}
    maker = _Maker(complete(inputs).sizes, 0, {"below": _largest}, LARGEST_FILLED)
    with torch._C.DisableTorchFunction():
        return {name: maker.make(spec) for name, spec in inputs.entries.items()}


class _Maker:
    def __init__(
        self, sizes: Mapping[str, int], seed: int, fills: Mapping[str, Fill] | None = None, largest: int | None = None
    ) -> None:
        self.sizes, self.largest, self.fills = sizes, largest, {**_FILLS, **(fills or {})}
        self.generator = torch.Generator(device="cpu").manual_seed(seed)

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
        fill = spec.fill or _usual(dtype)
        if argument is None:
            argument = 0.5 if fill == "bernoulli" else DEFAULT_BELOW
        return self.fills[fill](shape, dtype, argument, self.generator)

    def size(self, dim: Dim) -> int:
        return dim if isinstance(dim, int) else self.sizes.get(dim, SIZES.get(dim, DEFAULT_SIZE))


def _usual(dtype: torch.dtype) -> str:
    if dtype is torch.bool:
        return "ones"
    return "normal" if dtype.is_floating_point or dtype.is_complex else "below"


def _normal(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _below(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, max(1, int(argument)), shape, generator=generator).to(dtype)


def _largest(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.full(shape, max(0, int(argument) - 1)).to(dtype)


def _full(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.full(shape, argument, dtype=dtype)


def _uniform(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator).to(dtype)


def _bernoulli(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return (torch.rand(shape, generator=generator) < argument).to(dtype)


def _arange(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    return torch.arange(shape[-1] if shape else 1).to(dtype).expand(shape).clone()


def _causal(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    past = torch.ones(shape, dtype=torch.bool)
    # A single row is that of the last position, which sees all of them.
    past = past.tril() if len(shape) > 1 else past
    if dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype).masked_fill(~past, float("-inf"))
    return past.to(dtype)


def _upper(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    ahead = torch.ones(shape, dtype=torch.bool)
    return (ahead.triu(1) if len(shape) > 1 else ~ahead).to(dtype)


def _lengths(shape: Shape, dtype: torch.dtype, argument: Number, generator: torch.Generator) -> torch.Tensor:
    count = shape[-1] if shape else 1
    falling = torch.linspace(float(argument), max(1.0, float(argument) / 2), count).floor()
    return falling.to(dtype).expand(shape).clone()


#: One row for each word of `spec.FILLS`, and the usual values of floats.
_FILLS: dict[str, Fill] = {
    "normal": _normal,
    "below": _below,
    "zeros": lambda shape, dtype, argument, generator: torch.zeros(shape, dtype=dtype),
    "ones": lambda shape, dtype, argument, generator: torch.ones(shape, dtype=dtype),
    "full": _full,
    "uniform": _uniform,
    "bernoulli": _bernoulli,
    "arange": _arange,
    "causal": _causal,
    "upper": _upper,
    "lengths": _lengths,
}
