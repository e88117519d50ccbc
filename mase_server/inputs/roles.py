"""Which dimensions of observed inputs might vary, by their role: B batch, T tokens, H and W image, D depth, N nodes.

What is named here is a conjecture: the tracer proves it by tracing again at other sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from mase_server.inputs.observe import Real, its_own_value, observe
from mase_server.inputs.spec import ConstantSpec, Dim, Inputs, MapSpec, SequenceSpec, Spec, TensorSpec

Layout = tuple[str, ...]

#: Names of a role, in the order in which different sizes of it appear. A batch or node count has one size.
NAMES = {"B": ("B",), "N": ("N",), "T": ("T", "S", "U"), "H": ("H",), "W": ("W",), "D": ("D",), "E": ("E",)}

#: Roles of an input's dimensions, by their number; "" stays a number.
FLOATS: dict[int, Layout] = {
    1: ("B",), 2: ("B", ""), 3: ("B", "T", ""), 4: ("B", "", "H", "W"), 5: ("B", "", "D", "H", "W"),
}  # fmt: skip
INTEGERS: dict[int, Layout] = {1: ("B",), 2: ("B", "T"), 3: ("B", "T", "")}
TIME_FIRST: Layout = ("T", "B", "")
CHANNELS_FIRST: Layout = ("B", "", "T")

#: Masks, positions and lengths take names that other inputs gave: for each dimension those to try.
_TOKENS = ("T", "S", "U")
_FOLLOWERS: dict[int, tuple[Layout, ...]] = {
    1: ((*_TOKENS, "N", "B"),),
    2: (("B", "N", *_TOKENS), _TOKENS),
    3: (("B",), (*_TOKENS, "H"), (*_TOKENS, "W")),
    4: (("B",), (), (*_TOKENS, "H"), (*_TOKENS, "W")),
}
_FOLLOWING_FILLS = ("causal", "upper", "arange", "lengths")
_EDGES = re.compile(r"edge_?(index|list)|edges")
_ADJACENCY = re.compile(r"adj|laplacian|^edge")


def describe(values: Mapping[str, Any], model: nn.Module | None = None, real: Real = its_own_value) -> Inputs:
    """Inputs with symbols, from example values bound by parameter name.

    model: tells the order of dimensions where its modules do (`batch_first=False`).  real: the values of a tensor,
    None where they are unknown.
    """
    with torch._C.DisableTorchFunction():
        return name_dimensions({name: observe(value, name, real) for name, value in values.items()}, model)


def name_dimensions(specs: Mapping[str, Spec], model: nn.Module | None = None) -> Inputs:
    """The same inputs with symbols in place of the sizes that may vary."""
    found = [pair for name, spec in specs.items() for pair in _named_leaves(name, spec)]
    namer = _Namer(_sequence_layout(model), any(_EDGES.search(name) for name, _ in found))
    # Followers take names that the others gave, so they come second, wherever they stand.
    decided: dict[int, TensorSpec] = {}
    for following in (False, True):
        for index, (name, leaf) in enumerate(found):
            if _follows(name, leaf) is following:
                decided[index] = namer.follow(leaf) if following else namer.lead(name, leaf)
    in_order = iter([decided[index] for index in range(len(found))])
    return Inputs({name: _rebuild(spec, in_order) for name, spec in specs.items()}, namer.sizes)


def _sequence_layout(model: nn.Module | None) -> Layout:
    """The order of a 3-D float input's dimensions, as the first module with an opinion has it."""
    for module in model.modules() if model is not None else ():
        match module:
            case nn.RNNBase() | nn.MultiheadAttention():
                return FLOATS[3] if module.batch_first else TIME_FIRST
            case nn.Conv1d() | nn.ConvTranspose1d():
                return CHANNELS_FIRST
            case nn.Conv2d() | nn.Conv3d():
                return FLOATS[3]
    return FLOATS[3]


def _named_leaves(name: str, spec: Spec) -> Iterator[tuple[str, TensorSpec]]:
    match spec:
        case TensorSpec():
            yield name, spec
        case SequenceSpec(items):
            for item in items:
                yield from _named_leaves(name, item)
        case MapSpec(pairs):
            for key, item in pairs:
                yield from _named_leaves(key, item)


def _rebuild(spec: Spec, in_order: Iterator[TensorSpec]) -> Spec:
    match spec:
        case TensorSpec():
            return next(in_order)
        case SequenceSpec(items):
            return replace(spec, items=tuple(_rebuild(item, in_order) for item in items))
        case MapSpec(pairs):
            return replace(spec, items=tuple((key, _rebuild(item, in_order)) for key, item in pairs))
        case ConstantSpec():
            return spec


def _follows(name: str, leaf: TensorSpec) -> bool:
    return leaf.dtype == "bool" or leaf.fill in _FOLLOWING_FILLS or "mask" in name.lower()


class _Namer:
    """Gives symbols to sizes; one symbol has one size."""

    def __init__(self, sequence: Layout, graph: bool) -> None:
        self.sequence, self.graph = sequence, graph
        self.sizes: dict[str, int] = {}

    def lead(self, name: str, leaf: TensorSpec) -> TensorSpec:
        """Name the dimensions of a tensor by their own roles."""
        if self.graph and _EDGES.search(name) and len(leaf.dims) == 2:
            return replace(leaf, dims=self._name(leaf.dims, ("", "E")), argument=self._nodes(leaf))
        if self.graph and _ADJACENCY.search(name) and len(set(leaf.dims)) == 1:
            return replace(leaf, dims=self._name(leaf.dims, ("N",) * len(leaf.dims)))
        if leaf.dtype.startswith(("f", "bf", "c")):
            layout = FLOATS.get(len(leaf.dims), ("B",))
            layout = self.sequence if layout == FLOATS[3] else layout
        else:
            layout = INTEGERS.get(len(leaf.dims), ("B",))
            layout = TIME_FIRST[:2] if len(layout) == 2 and self.sequence == TIME_FIRST else layout
        return replace(leaf, dims=self._name(leaf.dims, layout[: len(leaf.dims)]))

    def _nodes(self, leaf: TensorSpec) -> Any:
        return "N" if leaf.fill == "below" and "N" in self.sizes else leaf.argument

    def _name(self, dims: tuple[Dim, ...], layout: Layout) -> tuple[Dim, ...]:
        padded = layout + ("",) * (len(dims) - len(layout))
        return tuple(self._symbol(role, int(dim)) for role, dim in zip(padded, dims, strict=True))

    def _symbol(self, role: str, size: int) -> Dim:
        if role == "" or size == 0 or (size == 1 and role != "B"):
            return size
        for symbol in NAMES["N" if self.graph and role == "B" else role]:
            if self.sizes.setdefault(symbol, size) == size:
                return symbol
        return size

    def follow(self, leaf: TensorSpec) -> TensorSpec:
        """Name the dimensions of a mask, position or length tensor as the others have named the same sizes."""
        choices = _FOLLOWERS.get(len(leaf.dims), ())
        if leaf.fill in ("causal", "upper"):
            choices = (*choices[:-2], (*_TOKENS, "N"), (*_TOKENS, "N"))
        if leaf.fill == "lengths":
            choices = (("B",),)
        dims = tuple(self._known(symbols, int(dim)) for symbols, dim in zip(choices, leaf.dims, strict=False))
        argument = leaf.argument
        if leaf.fill == "lengths" and isinstance(argument, int):
            argument = self._known(_TOKENS, argument)
        return replace(leaf, dims=dims + leaf.dims[len(dims) :], argument=argument)

    def _known(self, symbols: Layout, size: int) -> Dim:
        matching = (symbol for symbol in symbols if self.sizes.get(symbol) == size)
        return next(matching, size)
