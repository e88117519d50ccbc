"""Which dimensions of observed inputs may vary, by their role: B batch, T tokens, H and W image, D depth, N nodes.

Roles are conjectures: the tracer proves them by tracing again at other sizes. This module also makes specifications
from concrete example values.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from mase_server.dtypes import short
from mase_server.tracing.inputs.spec import ConstantSpec, Dim, Inputs, MapSpec, Number, SequenceSpec, Spec, TensorSpec

# From concrete example values to input specifications: structure, sizes, and how the values seem to be made.

Real = Callable[[torch.Tensor], torch.Tensor | None]
Fill = tuple[str, Number | None]

#: Elements that are looked at first, before all of them are.
SAMPLED = 4096
#: Values of larger tensors are not looked at.
MAX_ELEMENTS = 1 << 20
#: Shorter rows 0, 1, 2, ... are more likely labels than positions.
MIN_ARANGE = 4


def its_own_value(tensor: torch.Tensor) -> torch.Tensor | None:
    """The `Real` of tensors that hold their values: the tensor itself, None on meta."""
    return None if tensor.is_meta else tensor


def observe_value(value: Any, name: str = "", real: Real = its_own_value) -> Spec:
    """The value as a tree whose sizes are all numbers. name: of the parameter or key that holds it."""
    match value:
        case torch.Tensor():
            return _observe_tensor(value, name, real)
        case PackedSequence():
            return _observe_packed(value, real)
        case list() | tuple() if not isinstance(value, torch.Size):
            items = tuple(observe_value(item, name, real) for item in value)
            return SequenceSpec(items, isinstance(value, list), getattr(value, "_make", None))
        case Mapping():
            return _observe_mapping(value, real)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _observe_fields(value, real)
    return ConstantSpec(value)


def _observe_tensor(value: torch.Tensor, name: str, real: Real) -> TensorSpec:
    known = real(value) if value.numel() <= MAX_ELEMENTS else None
    fill, argument = ("", None) if known is None or known.numel() == 0 else _guess_fill(known, name)
    return TensorSpec(short(str(value.dtype)), tuple(value.shape), fill, argument)


def _observe_mapping(value: Mapping[Any, Any], real: Real) -> Spec:
    if not all(isinstance(key, str) for key in value):
        return ConstantSpec(value)
    kind: Callable[[Mapping[str, Any]], Any] = type(value)
    build = None if kind is dict else kind
    return MapSpec(tuple((key, observe_value(item, key, real)) for key, item in value.items()), build)


def _observe_fields(value: Any, real: Real) -> MapSpec:
    kind = type(value)
    names = [field.name for field in dataclasses.fields(value) if field.init]
    pairs = tuple((name, observe_value(getattr(value, name), name, real)) for name in names)
    return MapSpec(pairs, lambda made: kind(**made))


def _observe_packed(value: PackedSequence, real: Real) -> Spec:
    sizes = real(value.batch_sizes)
    if sizes is None:
        return ConstantSpec(value)
    batch, length = int(sizes[0]), len(sizes)
    padded = TensorSpec(short(str(value.data.dtype)), (batch, length, *value.data.shape[1:]))
    return SequenceSpec((padded, TensorSpec("i64", (batch,), "lengths", length)), build=_pack_observed)


def _pack_observed(made: list[Any]) -> PackedSequence:
    return torch.nn.utils.rnn.pack_padded_sequence(made[0], made[1], batch_first=True)


def _guess_fill(value: torch.Tensor, name: str) -> Fill:
    if value.dtype.is_complex:
        return "", None
    if value.dtype is torch.bool:
        return (
            _guess_causal_fill(value)
            or _guess_constant_fill(value)
            or ("bernoulli", round(float(value.float().mean()), 3))
        )
    return _guess_float_fill(value) if value.dtype.is_floating_point else _guess_integer_fill(value, name)


def _guess_float_fill(value: torch.Tensor) -> Fill:
    if structure := _guess_causal_fill(value) or _guess_constant_fill(value):
        return structure
    some = value.reshape(-1)[:SAMPLED]
    if not bool(((some >= 0) & (some <= 1)).all()):
        return "", None
    low, high = float(value.min()), float(value.max())
    return ("uniform", None) if value.numel() > 1 and low >= 0 and high <= 1 else ("", None)


def _guess_integer_fill(value: torch.Tensor, name: str) -> Fill:
    low, high = int(value.min()), int(value.max())
    if "len" in name.lower() and low >= 1 and value.dim() == 1:
        return "lengths", high
    if "mask" in name.lower() and 0 <= low <= high <= 1:
        return (
            _guess_causal_fill(value)
            or _guess_constant_fill(value)
            or ("bernoulli", round(float(value.float().mean()), 3))
        )
    if _is_arange(value, name):
        return "arange", None
    return _guess_constant_fill(value) or ("below", max(1, high + 1))


def _is_arange(value: torch.Tensor, name: str) -> bool:
    if value.dim() == 0 or (value.shape[-1] < MIN_ARANGE and "pos" not in name.lower()):
        return False
    return torch.equal(value, torch.arange(value.shape[-1], dtype=value.dtype).expand(value.shape))


def _guess_constant_fill(value: torch.Tensor) -> Fill | None:
    """A constant tensor's fill; None for a single element, which is no evidence."""
    first = value.reshape(-1)[0].item()
    if value.numel() == 1 or value.reshape(-1)[-1].item() != first or not bool((value == first).all()):
        return None
    if first in (0, 1):
        return "ones" if first else "zeros", None
    return "full", first


def _guess_causal_fill(value: torch.Tensor) -> Fill | None:
    """A causal mask in one of its usual forms."""
    if value.dim() < 2 or value.shape[-1] < 2 or value.shape[-1] != value.shape[-2]:
        return None
    corners = value[..., [0, -1], [-1, 0]]
    if value.dtype.is_floating_point and not bool(torch.isinf(corners).any()):
        return None
    past = torch.ones(value.shape, dtype=torch.bool).tril()
    seen = ~torch.isinf(value) if value.dtype.is_floating_point else value.bool()
    if torch.equal(seen, past):
        return "causal", None
    return ("upper", None) if torch.equal(seen, ~past) else None


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

#: Masks, positions and lengths take the names of other inputs: for each dimension those to try.
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


def describe_inputs(values: Mapping[str, Any], model: nn.Module | None = None, real: Real = its_own_value) -> Inputs:
    """Inputs with symbols, from example values bound by parameter name.

    model: gives the order of dimensions if its modules define one (`batch_first=False`).  real: the values of a
    tensor, None if they are unknown.
    """
    with torch._C.DisableTorchFunction():
        return name_dimensions({name: observe_value(value, name, real) for name, value in values.items()}, model)


def name_dimensions(specs: Mapping[str, Spec], model: nn.Module | None = None) -> Inputs:
    """The same inputs with symbols in place of the sizes that may vary."""
    found = [pair for name, spec in specs.items() for pair in _named_leaves(name, spec)]
    namer = _Namer(_sequence_layout(model), any(_EDGES.search(name) for name, _ in found))
    # Followers take the names that the others got, so they come second, whatever their position.
    decided: dict[int, TensorSpec] = {}
    for following in (False, True):
        for index, (name, leaf) in enumerate(found):
            if _is_following(name, leaf) is following:
                decided[index] = namer.follow(leaf) if following else namer.lead(name, leaf)
    in_order = iter([decided[index] for index in range(len(found))])
    return Inputs({name: _replace_leaves(spec, in_order) for name, spec in specs.items()}, namer.sizes)


def _sequence_layout(model: nn.Module | None) -> Layout:
    """The order of a 3-D float input's dimensions, from the first module that defines one."""
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


def _replace_leaves(spec: Spec, in_order: Iterator[TensorSpec]) -> Spec:
    match spec:
        case TensorSpec():
            return next(in_order)
        case SequenceSpec(items):
            return replace(spec, items=tuple(_replace_leaves(item, in_order) for item in items))
        case MapSpec(pairs):
            return replace(spec, items=tuple((key, _replace_leaves(item, in_order)) for key, item in pairs))
        case ConstantSpec():
            return spec


def _is_following(name: str, leaf: TensorSpec) -> bool:
    return leaf.dtype == "bool" or leaf.fill in _FOLLOWING_FILLS or "mask" in name.lower()


class _Namer:
    """Gives symbols to sizes; one symbol has one size."""

    def __init__(self, sequence: Layout, graph: bool) -> None:
        self.sequence, self.graph = sequence, graph
        self.sizes: dict[str, int] = {}

    def lead(self, name: str, leaf: TensorSpec) -> TensorSpec:
        """Name the dimensions of a tensor by their own roles."""
        if self.graph and _EDGES.search(name) and len(leaf.dims) == 2:
            return replace(leaf, dims=self._name_dims(leaf.dims, ("", "E")), argument=self._name_node_bound(leaf))
        if self.graph and _ADJACENCY.search(name) and len(set(leaf.dims)) == 1:
            return replace(leaf, dims=self._name_dims(leaf.dims, ("N",) * len(leaf.dims)))
        if leaf.dtype.startswith(("f", "bf", "c")):
            layout = FLOATS.get(len(leaf.dims), ("B",))
            layout = self.sequence if layout == FLOATS[3] else layout
        else:
            layout = INTEGERS.get(len(leaf.dims), ("B",))
            layout = TIME_FIRST[:2] if len(layout) == 2 and self.sequence == TIME_FIRST else layout
        return replace(leaf, dims=self._name_dims(leaf.dims, layout[: len(leaf.dims)]))

    def _name_node_bound(self, leaf: TensorSpec) -> Any:
        return "N" if leaf.fill == "below" and "N" in self.sizes else leaf.argument

    def _name_dims(self, dims: tuple[Dim, ...], layout: Layout) -> tuple[Dim, ...]:
        padded = layout + ("",) * (len(dims) - len(layout))
        return tuple(self._choose_symbol(role, int(dim)) for role, dim in zip(padded, dims, strict=True))

    def _choose_symbol(self, role: str, size: int) -> Dim:
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
        dims = tuple(
            self._find_known_symbol(symbols, int(dim)) for symbols, dim in zip(choices, leaf.dims, strict=False)
        )
        argument = leaf.argument
        if leaf.fill == "lengths" and isinstance(argument, int):
            argument = self._find_known_symbol(_TOKENS, argument)
        return replace(leaf, dims=dims + leaf.dims[len(dims) :], argument=argument)

    def _find_known_symbol(self, symbols: Layout, size: int) -> Dim:
        matching = (symbol for symbol in symbols if self.sizes.get(symbol) == size)
        return next(matching, size)
