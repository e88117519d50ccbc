"""From concrete example values to input specifications: structure, sizes, and how the values seem to be made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from mase_server.dtypes import short
from mase_server.inputs.spec import ConstantSpec, MapSpec, Number, SequenceSpec, Spec, TensorSpec

Real = Callable[[torch.Tensor], torch.Tensor | None]
Fill = tuple[str, Number | None]

#: Elements that are looked at before all are.
SAMPLED = 4096
#: Values of larger tensors are not looked at.
MAX_ELEMENTS = 1 << 20
#: Shorter rows 0, 1, 2, ... are more likely labels than positions.
MIN_ARANGE = 4


def its_own_value(tensor: torch.Tensor) -> torch.Tensor | None:
    """The `Real` of tensors that hold their values: the tensor itself, None on meta."""
    return None if tensor.is_meta else tensor


def observe(value: Any, name: str = "", real: Real = its_own_value) -> Spec:
    """The value as a tree whose sizes are all numbers. name: of the parameter or key that holds it."""
    match value:
        case torch.Tensor():
            return _tensor(value, name, real)
        case PackedSequence():
            return _packed(value, real)
        case list() | tuple() if not isinstance(value, torch.Size):
            items = tuple(observe(item, name, real) for item in value)
            return SequenceSpec(items, isinstance(value, list), getattr(value, "_make", None))
        case Mapping():
            return _map(value, real)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _fields(value, real)
    return ConstantSpec(value)


def _tensor(value: torch.Tensor, name: str, real: Real) -> TensorSpec:
    known = real(value) if value.numel() <= MAX_ELEMENTS else None
    fill, argument = ("", None) if known is None or known.numel() == 0 else _fill(known, name)
    return TensorSpec(short(str(value.dtype)), tuple(value.shape), fill, argument)


def _map(value: Mapping[Any, Any], real: Real) -> Spec:
    if not all(isinstance(key, str) for key in value):
        return ConstantSpec(value)
    kind: Callable[[dict[str, Any]], Any] = type(value)
    build = None if kind is dict else kind
    return MapSpec(tuple((key, observe(item, key, real)) for key, item in value.items()), build)


def _fields(value: Any, real: Real) -> MapSpec:
    kind = type(value)
    names = [field.name for field in dataclasses.fields(value) if field.init]
    pairs = tuple((name, observe(getattr(value, name), name, real)) for name in names)
    return MapSpec(pairs, lambda made: kind(**made))


def _packed(value: PackedSequence, real: Real) -> Spec:
    sizes = real(value.batch_sizes)
    if sizes is None:
        return ConstantSpec(value)
    batch, length = int(sizes[0]), len(sizes)
    padded = TensorSpec(short(str(value.data.dtype)), (batch, length, *value.data.shape[1:]))
    return SequenceSpec((padded, TensorSpec("i64", (batch,), "lengths", length)), build=_pack)


def _pack(made: list[Any]) -> PackedSequence:
    return torch.nn.utils.rnn.pack_padded_sequence(made[0], made[1], batch_first=True)


def _fill(value: torch.Tensor, name: str) -> Fill:
    if value.dtype.is_complex:
        return "", None
    if value.dtype is torch.bool:
        return _square(value) or _same(value) or ("bernoulli", round(float(value.float().mean()), 3))
    return _float(value) if value.dtype.is_floating_point else _integer(value, name)


def _float(value: torch.Tensor) -> Fill:
    if structure := _square(value) or _same(value):
        return structure
    some = value.reshape(-1)[:SAMPLED]
    if not bool(((some >= 0) & (some <= 1)).all()):
        return "", None
    low, high = float(value.min()), float(value.max())
    return ("uniform", None) if value.numel() > 1 and low >= 0 and high <= 1 else ("", None)


def _integer(value: torch.Tensor, name: str) -> Fill:
    low, high = int(value.min()), int(value.max())
    if "len" in name.lower() and low >= 1 and value.dim() == 1:
        return "lengths", high
    if "mask" in name.lower() and 0 <= low <= high <= 1:
        return _square(value) or _same(value) or ("bernoulli", round(float(value.float().mean()), 3))
    if _is_arange(value, name):
        return "arange", None
    return _same(value) or ("below", max(1, high + 1))


def _is_arange(value: torch.Tensor, name: str) -> bool:
    if value.dim() == 0 or (value.shape[-1] < MIN_ARANGE and "pos" not in name.lower()):
        return False
    return torch.equal(value, torch.arange(value.shape[-1], dtype=value.dtype).expand(value.shape))


def _same(value: torch.Tensor) -> Fill | None:
    """A constant tensor; single elements say nothing."""
    first = value.reshape(-1)[0].item()
    if value.numel() == 1 or value.reshape(-1)[-1].item() != first or not bool((value == first).all()):
        return None
    if first in (0, 1):
        return "ones" if first else "zeros", None
    return "full", first


def _square(value: torch.Tensor) -> Fill | None:
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
