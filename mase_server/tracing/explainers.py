"""What is wrong with a torch call, said with the operands' own shapes: one explainer a family of callables.

An explainer looks only at the call (callable, argument shapes and types, leaf module), so the numbers in its sentence
are those of the operands, whatever the kernel's own error text says; it answers None where it finds nothing wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from mase_server.dtypes import short
from mase_server.ops.types import TensorType
from mase_server.tracing.complaints import Call, Complaint, Misfit, name_of

SHAPE, DTYPE = "shape-mismatch", "dtype-mismatch"

Explainer = Callable[[Call], Complaint | None]
_EXPLAINERS: dict[Any, list[Explainer]] = {}


def explain_call(call: Call) -> Complaint | None:
    """What is wrong with a call, None if nothing known is. Also right for calls that only meta tensors let pass."""
    keys = type(call.func).__mro__ if isinstance(call.func, nn.Module) else (call.func,)
    for explainer in (explainer for key in keys for explainer in _EXPLAINERS.get(key, ())):
        found = explainer(call)
        if found is not None:
            return found
    return None


def stricter_than_meta(call: Call) -> Complaint | None:
    """What eager refuses and meta kernels let pass: mixed types in a product, channels of a transposed convolution."""
    return _one_type(call) or (_transposed(call) if "conv_transpose" in name_of(call.func) else None)


def _callables(names: Iterable[str]) -> set[Callable[..., Any]]:
    """The functions, tensor methods and operators of these names."""
    homes = (torch, torch.Tensor, torch.nn.functional, torch.special, torch._C._nn)
    return {getattr(home, name) for home in homes for name in names if hasattr(home, name)}


def _explains(*names: str) -> Callable[[Explainer], Explainer]:
    """Register for the functions, tensor methods and operators of these names."""

    def register(explainer: Explainer) -> Explainer:
        for func in _callables(names):
            _EXPLAINERS.setdefault(func, []).append(explainer)
        return explainer

    return register


def _explains_layers(*kinds: type[nn.Module]) -> Callable[[Explainer], Explainer]:
    """Register for layers that check their input themselves, before any torch function sees it."""

    def register(explainer: Explainer) -> Explainer:
        for kind in kinds:
            _EXPLAINERS.setdefault(kind, []).append(explainer)
        return explainer

    return register


# Types

_CONVOLUTIONS = tuple(f"conv{n}d" for n in (1, 2, 3))
_TRANSPOSED = tuple(f"conv_transpose{n}d" for n in (1, 2, 3))
_MATMULS = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "baddbmm")


#: Callables for which `stricter_than_meta` may find something.
PRODUCTS = frozenset(_callables(("linear", *_TRANSPOSED, *_MATMULS)))


@_explains("linear", *_CONVOLUTIONS, *_TRANSPOSED, *_MATMULS)
def _one_type(call: Call) -> Complaint | None:
    """Products do not promote: both sides have one type."""
    operands = [(at, tensor) for at, tensor in call.tensors() if tensor.shape]
    if len(operands) < 2 or operands[0][1].dtype == operands[1][1].dtype:
        return None
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        return None
    (at, first), (other_at, second) = operands[:2]
    to = "float" if second.dtype == "float32" else f"to(torch.{second.dtype})"
    name = call.names.get(at, "it")
    advice = f"Convert it: `{name}.{to}()`." if to == "float" else f"Convert it: `{name}.{to}`."
    if call.module is not None:
        text = f"{call.layer} computes in {short(second.dtype)},\nbut {call.show(first, at)} is {short(first.dtype)}."
    else:
        other = call.show(second, other_at, "the second operand")
        text = (
            f"{name_of(call.func)} needs one type,\nbut {call.show(first, at, 'the first operand')} and {other} differ."
        )
    return Complaint(DTYPE, f"{text} {advice}")


@_explains("embedding", "embedding_bag")
def _embedding(call: Call) -> Complaint | None:
    indices = call.get(0, "input")
    if not isinstance(indices, TensorType) or indices.dtype in ("int64", "int32"):
        return None
    name = call.names.get(0, "it")
    text = f"{call.layer} looks up integers,\nbut {call.show(indices, 0)} is {short(indices.dtype)}."
    return Complaint(DTYPE, f"{text} Indices must be i64 or i32: `{name}.long()`.")


# Layers


@_explains("linear")
def _linear(call: Call) -> Complaint | None:
    x, weight = call.get(0, "input"), call.get(1, "weight")
    if not (_tensors(x, weight) and x.shape and len(weight.shape) == 2) or x.shape[-1] == weight.shape[1]:
        return None
    expected, came = weight.shape[1], x.shape[-1]
    text = f"{call.layer} expects {expected} features,\nbut the last dimension of {call.show(x, 0)} is {came}."
    if len(x.shape) == 1:
        return Complaint(SHAPE, f"{text} It has one dimension: was the batch flattened too? `flatten(1)` keeps it.")
    return Complaint(SHAPE, text, _misfit(call, "in_features", 0, expected, came))


@_explains(*_CONVOLUTIONS)
def _convolution(call: Call) -> Complaint | None:
    x, weight = call.get(0, "input"), call.get(1, "weight")
    if not _tensors(x, weight):
        return None
    groups = call.get(6, "groups", 1)
    return _channels(call, x, len(weight.shape) - 2, weight.shape[1] * groups)


@_explains(*_TRANSPOSED)
def _transposed(call: Call) -> Complaint | None:
    x, weight = call.get(0, "input"), call.get(1, "weight")
    return _channels(call, x, len(weight.shape) - 2, weight.shape[0]) if _tensors(x, weight) else None


def _channels(call: Call, x: TensorType, spatial: int, expected: int) -> Complaint | None:
    if len(x.shape) not in (spatial + 1, spatial + 2):
        layout = ("[N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]")[spatial - 1]
        text = f"{call.layer} expects {layout},\nbut {call.show(x, 0)} has {_count(len(x.shape), 'dimension')}."
        return Complaint(SHAPE, text)
    at = len(x.shape) - spatial - 1
    if x.shape[at] == expected:
        return None
    came = x.shape[at]
    text = f"{call.layer} expects {_count(expected, 'channel')},\nbut {call.show(x, 0)} has {came} (dimension {at})."
    fits = getattr(call.module, "groups", 1) == 1
    return Complaint(SHAPE, text, _misfit(call, "in_channels", 0, expected, came) if fits else None)


@_explains("layer_norm", "rms_norm")
def _trailing(call: Call) -> Complaint | None:
    x, shape = call.get(0, "input"), call.get(1, "normalized_shape")
    if not _tensors(x) or not isinstance(shape, list | tuple) or tuple(x.shape[-len(shape) :]) == tuple(shape):
        return None
    came = x.shape[-len(shape) :]
    text = f"{call.layer} normalises trailing dimensions {list(shape)},\nbut {call.show(x, 0)} ends in {list(came)}."
    misfit = _misfit(call, "normalized_shape", 0, tuple(shape), came) if len(came) == len(shape) else None
    return Complaint(SHAPE, text, misfit)


@_explains("batch_norm", "instance_norm")
def _batch_norm(call: Call) -> Complaint | None:
    x = call.get(0, "input")
    sizes = [tensor.shape[0] for at, tensor in call.tensors() if at != 0 and len(tensor.shape) == 1]
    if not _tensors(x) or len(x.shape) < 2 or not sizes or x.shape[1] == sizes[0]:
        return None
    text = f"{call.layer} expects {_count(sizes[0], 'channel')},\nbut {call.show(x, 0)} has {x.shape[1]} (dimension 1)."
    return Complaint(SHAPE, text, _misfit(call, "num_features", 0, sizes[0], x.shape[1]))


@_explains("group_norm")
def _group_norm(call: Call) -> Complaint | None:
    x, groups, weight = call.get(0, "input"), call.get(1, "num_groups"), call.get(2, "weight")
    if not _tensors(x) or len(x.shape) < 2:
        return None
    channels = x.shape[1]
    if _tensors(weight) and weight.shape[0] != channels:
        text = f"{call.layer} expects {_count(weight.shape[0], 'channel')},\nbut {call.show(x, 0)} has {channels}."
        fits = channels % groups == 0
        return Complaint(SHAPE, text, _misfit(call, "num_channels", 1, weight.shape[0], channels) if fits else None)
    if isinstance(groups, int) and channels % groups:
        return Complaint(
            SHAPE, f"{call.layer} cannot cut the {channels} channels of {call.show(x, 0)} in {groups} groups."
        )
    return None


@_explains_layers(*(kind for name, kind in vars(nn).items() if name.startswith("BatchNorm")))
def _batch_norm_layout(call: Call) -> Complaint | None:
    x = call.get(0, "input")
    layouts = {"1": ("[N, C] or [N, C, L]", (2, 3)), "2": ("[N, C, H, W]", (4,)), "3": ("[N, C, D, H, W]", (5,))}
    layout, ranks = layouts[type(call.func).__name__[len("BatchNorm")]]
    if not _tensors(x) or len(x.shape) in ranks:
        return None
    text = f"{call.layer} expects {layout},\nbut {call.show(x, 0)} has {_count(len(x.shape), 'dimension')}."
    return Complaint(SHAPE, text)


@_explains_layers(nn.RNNBase)
def _recurrent(call: Call) -> Complaint | None:
    x, expected = call.get(0, "input"), getattr(call.func, "input_size", None)
    if not _tensors(x) or not x.shape or not isinstance(expected, int) or x.shape[-1] == expected:
        return None
    came = x.shape[-1]
    text = f"{call.layer} expects {expected} features,\nbut the last dimension of {call.show(x, 0)} is {came}."
    return Complaint(SHAPE, text, _misfit(call, "input_size", 0, expected, came))


@_explains("multi_head_attention_forward")
def _attention(call: Call) -> Complaint | None:
    query, expected = call.get(0, "query"), call.get(3, "embed_dim_to_check")
    if not _tensors(query) or not query.shape or query.shape[-1] == expected:
        return None
    name = call.layer.partition("(")[0]
    text = f"{name}(embed_dim={expected}) does not fit the last dimension"
    return Complaint(SHAPE, f"{text} of {call.show(query, 0, 'the query')}, which is {query.shape[-1]}.")


# Products, joins, element-wise


@_explains("matmul", "__matmul__", "mm", "bmm")
def _product(call: Call) -> Complaint | None:
    a, b = call.get(0, "input"), call.get(1, "mat2", call.kwargs.get("other"))
    if not _tensors(a, b) or not a.shape or not b.shape:
        return None
    left, right = call.show(a, 0, "the left side"), call.show(b, 1, "the right side")
    inner, row = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if inner != row:
        where = f"the last dimension of {left} is {inner},\nand dimension {-min(2, len(b.shape))} of {right} is {row}"
        hint = " Transposed, the right side would fit." if len(b.shape) > 1 and inner == b.shape[-1] else ""
        return Complaint(SHAPE, f"{name_of(call.func)}: {where}; they must be equal.{hint}")
    clash = _clash([a.shape[:-2], b.shape[:-2]])
    if clash is None:
        return None
    return Complaint(SHAPE, f"{name_of(call.func)}: the batch dimensions of {left} and {right} differ:\n{clash}.")


@_explains("cat", "concat", "concatenate")
def _cat(call: Call) -> Complaint | None:
    parts = _parts(call)
    dim = call.get(1, "dim", call.kwargs.get("axis", 0))
    # An empty one-dimensional tensor joins anything.
    parts = [(at, part) for at, part in parts if part.shape != (0,)]
    if len(parts) < 2 or not isinstance(dim, int):
        return None
    (first_at, first), *others = parts
    for at, other in others:
        what = _unlike(first.shape, other.shape, dim)
        if what is not None:
            a, b = call.show(first, first_at, "part 0"), call.show(other, at, f"part {at[1]}")
            return Complaint(SHAPE, f"cat along dimension {dim}: {a} and {b} do not fit:\n{what}.")
    return None


def _unlike(first: tuple[int, ...], other: tuple[int, ...], dim: int) -> str | None:
    """Why two shapes cannot be joined along `dim`; None if they can."""
    if len(first) != len(other):
        return "they have different numbers of dimensions"
    for axis, (a, b) in enumerate(zip(first, other, strict=True)):
        if axis != dim % len(first) and a != b:
            return f"dimension {axis} is {a} in one and {b} in the other"
    return None


@_explains("stack", "hstack", "vstack", "dstack")
def _stack(call: Call) -> Complaint | None:
    parts = _parts(call)
    for at, other in parts[1:]:
        if other.shape != parts[0][1].shape:
            a, b = call.show(parts[0][1], parts[0][0], "part 0"), call.show(other, at, f"part {at[1]}")
            return Complaint(SHAPE, f"{name_of(call.func)} needs equal shapes,\nbut {a} and {b} differ.")
    return None


_ELEMENTWISE = (
    "add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum",
    "where", "masked_fill", "lerp", "addcmul", "addcdiv", "atan2", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
    "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "add_", "sub_", "mul_", "div_", "masked_fill_",
)  # fmt: skip
_ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "and", "or", "xor")
_OPERATORS = tuple(f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r", "i"))
_COMPARISONS = tuple(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "iadd": "+=", "isub": "-=", "imul": "*="}


@_explains(*_ELEMENTWISE, *_OPERATORS, *_COMPARISONS)
def _broadcast(call: Call) -> Complaint | None:
    operands = list(call.tensors())
    clash = _clash([tensor.shape for _, tensor in operands])
    if clash is None:
        return None
    name = name_of(call.func)
    shown = " and ".join(call.show(tensor, at, f"operand {n}") for n, (at, tensor) in enumerate(operands, 1))
    return Complaint(SHAPE, f"`{_SIGNS.get(name, name)}` of {shown}:\n{clash}; they must be equal, or one of them 1.")


def _clash(shapes: Iterable[tuple[int, ...]]) -> str | None:
    """Where shapes do not broadcast, counted from the end as broadcasting does; None if they do."""
    shapes = list(shapes)
    for place in range(1, max(map(len, shapes), default=0) + 1):
        sizes = list(dict.fromkeys(shape[-place] for shape in shapes if len(shape) >= place and shape[-place] != 1))
        if len(sizes) > 1:
            return f"dimension {-place} is {sizes[0]} against {sizes[1]}"
    return None


# Shapes


@_explains("view", "reshape", "_unsafe_view")
def _view(call: Call) -> Complaint | None:
    x = call.get(0, "input")
    sizes = call.args[1:] or (call.kwargs.get("shape", call.kwargs.get("size", ())),)
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
        sizes = tuple(sizes[0])
    if not _tensors(x) or not sizes or not all(isinstance(size, int) for size in sizes):
        return None
    total, given = math.prod(x.shape), math.prod(size for size in sizes if size != -1)
    text = f"{name_of(call.func)}({', '.join(map(str, sizes))}): {call.show(x, 0)} has {total} elements"
    if -1 in sizes:
        fits = given > 0 and total % given == 0
        return None if fits else Complaint(SHAPE, f"{text},\nwhich is not a multiple of {given}, so -1 has no value.")
    return None if total == given else Complaint(SHAPE, f"{text},\nthe new shape {given}.")


@_explains("cross_entropy", "nll_loss")
def _classes(call: Call) -> Complaint | None:
    x, target = call.get(0, "input"), call.get(1, "target")
    if not _tensors(x, target) or not x.shape or target.dtype.startswith("float"):
        return None
    expected = (*x.shape[:1], *x.shape[2:]) if len(x.shape) > 1 else ()
    if target.shape == expected:
        return None
    a, b = call.show(x, 0, "the prediction"), call.show(target, 1, "the target")
    if expected and target.shape and expected[0] != target.shape[0]:
        text = f"{call.layer}: the batch of {a} is {expected[0]},\nthat of {b} is {target.shape[0]}."
    else:
        text = f"{call.layer}: {a} has its classes in dimension 1, so the target must be {list(expected)},\nbut is {b}."
    return Complaint(SHAPE, text)


def _parts(call: Call) -> list[tuple[Any, TensorType]]:
    return [(at, tensor) for at, tensor in call.tensors() if isinstance(at, tuple)]


def _tensors(*values: Any) -> bool:
    return all(isinstance(value, TensorType) for value in values)


def _misfit(call: Call, parameter: str, index: int, was: Any, should: Any) -> Misfit | None:
    return Misfit(parameter, index, was, should) if call.module is not None else None


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
