"""What is wrong with a loss, a lookup or a mask: predictions and targets, indices and what they index."""

from __future__ import annotations

import math

from mase_server.dtypes import short
from mase_server.ops.types import TensorType
from mase_server.tracing.errors.complaints import Call, Complaint, Convert, Mend, name_of
from mase_server.tracing.errors.explainers import DTYPE, SHAPE, explains, tensors


@explains("cross_entropy", "nll_loss")
def _classes(call: Call) -> Complaint | None:
    x, target = call.get(0, "input"), call.get(1, "target")
    if not tensors(x, target) or not x.shape or target.shape == x.shape:
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
    """Classes in the last dimension are moved to dimension 1; a target with a dimension of one too many loses it."""
    if target.shape == x.shape[:-1]:
        moved = {3: "transpose(1, 2)", 4: "permute(0, 3, 1, 2)"}
        return Convert(0, moved[len(x.shape)]) if len(x.shape) in moved else None
    if target.shape == (*x.shape[:1], 1, *x.shape[2:]):
        return Convert(1, "squeeze(1)")
    return None


@explains("binary_cross_entropy", "binary_cross_entropy_with_logits")
def _binary(call: Call) -> Complaint | None:
    x, target = call.get(0, "input"), call.get(1, "target")
    if not tensors(x, target):
        return None
    a, b = call.show(x, 0, "the prediction"), call.show(target, 1, "the target")
    if target.shape != x.shape:
        text = f"{name_of(call.func)} needs equal shapes,\nbut {a} and {b} differ."
        return Complaint(SHAPE, text, _alike(x.shape, target.shape))
    if target.dtype.startswith(("int", "uint", "bool")):
        text = f"{name_of(call.func)} takes targets of floats,\nbut {b} is {short(target.dtype)}."
        return Complaint(DTYPE, f"{text} Convert it: `{call.names.get(1, 'it')}.float()`.", Convert(1, "float()"))
    return None


def _alike(x: tuple[int, ...], target: tuple[int, ...]) -> Mend | None:
    if x == (*target, 1):
        return Convert(0, "squeeze(-1)")
    if target == (*x, 1):
        return Convert(1, "squeeze(-1)")
    if len(x) == 2 and x[0] == target[0] and math.prod(target[1:]) == x[1]:
        return Convert(1, "flatten(1)")
    return None


@explains("gather", "take_along_dim")
def _gather(call: Call) -> Complaint | None:
    x, dim, index = call.get(0, "input"), call.get(1, "dim"), call.get(2, "index")
    if not tensors(x, index) or not isinstance(dim, int):
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
def _masked(call: Call) -> Complaint | None:
    at = 0 if name_of(call.func) == "where" else 1
    mask = call.get(at, "mask", call.kwargs.get("condition"))
    if not tensors(mask) or mask.dtype in ("bool", "uint8"):
        return None
    shown = call.show(mask, at, "the mask")
    text = f"{name_of(call.func)} needs a mask of booleans (bool),\nbut {shown} is {short(mask.dtype)}."
    return Complaint(DTYPE, f"{text} Convert it: `{call.names.get(at, 'it')}.bool()`.", Convert(at, "bool()"))


@explains("expand_as", "view_as", "reshape_as")
def _like(call: Call) -> Complaint | None:
    x, other = call.get(0, "input"), call.get(1, "other")
    if not tensors(x, other):
        return None
    text = f"{name_of(call.func)}: {call.show(x, 0)} cannot take the shape of {call.show(other, 1, 'the other')}."
    return Complaint(SHAPE, text)
