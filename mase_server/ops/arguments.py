"""Arguments under MASE's names: tensors are data_in_0, data_in_1 ... in torch's order, all others keep torch's name.

Tensors that are weights (weight, bias, running_mean, ...) or choose elements (index, condition) keep theirs too. A list
of tensors takes one number for each. Numbers given one by one (`x.view(2, 3)`) become shape_0, shape_1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from torch import nn

from mase_server.ops.signatures import Parameter, Signature, best, signatures
from mase_server.ops.types import OpCall, TensorType

KEPT = frozenset({"running_mean", "running_var", "index", "indices", "condition", "select", "hx", "params"})

#: (operator, torch's name) -> MASE's name, where they differ.
RENAMED = {
    ("transpose", "dim0"): "dim_0",
    ("transpose", "dim1"): "dim_1",
    ("reshape", "shape"): "shape",
    ("view", "size"): "shape",
    ("tensor", "t"): "data",
    ("permute", "dims"): "dim",
}

#: Signatures that torch does not tell, as MASE has them.
BY_HAND: dict[str, Signature] = {
    "getitem": (Parameter("in", True, False), Parameter("select", False, False)),
    "setitem": (Parameter("in", True, False), Parameter("select", False, False), Parameter("value", True, False)),
    "getattr": (Parameter("a", True, False), Parameter("b", False, False)),
}

#: Operators whose ATen schema has another name.
ATEN = {"not": "logical_not", "invert": "bitwise_not", "positive": "positive"}


def overloads(target: object, mase_op: str) -> tuple[Signature, ...]:
    """The signatures of a callable, as `signatures` finds them, or as they are written here."""
    try:
        return _overloads(target, mase_op)
    except TypeError:  # an unhashable callable object
        return signatures(target, mase_op)


@lru_cache(maxsize=4096)
def _overloads(target: object, mase_op: str) -> tuple[Signature, ...]:
    if mase_op in BY_HAND:
        return (BY_HAND[mase_op],)
    if isinstance(target, type) and issubclass(target, nn.Module):
        found = signatures(target.forward)
        return tuple(signature[1:] for signature in found)
    return signatures(target, ATEN.get(mase_op, mase_op))


def is_reversed(target: object) -> bool:
    """True for `__rsub__` and its like, whose second argument is the left operand."""
    name = getattr(target, "__name__", "")
    return name.startswith("__r") and name not in ("__repr__", "__round__", "__reversed__", "__rshift__")


def static_names(signature: Signature, mase_op: str, swapped: bool = False) -> tuple[str, ...]:
    """MASE's names of a signature's parameters, by their declared types."""
    names, count = [], 0
    for parameter in signature:
        if parameter.tensor and not is_kept(parameter.name):
            names.append(f"data_in_{count}")
            count += 1
        else:
            names.append(RENAMED.get((mase_op, parameter.name), parameter.name))
    return (names[1], names[0], *names[2:]) if swapped and len(names) > 1 else tuple(names)


def is_kept(name: str) -> bool:
    """True for tensors that keep torch's name: weights, biases, indices."""
    return name in KEPT or name.endswith(("weight", "bias"))


def module_names(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of a leaf module under MASE's names, in which dots become underscores."""
    return ((name.replace(".", "_"), parameter) for name, parameter in module.named_parameters())


def bind(call: OpCall, target: object, mase_op: str) -> dict[str, Any]:
    """Each argument of a call under MASE's name, and after them the parameters of the module called.

    target: the callable or module class itself, not a method's name.
    """
    args = (*reversed(call.args[:2]), *call.args[2:]) if is_reversed(target) else call.args
    signature = best(overloads(target, mase_op), args, call.kwargs)
    bound: dict[str, Any] = {}
    for name, value in _given(signature, mase_op, args, call.kwargs):
        _enter(bound, name, value)
    if call.module is not None:
        bound |= {name: TensorType.of(p) for name, p in module_names(call.module) if name not in bound}
    return bound


def _given(
    signature: Signature, mase_op: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Torch's name and the value of each argument, keyword ones in the signature's order."""
    positional = [p.name for p in signature if p.positional]
    spread = len(args) > len(positional) or (args and isinstance(args[-1], int) and _is_list(signature, len(args) - 1))
    fixed = len(positional) - 1 if spread and positional else len(args)
    for position, value in enumerate(args):
        index = min(position, fixed)
        name = positional[index] if index < len(positional) else f"arg_{position}"
        name = RENAMED.get((mase_op, name), "input" if name == "self" else name)
        yield (f"{name}_{position - fixed}" if spread and position >= fixed else name), value
    order = {p.name: i for i, p in enumerate(signature)}
    for name in sorted(kwargs, key=lambda key: order.get(key, len(order))):
        yield RENAMED.get((mase_op, name), name), kwargs[name]


def _is_list(signature: Signature, position: int) -> bool:
    positional = [p for p in signature if p.positional]
    return position == len(positional) - 1 and positional[position].many and positional[position].name in SPREAD


#: Lists of numbers that methods also take one by one.
SPREAD = frozenset({"size", "shape", "dims", "repeats", "sizes"})


def _enter(bound: dict[str, Any], name: str, value: Any) -> None:
    for item in _tensors_of(name, value):
        bound[_next_data(bound)] = item
    if not _tensors_of(name, value):
        bound[name] = value


def _tensors_of(name: str, value: Any) -> tuple[TensorType, ...]:
    """The tensors that get numbers: the value itself, or the members of a list of nothing else."""
    if is_kept(name):
        return ()
    if isinstance(value, TensorType):
        return (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, TensorType) for item in value):
        return tuple(value)
    return ()


def _next_data(bound: Iterable[str]) -> str:
    return f"data_in_{sum(1 for name in bound if name.startswith('data_in_'))}"
