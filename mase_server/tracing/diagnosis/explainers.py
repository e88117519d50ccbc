"""Explanations of failing torch calls with the operands' own shapes: one explainer for each family of callables.

An explainer looks only at the call (callable, argument shapes and types, leaf module), so the numbers in its
sentence are those of the operands, whatever the kernel's own error text says; it returns None if it finds nothing
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from mase_server.dtypes import short
from mase_server.ops.types import TensorType
from mase_server.tracing.diagnosis.failure import (
    Call,
    Complaint,
    Convert,
    Mend,
    Misfit,
    Option,
    OtherKind,
    Swap,
    name_of,
)

SHAPE, DTYPE = "shape-mismatch", "dtype-mismatch"

Explainer = Callable[[Call], Complaint | None]
_EXPLAINERS: dict[Any, list[Explainer]] = {}


def explain_call(call: Call) -> Complaint | None:
    """Explain what is wrong with a call; None if unknown. It also explains calls that only meta tensors accept."""
    keys = type(call.func).__mro__ if isinstance(call.func, nn.Module) else (call.func,)
    for explainer in (explainer for key in keys for explainer in _EXPLAINERS.get(key, ())):
        found = explainer(call)
        if found is not None:
            return found
    return None


def stricter_than_meta(call: Call) -> Complaint | None:
    """Explain calls that eager refuses and meta kernels accept: mixed types, channels of a transposed convolution."""
    return _one_type(call) or (
        _explain_transposed_convolution(call) if "conv_transpose" in name_of(call.func) else None
    )


def _find_callables(names: Iterable[str]) -> set[Callable[..., Any]]:
    """The functions, tensor methods and operators of these names."""
    homes = (torch, torch.Tensor, torch.nn.functional, torch.special, torch._C._nn)
    return {getattr(home, name) for home in homes for name in names if hasattr(home, name)}


def explains(*names: str) -> Callable[[Explainer], Explainer]:
    """Register for the functions, tensor methods and operators of these names."""

    def register(explainer: Explainer) -> Explainer:
        for func in _find_callables(names):
            _EXPLAINERS.setdefault(func, []).append(explainer)
        return explainer

    return register


def explains_layers(*kinds: type[nn.Module]) -> Callable[[Explainer], Explainer]:
    """Register for layers that check their input themselves, before any torch function gets it."""

    def register(explainer: Explainer) -> Explainer:
        for kind in kinds:
            _EXPLAINERS.setdefault(kind, []).append(explainer)
        return explainer

    return register


# Types.

_CONVOLUTIONS = tuple(f"conv{n}d" for n in (1, 2, 3))
_TRANSPOSED = tuple(f"conv_transpose{n}d" for n in (1, 2, 3))
_MATMULS = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "baddbmm")


#: Callables for which `stricter_than_meta` may find something.
PRODUCTS = frozenset(_find_callables(("linear", *_TRANSPOSED, *_MATMULS)))


@explains("linear", *_CONVOLUTIONS, *_TRANSPOSED, *_MATMULS)
def _one_type(call: Call) -> Complaint | None:
    """Products do not promote: both sides need one type."""
    operands = [(at, tensor) for at, tensor in call.tensors() if tensor.shape]
    if len(operands) < 2 or operands[0][1].dtype == operands[1][1].dtype:
        return None
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        return None
    (at, first), (other_at, second) = operands[:2]
    to = "float()" if second.dtype == "float32" else f"to(torch.{second.dtype})"
    advice = f"Convert it: `{call.names.get(at, 'it')}.{to}`."
    if call.module is not None:
        text = f"{call.layer} computes in {short(second.dtype)},\nbut {call.show(first, at)} is {short(first.dtype)}."
    else:
        other = call.show(second, other_at, "the second operand")
        text = (
            f"{name_of(call.func)} needs one type,\nbut {call.show(first, at, 'the first operand')} and {other} differ."
        )
    return Complaint(DTYPE, f"{text} {advice}", Convert(at, to))


@explains("embedding", "embedding_bag")
def _explain_embedding(call: Call) -> Complaint | None:
    indices = call.get(0, "input")
    if not isinstance(indices, TensorType) or indices.dtype in ("int64", "int32"):
        return None
    name = call.names.get(0, "it")
    text = f"{call.layer} looks up integers,\nbut {call.show(indices, 0)} is {short(indices.dtype)}."
    return Complaint(DTYPE, f"{text} Indices must be i64 or i32: `{name}.long()`.", Convert(0, "long()"))


# Layers.


@explains("linear")
def _explain_linear(call: Call) -> Complaint | None:
    x, weight = call.get(0, "input"), call.get(1, "weight")
    if not (are_tensors(x, weight) and x.shape and len(weight.shape) == 2) or x.shape[-1] == weight.shape[1]:
        return None
    expected, came = weight.shape[1], x.shape[-1]
    text = f"{call.layer} expects {expected} features,\nbut the last dimension of {call.show(x, 0)} is {came}."
    if len(x.shape) == 1:
        return Complaint(SHAPE, f"{text} It has one dimension: was the batch flattened too? `flatten(1)` keeps it.")
    return Complaint(SHAPE, text, _suggest_reshape(x, expected) or _make_misfit(call, "in_features", 0, expected, came))


def _suggest_reshape(x: TensorType, features: int) -> Convert | None:
    """The change that gives the last dimension so many features; None unless there is exactly one."""
    rank = len(x.shape)
    if rank > 2 and math.prod(x.shape[1:]) == features:
        return Convert(0, "flatten(1)")
    at = [dim for dim, size in enumerate(x.shape) if size == features and dim > 0]
    if at == [1] and rank in (3, 4):
        return Convert(0, "transpose(1, 2)" if rank == 3 else "permute(0, 2, 3, 1)")
    return None


@explains(*_CONVOLUTIONS)
def _explain_convolution(call: Call) -> Complaint | None:
    x, weight = call.get(0, "input"), call.get(1, "weight")
    if not are_tensors(x, weight):
        return None
    groups = call.get(6, "groups", 1)
    return _explain_channels(call, x, len(weight.shape) - 2, weight.shape[1] * groups)


@explains(*_TRANSPOSED)
def _explain_transposed_convolution(call: Call) -> Complaint | None:
    x, weight = call.get(0, "input"), call.get(1, "weight")
    return _explain_channels(call, x, len(weight.shape) - 2, weight.shape[0]) if are_tensors(x, weight) else None


def _explain_channels(call: Call, x: TensorType, spatial: int, expected: int) -> Complaint | None:
    if len(x.shape) not in (spatial + 1, spatial + 2):
        layout = ("[N, C, L]", "[N, C, H, W]", "[N, C, D, H, W]")[spatial - 1]
        text = f"{call.layer} expects {layout},\nbut {call.show(x, 0)} has {_count(len(x.shape), 'dimension')}."
        return Complaint(SHAPE, text)
    at = len(x.shape) - spatial - 1
    if x.shape[at] == expected:
        return None
    came = x.shape[at]
    text = f"{call.layer} expects {_count(expected, 'channel')},\nbut {call.show(x, 0)} has {came} (dimension {at})."
    return Complaint(SHAPE, text, _channel_mend(call, x, at, expected))


def _channel_mend(call: Call, x: TensorType, at: int, expected: int) -> Mend | None:
    """Channels in the last dimension are moved; otherwise the layer is made for the given channels."""
    rank = len(x.shape)
    if at == 1 and x.shape[-1] == expected and x.shape.count(expected) == 1:
        return Convert(0, {3: "transpose(1, 2)", 4: "permute(0, 3, 1, 2)"}.get(rank, "movedim(-1, 1)"))
    # A depthwise layer's groups change with its channels if both are written as one name.
    groups = getattr(call.module, "groups", 1)
    if call.varies(x, at) or groups not in (1, expected):
        return None
    return _make_misfit(call, "in_channels", 0, expected, x.shape[at])


@explains("layer_norm", "rms_norm")
def _explain_normalized_shape(call: Call) -> Complaint | None:
    x, shape = call.get(0, "input"), call.get(1, "normalized_shape")
    if not are_tensors(x) or not isinstance(shape, list | tuple) or tuple(x.shape[-len(shape) :]) == tuple(shape):
        return None
    came = x.shape[-len(shape) :]
    text = f"{call.layer} normalises trailing dimensions {list(shape)},\nbut {call.show(x, 0)} ends in {list(came)}."
    misfit = _make_misfit(call, "normalized_shape", 0, tuple(shape), came) if len(came) == len(shape) else None
    return Complaint(SHAPE, text, misfit)


@explains("batch_norm", "instance_norm")
def _batch_norm(call: Call) -> Complaint | None:
    x = call.get(0, "input")
    sizes = [tensor.shape[0] for at, tensor in call.tensors() if at != 0 and len(tensor.shape) == 1]
    if not are_tensors(x) or len(x.shape) < 2 or not sizes or x.shape[1] == sizes[0]:
        return None
    text = f"{call.layer} expects {_count(sizes[0], 'channel')},\nbut {call.show(x, 0)} has {x.shape[1]} (dimension 1)."
    return Complaint(SHAPE, text, _make_misfit(call, "num_features", 0, sizes[0], x.shape[1]))


@explains("group_norm")
def _group_norm(call: Call) -> Complaint | None:
    x, groups, weight = call.get(0, "input"), call.get(1, "num_groups"), call.get(2, "weight")
    if not are_tensors(x) or len(x.shape) < 2:
        return None
    channels = x.shape[1]
    if are_tensors(weight) and weight.shape[0] != channels:
        text = f"{call.layer} expects {_count(weight.shape[0], 'channel')},\nbut {call.show(x, 0)} has {channels}."
        fits = channels % groups == 0
        return Complaint(
            SHAPE, text, _make_misfit(call, "num_channels", 1, weight.shape[0], channels) if fits else None
        )
    if isinstance(groups, int) and channels % groups:
        return Complaint(
            SHAPE, f"{call.layer} cannot cut the {channels} channels of {call.show(x, 0)} in {groups} groups."
        )
    return None


@explains_layers(*(kind for name, kind in vars(nn).items() if name.startswith("BatchNorm")))
def _batch_norm_layout(call: Call) -> Complaint | None:
    x = call.get(0, "input")
    layouts = {"1": ("[N, C] or [N, C, L]", (2, 3)), "2": ("[N, C, H, W]", (4,)), "3": ("[N, C, D, H, W]", (5,))}
    layout, ranks = layouts[type(call.func).__name__[len("BatchNorm")]]
    if not are_tensors(x) or len(x.shape) in ranks:
        return None
    text = f"{call.layer} expects {layout},\nbut {call.show(x, 0)} has {_count(len(x.shape), 'dimension')}."
    kinds = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}
    return Complaint(SHAPE, text, OtherKind(kinds[len(x.shape)]) if len(x.shape) in kinds else None)


@explains_layers(nn.RNNBase)
def _explain_recurrent(call: Call) -> Complaint | None:
    x, expected = call.get(0, "input"), getattr(call.func, "input_size", None)
    if not are_tensors(x) or not x.shape or not isinstance(expected, int):
        return None
    if x.shape[-1] == expected:
        return _explain_recurrent_state(call, x)
    came = x.shape[-1]
    text = f"{call.layer} expects {expected} features,\nbut the last dimension of {call.show(x, 0)} is {came}."
    return Complaint(SHAPE, text, _make_misfit(call, "input_size", 0, expected, came))


def _explain_recurrent_state(call: Call, x: TensorType) -> Complaint | None:
    """Explain a wrong initial state of a recurrent layer."""
    layer, given = call.func, call.get(1, "hx")
    state = given[0] if isinstance(given, tuple) and given else given
    if not are_tensors(state) or not isinstance(layer, nn.RNNBase) or len(x.shape) not in (2, 3):
        return None
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    width = getattr(layer, "proj_size", 0) or layer.hidden_size
    batch = x.shape[:0] if len(x.shape) == 2 else x.shape[:1] if layer.batch_first else x.shape[1:2]
    expected = [count, *batch, width]
    if list(state.shape) == expected:
        return None
    text = f"{call.layer} starts from a state {expected} (layers and directions, batch, width)"
    return Complaint(SHAPE, f"{text} for {call.show(x, 0)},\nbut was given {call.show(state, 1, 'the state')}.")


@explains("multi_head_attention_forward")
def _explain_attention(call: Call) -> Complaint | None:
    query, expected = call.get(0, "query"), call.get(3, "embed_dim_to_check")
    if not are_tensors(query) or not query.shape or query.shape[-1] == expected:
        return None
    name = call.layer.partition("(")[0]
    text = f"{name}(embed_dim={expected}) does not fit the last dimension"
    return Complaint(SHAPE, f"{text} of {call.show(query, 0, 'the query')}, which is {query.shape[-1]}.")


# Products, joins, element-wise operations.


@explains("matmul", "__matmul__", "mm", "bmm")
def _explain_product(call: Call) -> Complaint | None:
    a, b = call.get(0, "input"), call.get(1, "mat2", call.kwargs.get("other"))
    if not are_tensors(a, b) or not a.shape or not b.shape:
        return None
    left, right = call.show(a, 0, "the left side"), call.show(b, 1, "the right side")
    inner, row = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if inner != row:
        where = f"the last dimension of {left} is {inner},\nand dimension {-min(2, len(b.shape))} of {right} is {row}"
        mend, hint = _product_mend(a, b)
        return Complaint(SHAPE, f"{name_of(call.func)}: {where}; they must be equal.{hint}", mend)
    clash = _find_broadcast_clash([a.shape[:-2], b.shape[:-2]])
    if clash is None:
        return None
    return Complaint(SHAPE, f"{name_of(call.func)}: the batch dimensions of {left} and {right} differ:\n{clash}.")


def _product_mend(a: TensorType, b: TensorType) -> tuple[Mend | None, str]:
    """The single change that makes the inner sizes of a product equal, and a sentence about it."""
    if len(a.shape) < 2 or len(b.shape) < 2:
        return None, ""
    swapped, transposed = b.shape[-1] == a.shape[-2], a.shape[-1] == b.shape[-1]
    if transposed and not swapped:
        return Convert(1, "transpose(-2, -1)"), " Transposed, the right side would fit."
    if swapped and not transposed and a.shape[:-2] == b.shape[:-2]:
        return Swap(), " The other way round, they would fit."
    return None, " Transposed, the right side would fit." if transposed else ""


@explains("bmm")
def _explain_batched_product(call: Call) -> Complaint | None:
    a, b = call.get(0, "input"), call.get(1, "mat2")
    if not are_tensors(a, b) or (len(a.shape), len(b.shape)) == (3, 3):
        return None
    left, right = call.show(a, 0, "the left side"), call.show(b, 1, "the right side")
    text = f"bmm needs two batches of matrices, [B, N, M] and [B, M, P],\nbut was given {left} and {right}."
    if len(a.shape) == 2 and len(b.shape) == 3 and a.shape == b.shape[:2]:
        return Complaint(SHAPE, text, Convert(0, "unsqueeze(1)"))
    if len(b.shape) == 2 and len(a.shape) == 3 and b.shape == (a.shape[0], a.shape[2]):
        return Complaint(SHAPE, text, Convert(1, "unsqueeze(2)"))
    return Complaint(SHAPE, text)


@explains("cat", "concat", "concatenate")
def _explain_cat(call: Call) -> Complaint | None:
    parts = _list_sequence_parts(call)
    dim = call.get(1, "dim", call.kwargs.get("axis", 0))
    # An empty one-dimensional tensor can be joined with anything.
    parts = [(at, part) for at, part in parts if part.shape != (0,)]
    if len(parts) < 2 or not isinstance(dim, int):
        return None
    if not all(-len(part.shape) <= dim < len(part.shape) for _, part in parts):
        shown = " and ".join(call.show(part, at, f"part {at[1]}") for at, part in parts[:2])
        return Complaint(SHAPE, f"cat along dimension {dim}, but there is no such dimension in {shown}.")
    (first_at, first), *others = parts
    for at, other in others:
        what = _explain_unlike_shapes(first.shape, other.shape, dim)
        if what is not None:
            a, b = call.show(first, first_at, "part 0"), call.show(other, at, f"part {at[1]}")
            mend = _join_mend([part.shape for _, part in parts])
            return Complaint(SHAPE, f"cat along dimension {dim}: {a} and {b} do not fit:\n{what}.", mend)
    return None


def _join_mend(shapes: list[tuple[int, ...]]) -> Option | None:
    """The only dimension along which all would fit."""
    if len({len(shape) for shape in shapes}) > 1:
        return None
    fits = [
        dim
        for dim in range(len(shapes[0]))
        if all(_explain_unlike_shapes(shapes[0], shape, dim) is None for shape in shapes[1:])
    ]
    return Option("dim", 1, fits[0]) if len(fits) == 1 else None


def _explain_unlike_shapes(first: tuple[int, ...], other: tuple[int, ...], dim: int) -> str | None:
    """The reason why two shapes cannot be joined along `dim`; None if they can."""
    if len(first) != len(other):
        return "they have different numbers of dimensions"
    for axis, (a, b) in enumerate(zip(first, other, strict=True)):
        if axis != dim % len(first) and a != b:
            return f"dimension {axis} is {a} in one and {b} in the other"
    return None


@explains("stack", "hstack", "vstack", "dstack")
def _explain_stack(call: Call) -> Complaint | None:
    parts = _list_sequence_parts(call)
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


@explains(*_ELEMENTWISE, *_OPERATORS, *_COMPARISONS)
def _explain_broadcast(call: Call) -> Complaint | None:
    operands = list(call.tensors())
    clash = _find_broadcast_clash([tensor.shape for _, tensor in operands])
    if clash is None:
        return None
    name = name_of(call.func)
    shown = " and ".join(call.show(tensor, at, f"operand {n}") for n, (at, tensor) in enumerate(operands, 1))
    return Complaint(SHAPE, f"`{_SIGNS.get(name, name)}` of {shown}:\n{clash}; they must be equal, or one of them 1.")


def _find_broadcast_clash(shapes: Iterable[tuple[int, ...]]) -> str | None:
    """The dimension in which shapes do not broadcast, counted from the end as broadcasting does; None if they do."""
    shapes = list(shapes)
    for place in range(1, max(map(len, shapes), default=0) + 1):
        sizes = list(dict.fromkeys(shape[-place] for shape in shapes if len(shape) >= place and shape[-place] != 1))
        if len(sizes) > 1:
            return f"dimension {-place} is {sizes[0]} against {sizes[1]}"
    return None


# Shapes.


@explains("view", "reshape", "_unsafe_view")
def _explain_view(call: Call) -> Complaint | None:
    x = call.get(0, "input")
    sizes = call.args[1:] or (call.kwargs.get("shape", call.kwargs.get("size", ())),)
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
        sizes = tuple(sizes[0])
    if not are_tensors(x) or not sizes or not all(isinstance(size, int) for size in sizes):
        return None
    total, given = math.prod(x.shape), math.prod(size for size in sizes if size != -1)
    text = f"{name_of(call.func)}({', '.join(map(str, sizes))}): {call.show(x, 0)} has {total} elements"
    if -1 in sizes:
        fits = given > 0 and total % given == 0
        return None if fits else Complaint(SHAPE, f"{text},\nwhich is not a multiple of {given}, so -1 has no value.")
    return None if total == given else Complaint(SHAPE, f"{text},\nthe new shape {given}.")


def _list_sequence_parts(call: Call) -> list[tuple[Any, TensorType]]:
    return [(at, tensor) for at, tensor in call.tensors() if isinstance(at, tuple)]


def are_tensors(*values: Any) -> bool:
    """Are all of these tensors?"""
    return all(isinstance(value, TensorType) for value in values)


def _make_misfit(call: Call, parameter: str, index: int, was: Any, should: Any) -> Misfit | None:
    return Misfit(parameter, index, was, should) if call.module is not None else None


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# Failing losses, lookups and masks: predictions and targets, indices and the tensors that they index.


@explains("cross_entropy", "nll_loss")
def _explain_class_target(call: Call) -> Complaint | None:
    x, target = call.get(0, "input"), call.get(1, "target")
    if not are_tensors(x, target) or not x.shape or target.shape == x.shape:
        return None
    expected = (*x.shape[:1], *x.shape[2:]) if len(x.shape) > 1 else ()
    a, b = call.show(x, 0, "the prediction"), call.show(target, 1, "the target")
    if target.shape == expected:
        if target.dtype in ("int64", "uint8"):
            return None
        text = f"{name_of(call.func)} takes classes as i64,\nbut {b} is {short(target.dtype)}."
        return Complaint(DTYPE, f"{text} Convert it: `{call.names.get(1, 'it')}.long()`.", Convert(1, "long()"))
    if expected and target.shape and expected[0] != target.shape[0]:
        text = f"{call.layer}: the batch of {a} is {expected[0]},\nthat of {b} is {target.shape[0]}."
    else:
        text = f"{call.layer}: {a} has its classes in dimension 1, so the target must be {list(expected)},\nbut is {b}."
    return Complaint(SHAPE, text, _class_mend(x, target))


def _class_mend(x: TensorType, target: TensorType) -> Mend | None:
    """Move classes from the last dimension to dimension 1, or drop a target's surplus dimension."""
    if target.shape == x.shape[:-1]:
        moved = {3: "transpose(1, 2)", 4: "permute(0, 3, 1, 2)"}
        return Convert(0, moved[len(x.shape)]) if len(x.shape) in moved else None
    if target.shape == (*x.shape[:1], 1, *x.shape[2:]):
        return Convert(1, "squeeze(1)")
    return None


@explains("binary_cross_entropy", "binary_cross_entropy_with_logits")
def _explain_binary_target(call: Call) -> Complaint | None:
    x, target = call.get(0, "input"), call.get(1, "target")
    if not are_tensors(x, target):
        return None
    a, b = call.show(x, 0, "the prediction"), call.show(target, 1, "the target")
    if target.shape != x.shape:
        text = f"{name_of(call.func)} needs equal shapes,\nbut {a} and {b} differ."
        return Complaint(SHAPE, text, _suggest_equal_shapes(x.shape, target.shape))
    if target.dtype.startswith(("int", "uint", "bool")):
        text = f"{name_of(call.func)} takes targets of floats,\nbut {b} is {short(target.dtype)}."
        return Complaint(DTYPE, f"{text} Convert it: `{call.names.get(1, 'it')}.float()`.", Convert(1, "float()"))
    return None


def _suggest_equal_shapes(x: tuple[int, ...], target: tuple[int, ...]) -> Mend | None:
    if x == (*target, 1):
        return Convert(0, "squeeze(-1)")
    if target == (*x, 1):
        return Convert(1, "squeeze(-1)")
    if len(x) == 2 and x[0] == target[0] and math.prod(target[1:]) == x[1]:
        return Convert(1, "flatten(1)")
    return None


@explains("gather", "take_along_dim")
def _explain_gather(call: Call) -> Complaint | None:
    x, dim, index = call.get(0, "input"), call.get(1, "dim"), call.get(2, "index")
    if not are_tensors(x, index) or not isinstance(dim, int):
        return None
    a, b = call.show(x, 0), call.show(index, 2, "the index")
    if index.dtype not in ("int64", "int32"):
        text = f"gather looks up integers,\nbut {b} is {short(index.dtype)}."
        return Complaint(DTYPE, f"{text} Convert it: `{call.names.get(2, 'it')}.long()`.", Convert(2, "long()"))
    if len(x.shape) != len(index.shape):
        text = f"gather needs an index with as many dimensions as what it picks from,\nbut {b} is for {a}."
        at = dim % len(x.shape)
        mend = Convert(2, f"unsqueeze({dim})") if index.shape == (*x.shape[:at], *x.shape[at + 1 :]) else None
        return Complaint(SHAPE, text, mend)
    return None


@explains("masked_fill", "masked_fill_", "masked_select", "where")
def _explain_mask(call: Call) -> Complaint | None:
    chooses = name_of(call.func) == "where"  # which alone still takes bytes
    at = 0 if chooses else 1
    mask = call.get(at, "mask", call.kwargs.get("condition"))
    if not are_tensors(mask) or mask.dtype == "bool" or (chooses and mask.dtype == "uint8"):
        return None
    shown = call.show(mask, at, "the mask")
    text = f"{name_of(call.func)} needs a mask of booleans (bool),\nbut {shown} is {short(mask.dtype)}."
    return Complaint(DTYPE, f"{text} Convert it: `{call.names.get(at, 'it')}.bool()`.", Convert(at, "bool()"))


@explains("expand_as", "view_as", "reshape_as")
def _explain_shape_like(call: Call) -> Complaint | None:
    x, other = call.get(0, "input"), call.get(1, "other")
    if not are_tensors(x, other):
        return None
    text = f"{name_of(call.func)}: {call.show(x, 0)} cannot take the shape of {call.show(other, 1, 'the other')}."
    return Complaint(SHAPE, text)
