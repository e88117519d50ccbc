"""The operator table: `op_info` describes a callable, looked up by its identity and never guessed from its name;
`named_arguments` gives a call's arguments under MASE's names; `cost_of` counts the cost of a call.

For a callable that the table lacks, `known` is False, the operator has the callable's own name, and it costs 0. A
user's leaf module is named after its class in snake case, with the prefix `custom_` if the table has an operator of
that name: a user's class Linear is not MASE's `linear`.

Among the arguments, tensors are data_in_0, data_in_1 ... in torch's order. Tensors that are weights (weight, bias,
running_mean, ...) or choose elements (index, condition) keep torch's name, as do all other arguments. A list of tensors
takes one number for each. Numbers given one by one (`x.view(2, 3)`) become shape_0, shape_1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MethodWrapperType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from mase_server.ops import convolution, elementwise, linear_algebra, shape
from mase_server.ops.paths import named_parameters
from mase_server.ops.rows import Row, cost_nothing, count_traffic, mase_type, name_of, snake_case
from mase_server.ops.types import Kwargs, MaseArguments, OpCall, OpInfo, TensorType

if TYPE_CHECKING:
    from mase_server.protocol.records import WeightColumns

ROWS: tuple[Row, ...] = (
    *elementwise.ACTIVATION_ROWS,
    *convolution.ATTENTION_ROWS,
    *convolution.ROWS,
    *shape.CREATION_ROWS,
    *linear_algebra.DECOMPOSITION_ROWS,
    *elementwise.ROWS,
    *convolution.EMBEDDING_ROWS,
    *linear_algebra.FFT_ROWS,
    *shape.INDEXING_ROWS,
    *linear_algebra.ROWS,
    *elementwise.LOSS_ROWS,
    *convolution.NORMALISATION_ROWS,
    *convolution.POOLING_ROWS,
    *shape.QUERIES_ROWS,
    *convolution.RECURRENT_ROWS,
    *elementwise.REDUCTION_ROWS,
    *shape.ROWS,
)
NAMES = frozenset(row.mase_op for row in ROWS)
QUERIES = frozenset(map(id, shape.QUERIES))
ATEN = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)

#: The places of an ATen operator's callable of the same name; the table's own entries of torch.ops.aten come first.
ATEN_PLACES: tuple[Any, ...] = (
    torch.ops.aten,
    torch,
    torch.Tensor,
    nn.functional,
    *tuple(getattr(torch._C, name) for name in ("_special", "_linalg", "_fft", "_nn")),
)

KINDS = ("placeholder", "get_attr", "output")


def _index_rows() -> dict[object, Row]:
    found: dict[object, Row] = {}
    for row in ROWS:
        for target in row.targets():
            found.setdefault(target, row)
    for row in shape.PROPERTIES:
        found[getattr(torch.Tensor, row.mase_op).__get__] = row
    return found


TABLE: dict[object, Row] = _index_rows()


def op_info(kind: str, target: object, module: nn.Module | None = None) -> OpInfo:
    """Describe a node's operator.

    kind: fx's, e.g. "call_function".  target: the callable, the method's name, or for call_module the instance (or
    its path, with `module` given).  Never raises for an unknown target.
    """
    if kind in KINDS:
        return _structural_info(kind)
    if kind == "call_module":
        instance = target if isinstance(target, nn.Module) else module
        return _module_info(instance) if instance is not None else _info_of_unknown(target)
    return _function_info(callable_of(kind, target))


def named_arguments(call: OpCall, info: OpInfo | None = None) -> MaseArguments:
    """The arguments of a call under MASE's names (data_in_0, weight, dim, ...), then its module's parameters.

    info: the description of its operator, where it is known.
    """
    if call.kind in KINDS:
        return {}
    target = type(call.module) if call.module is not None else callable_of(call.kind, call.target)
    return bind_arguments(call, target, (info or op_info(call.kind, call.target, call.module)).mase_op)


def callable_of(kind: str, target: object) -> object:
    """The callable that a target means: for a method torch.Tensor's attribute, for an ATen overload torch's
    function."""
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
    return next((one for one in found if _row_of_target(one) is not None), target)


def _row_of_target(target: object) -> Row | None:
    try:
        return TABLE.get(target)
    except Exception:  # noqa: BLE001 - a callable whose class cannot be hashed, or raises whatever it likes
        return None


def _function_info(target: object) -> OpInfo:
    row = _row_of_target(target)
    return _info_of_unknown(target) if row is None else _known_function(target, row)


@cache
def _known_function(target: object, row: Row) -> OpInfo:
    signature = next(iter(find_overloads(target, row.mase_op)), ())
    names = static_names(signature, row.mase_op, is_reversed(target))
    return _info_of_row(row, False, names, tuple(p.name for p in signature))


def _module_info(module: nn.Module) -> OpInfo:
    cls = type(module)
    row, parameters, names = _class_info(cls)  # type: ignore[arg-type]
    names = (*names, *(name for name, _ in module_names(module) if name not in names))
    if row is not None:
        return _info_of_row(row, True, names, parameters)
    return OpInfo(
        _own_name(snake_case(cls.__name__)),
        "module",
        "other",
        names,
        parameters,
        False,
        False,
        cost_nothing,
        count_traffic,
    )


@lru_cache(maxsize=4096)
def _class_info(cls: type[nn.Module]) -> tuple[Row | None, tuple[str, ...], tuple[str, ...]]:
    """The row of a class, or of the base whose forward it runs; and forward's parameters by torch's and by MASE's
    names."""
    bases = (base for base in cls.__mro__ if getattr(base, "forward", None) is cls.forward)
    row = next((TABLE[base] for base in bases if base in TABLE), None)
    signature = next(iter(find_overloads(cls, "")), ())
    names = static_names(signature, row.mase_op if row else "")
    return row, tuple(p.name for p in signature), names


def _info_of_row(row: Row, is_module: bool, names: tuple[str, ...], parameters: tuple[str, ...]) -> OpInfo:
    kind = mase_type(row, is_module, id(row) in QUERIES)
    implicit = kind == "implicit_func"
    return OpInfo(row.mase_op, kind, row.family, names, parameters, implicit, True, row.flops, row.bytes)


def _info_of_unknown(target: object) -> OpInfo:
    name = aten_name(target)[1] if isinstance(target, ATEN) else name_of(target)
    return OpInfo(_own_name(name), "builtin_func", "other", (), (), False, False, cost_nothing, count_traffic)


def _own_name(name: str) -> str:
    return f"custom_{name}" if name in NAMES else name


@cache
def _structural_info(kind: str) -> OpInfo:
    return OpInfo(kind, kind, "other", (), (), False, True, cost_nothing, cost_nothing)


# Torch's own parameter names of a callable, read from its ATen schemas or Python signature when first needed.


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.  tensor: it takes a tensor, or several where `many`; positional: it may be given by position."""

    name: str
    tensor: bool
    many: bool
    positional: bool = True


Signature = tuple[Parameter, ...]

#: Parameters that take tensors in Python signatures that say no types.
TENSOR_NAMES = frozenset(
    {"self", "input", "other", "tensor", "tensors", "mask", "mat2", "target", "src", "tgt", "query", "key"}
)


#: Operators whose plainest overload (one tensor, no dimension) is the usual one.
PLAIN_FIRST = frozenset({"max", "min"})


def read_signatures(target: object, aten: str | None = None) -> tuple[Signature, ...]:
    """Every overload of a callable, the plainest first; () if unknown. aten: the schema to use for a callable without
    one."""
    if isinstance(target, MethodWrapperType):  # a property such as x.T
        return ((Parameter("self", True, False),),)
    if inspect.isfunction(target):
        written = _from_python(target)
        if written is not None:
            return (written,)
    name = getattr(target, "__name__", "")
    for candidate in (name, name.rstrip("_") if not name.startswith("__") else "", aten):
        if candidate and (found := _from_schemas(candidate)):
            return found
    written = _from_python(target) if callable(target) else None
    return (written,) if written is not None else ()


@cache
def _from_schemas(name: str) -> tuple[Signature, ...]:
    read: Callable[[str], Any] | None = getattr(torch._C, "_jit_get_schemas_for_operator", None)
    if read is None:
        return ()
    schemas = [s for s in read(f"aten::{name}") if not any(a.is_out for a in s.arguments)]
    schemas.sort(key=lambda s: (not _takes_tensor(s), name in PLAIN_FIRST and s.overload_name != ""))
    return tuple(tuple(_from_argument(a) for a in s.arguments) for s in schemas)


def _takes_tensor(schema: Any) -> bool:
    return any("Tensor" in str(a.type) for a in schema.arguments)


def _from_argument(argument: Any) -> Parameter:
    kind = str(argument.type)
    return Parameter(argument.name, "Tensor" in kind, "List" in kind or "[]" in kind, not argument.kwarg_only)


def _from_python(function: Any) -> Signature | None:
    """The signature of a Python function; None if it takes *args, which tells nothing."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in given):
        return None
    return tuple(_plain_parameters(given))


def _plain_parameters(given: Any) -> Iterator[Parameter]:
    for p in given:
        if p.kind is p.VAR_KEYWORD or p.name.startswith("_"):
            continue
        kind = "" if p.annotation is p.empty else str(p.annotation)
        takes = "Tensor" in kind if kind else p.name in TENSOR_NAMES
        many = kind.lower().replace("typing.", "").startswith(("list", "tuple", "sequence"))
        yield Parameter(p.name, takes, many, p.kind is not p.KEYWORD_ONLY)


def choose_overload(overloads: tuple[Signature, ...], args: tuple[Any, ...], kwargs: Kwargs) -> Signature:
    """The overload that the arguments fit, else the longest."""
    fitting = (signature for signature in overloads if _is_fitting(signature, args, kwargs))
    return next(fitting, max(overloads, key=len, default=()))


def _is_fitting(signature: Signature, args: tuple[Any, ...], kwargs: Kwargs) -> bool:
    positional = [p for p in signature if p.positional]
    spread = bool(positional) and positional[-1].many
    if len(args) > len(positional) and not spread:
        return False
    names = {"input" if p.name == "self" else p.name for p in signature}
    if not {"input" if name == "self" else name for name in kwargs} <= names:
        return False
    return all(_can_take(p, value) for p, value in zip(positional, args, strict=False))


def _can_take(parameter: Parameter, value: Any) -> bool:
    if value is None:
        return True
    is_tensor = isinstance(value, TensorType)
    holds_tensors = isinstance(value, (list, tuple)) and any(isinstance(item, TensorType) for item in value)
    return parameter.tensor == (is_tensor or holds_tensors)


KEPT_ARGUMENTS = frozenset({"running_mean", "running_var", "index", "indices", "condition", "select", "hx", "params"})

#: (operator, torch's name) -> MASE's name, where they differ.
RENAMED_ARGUMENTS = {
    ("transpose", "dim0"): "dim_0",
    ("transpose", "dim1"): "dim_1",
    ("reshape", "shape"): "shape",
    ("view", "size"): "shape",
    ("tensor", "t"): "data",
    ("permute", "dims"): "dim",
}

#: Signatures that torch does not tell, as MASE has them.
SIGNATURES_BY_HAND: dict[str, Signature] = {
    "getitem": (Parameter("in", True, False), Parameter("select", False, False)),
    "setitem": (Parameter("in", True, False), Parameter("select", False, False), Parameter("value", True, False)),
    "getattr": (Parameter("a", True, False), Parameter("b", False, False)),
}

#: Operators whose ATen schema has another name.
ATEN_NAMES = {"not": "logical_not", "invert": "bitwise_not", "positive": "positive"}


def find_overloads(target: object, mase_op: str) -> tuple[Signature, ...]:
    """The signatures of a callable: as `read_signatures` finds them, or as this module lists them."""
    try:
        return _look_up_overloads(target, mase_op)
    except Exception:  # noqa: BLE001 - as above
        return read_signatures(target, mase_op)


@lru_cache(maxsize=4096)
def _look_up_overloads(target: object, mase_op: str) -> tuple[Signature, ...]:
    if mase_op in SIGNATURES_BY_HAND:
        return (SIGNATURES_BY_HAND[mase_op],)
    if isinstance(target, type) and issubclass(target, nn.Module):
        found = read_signatures(target.forward)
        return tuple(signature[1:] for signature in found)
    return read_signatures(target, ATEN_NAMES.get(mase_op, mase_op))


def is_reversed(target: object) -> bool:
    """Is it `__rsub__` or the like, whose second argument is the left operand?"""
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
            names.append(RENAMED_ARGUMENTS.get((mase_op, parameter.name), parameter.name))
    return (names[1], names[0], *names[2:]) if swapped and len(names) > 1 else tuple(names)


def is_kept(name: str) -> bool:
    """Does a tensor of this name keep torch's name? Weights, biases and indices do."""
    return name in KEPT_ARGUMENTS or name.endswith(("weight", "bias"))


def module_names(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of a leaf module under MASE's names, in which dots become underscores."""
    return ((name.replace(".", "_"), parameter) for name, parameter in module.named_parameters())


def bind_arguments(call: OpCall, target: object, mase_op: str) -> MaseArguments:
    """Each argument of a call under MASE's name, and after them the parameters of the module called.

    target: the callable or module class itself, not a method's name.
    """
    args = (*reversed(call.args[:2]), *call.args[2:]) if is_reversed(target) else call.args
    signature = choose_overload(find_overloads(target, mase_op), args, call.kwargs)
    bound: MaseArguments = {}
    for name, value in _name_given_arguments(signature, mase_op, args, call.kwargs):
        _enter_argument(bound, name, value)
    if call.module is not None:
        bound |= {name: TensorType.of(p) for name, p in module_names(call.module) if name not in bound}
    return bound


def _name_given_arguments(
    signature: Signature, mase_op: str, args: tuple[Any, ...], kwargs: Kwargs
) -> Iterator[tuple[str, Any]]:
    """Torch's name and the value of each argument, keyword ones in the signature's order."""
    positional = [p.name for p in signature if p.positional]
    spread = len(args) > len(positional) or (args and isinstance(args[-1], int) and _is_list(signature, len(args) - 1))
    fixed = len(positional) - 1 if spread and positional else len(args)
    for position, value in enumerate(args):
        index = min(position, fixed)
        name = positional[index] if index < len(positional) else f"arg_{position}"
        name = RENAMED_ARGUMENTS.get((mase_op, name), "input" if name == "self" else name)
        yield (f"{name}_{position - fixed}" if spread and position >= fixed else name), value
    order = {p.name: i for i, p in enumerate(signature)}
    for name in sorted(kwargs, key=lambda key: order.get(key, len(order))):
        yield RENAMED_ARGUMENTS.get((mase_op, name), name), kwargs[name]


def _is_list(signature: Signature, position: int) -> bool:
    positional = [p for p in signature if p.positional]
    return position == len(positional) - 1 and positional[position].many and positional[position].name in SPREAD


#: Lists of numbers that methods also take one by one.
SPREAD = frozenset({"size", "shape", "dims", "repeats", "sizes"})


def _enter_argument(bound: MaseArguments, name: str, value: Any) -> None:
    for item in _tensors_of(name, value):
        bound[_next_data(bound)] = item
    if not _tensors_of(name, value):
        bound[name] = value


def _tensors_of(name: str, value: Any) -> tuple[TensorType, ...]:
    """The tensors that get numbers: the value itself, or the members of a list that holds only tensors."""
    if is_kept(name):
        return ()
    if isinstance(value, TensorType):
        return (value,)
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, TensorType) for item in value):
        return tuple(value)
    return ()


def _next_data(bound: Iterable[str]) -> str:
    return f"data_in_{sum(1 for name in bound if name.startswith('data_in_'))}"


# The cost of a model: parameters counted once, and the costs of calls added up by scope.


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs that add up.  flops: all operations.  matmul_flops: those that torch.utils.flop_counter also counts.

    bytes: read and written.  A multiply-accumulate is 2 operations.

    >>> graph = MaseGraph(nn.Linear(4, 2), {"input": torch.randn(3, 4)})
    >>> graph.scope_costs()[""]
    Cost(flops=48, matmul_flops=48, bytes=112)
    """

    flops: int = 0
    matmul_flops: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.matmul_flops + other.matmul_flops, self.bytes + other.bytes)


def cost_of(call: OpCall) -> Cost:
    """The cost of one call."""
    info = op_info(call.kind, call.target, call.module)
    flops = info.flops(call)
    return Cost(flops, flops if info.is_matmul_like else 0, info.bytes(call))


def parameters_of(module: nn.Module) -> tuple[int, int]:
    """(elements, bytes) of a module's parameters, its children's included; a shared one counts once.

    Parameters on meta count too; those of a lazy module that has not run yet do not.
    """
    known = [p for p in module.parameters() if not nn.parameter.is_lazy(p)]
    return sum(p.numel() for p in known), sum(p.numel() * p.element_size() for p in known)


def trainable_of(module: nn.Module) -> int:
    """Elements of a module's trainable parameters, which need a gradient; a shared one counts once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad and not nn.parameter.is_lazy(p))


def weights_of(module: nn.Module) -> WeightColumns:
    """The parameters under all their names, as the columns that `snapshot.WEIGHTS_KEYS` lists."""
    found: WeightColumns = {"name": [], "elements": [], "bytes": [], "same": []}
    first: dict[int, int] = {}
    for name, parameter in named_parameters(module):
        if not nn.parameter.is_lazy(parameter):
            index = len(found["name"])
            size = parameter.numel()
            found["name"].append(name)
            found["elements"].append(size)
            found["bytes"].append(size * parameter.element_size())
            found["same"].append(first.setdefault(id(parameter), index))
    return found


def total_cost(calls: Iterable[OpCall]) -> Cost:
    """The cost of all calls together."""
    return sum(map(cost_of, calls), Cost())


def by_scope(costs: Iterable[tuple[str, Cost]]) -> dict[str, Cost]:
    """Roll up costs by module path: "a.b" counts for "a.b", "a" and "", the whole model."""
    totals: dict[str, Cost] = {"": Cost()}
    for path, cost in costs:
        for scope in _enclosing_scopes(path):
            totals[scope] = totals.get(scope, Cost()) + cost
    return totals


def _enclosing_scopes(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]
