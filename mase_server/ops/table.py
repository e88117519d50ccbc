"""The table itself: `op_info` says what a callable is, by the callable's identity and never by its name's looks.

What the table does not have is still answered: `known` is False, the operator is called what it calls itself, and costs
0. A leaf module of the user's is named by its class in snake case. Where such a name is one of the table's own, it gets
the prefix `custom_`: a class of the user's called Linear is not MASE's `linear`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import torch
from torch import nn

from mase_server.ops import (
    activation,
    arguments,
    attention,
    convolution,
    creation,
    decomposition,
    elementwise,
    embedding,
    fft,
    indexing,
    linear_algebra,
    loss,
    normalisation,
    pooling,
    queries,
    recurrent,
    reduction,
    shape,
)
from mase_server.ops.costs import free, traffic
from mase_server.ops.naming import mase_type, name_of, snake_case
from mase_server.ops.rows import Row
from mase_server.ops.types import OpCall, OpInfo

ROWS: tuple[Row, ...] = (
    *activation.ROWS,
    *attention.ROWS,
    *convolution.ROWS,
    *creation.ROWS,
    *decomposition.ROWS,
    *elementwise.ROWS,
    *embedding.ROWS,
    *fft.ROWS,
    *indexing.ROWS,
    *linear_algebra.ROWS,
    *loss.ROWS,
    *normalisation.ROWS,
    *pooling.ROWS,
    *queries.ROWS,
    *recurrent.ROWS,
    *reduction.ROWS,
    *shape.ROWS,
)
NAMES = frozenset(row.mase_op for row in ROWS)
QUERIES = frozenset(map(id, queries.QUERIES))
ATEN = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)

#: Where an ATen operator has a callable of the same name; the table's own entries of torch.ops.aten come first.
ATEN_PLACES: tuple[Any, ...] = (
    torch.ops.aten,
    torch,
    torch.Tensor,
    nn.functional,
    *tuple(getattr(torch._C, name) for name in ("_special", "_linalg", "_fft", "_nn")),
)

KINDS = ("placeholder", "get_attr", "output")


def _index() -> dict[object, Row]:
    found: dict[object, Row] = {}
    for row in ROWS:
        for target in row.targets():
            found.setdefault(target, row)
    for row in shape.PROPERTIES:
        found[getattr(torch.Tensor, row.mase_op).__get__] = row
    return found


TABLE: dict[object, Row] = _index()


def op_info(kind: str, target: object, module: nn.Module | None = None) -> OpInfo:
    """What is known of a node's operator.

    kind: fx's, e.g. "call_function".  target: the callable, the method's name, or for call_module the instance (or its
    path, with `module` given).  Never raises for an unknown target.
    """
    if kind in KINDS:
        return _structural(kind)
    if kind == "call_module":
        instance = target if isinstance(target, nn.Module) else module
        return _module_info(instance) if instance is not None else _unknown(target)
    return _function_info(callable_of(kind, target))


def named_arguments(call: OpCall) -> dict[str, Any]:
    """The arguments of a call under MASE's names (data_in_0, weight, dim, ...), then its module's parameters."""
    if call.kind in KINDS:
        return {}
    target = type(call.module) if call.module is not None else callable_of(call.kind, call.target)
    return arguments.bind(call, target, op_info(call.kind, call.target, call.module).mase_op)


def callable_of(kind: str, target: object) -> object:
    """The callable that a target stands for: a method is torch.Tensor's attribute, an ATen overload is torch's."""
    if kind == "call_method" and isinstance(target, str):
        return getattr(torch.Tensor, target, target)
    if isinstance(target, ATEN):
        return _from_aten(target)
    return target


def aten_name(target: Any) -> tuple[str, str]:
    """Namespace and name of an operator of torch.ops without its overload, e.g. ("aten", "add")."""
    spelled = target._name if isinstance(target, torch._ops.OpOverload) else target._qualified_op_name
    namespace, _, name = str(spelled).partition("::")
    return namespace, name.partition(".")[0]


def _from_aten(target: Any) -> object:
    namespace, name = aten_name(target)
    if namespace != "aten":
        return target
    found = (getattr(place, name, None) for place in ATEN_PLACES)
    return next((one for one in found if _row(one) is not None), target)


def _row(target: object) -> Row | None:
    try:
        return TABLE.get(target)
    except TypeError:  # an unhashable callable object
        return None


def _function_info(target: object) -> OpInfo:
    row = _row(target)
    return _unknown(target) if row is None else _known_function(target, row)


@cache
def _known_function(target: object, row: Row) -> OpInfo:
    signature = next(iter(arguments.overloads(target, row.mase_op)), ())
    names = arguments.static_names(signature, row.mase_op, arguments.is_reversed(target))
    return _info(row, False, names, tuple(p.name for p in signature))


def _module_info(module: nn.Module) -> OpInfo:
    cls = type(module)
    row, parameters, names = _class_info(cls)  # type: ignore[arg-type]
    names = (*names, *(name for name, _ in arguments.module_names(module) if name not in names))
    if row is not None:
        return _info(row, True, names, parameters)
    return OpInfo(
        _own_name(snake_case(cls.__name__)), "module", "other", names, parameters, False, False, free, traffic
    )


@lru_cache(maxsize=4096)
def _class_info(cls: type[nn.Module]) -> tuple[Row | None, tuple[str, ...], tuple[str, ...]]:
    """The row of a class, or of the base whose forward it runs; torch's and MASE's names of forward's parameters."""
    bases = (base for base in cls.__mro__ if getattr(base, "forward", None) is cls.forward)
    row = next((TABLE[base] for base in bases if base in TABLE), None)
    signature = next(iter(arguments.overloads(cls, "")), ())
    names = arguments.static_names(signature, row.mase_op if row else "")
    return row, tuple(p.name for p in signature), names


def _info(row: Row, is_module: bool, names: tuple[str, ...], parameters: tuple[str, ...]) -> OpInfo:
    kind = mase_type(row, is_module, id(row) in QUERIES)
    implicit = kind == "implicit_func"
    return OpInfo(row.mase_op, kind, row.family, names, parameters, implicit, True, row.flops, row.bytes)


def _unknown(target: object) -> OpInfo:
    name = aten_name(target)[1] if isinstance(target, ATEN) else name_of(target)
    return OpInfo(_own_name(name), "builtin_func", "other", (), (), False, False, free, traffic)


def _own_name(name: str) -> str:
    return f"custom_{name}" if name in NAMES else name


@cache
def _structural(kind: str) -> OpInfo:
    return OpInfo(kind, kind, "other", (), (), False, True, free, free)
