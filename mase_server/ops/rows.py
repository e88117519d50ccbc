"""The rows of the table: their grammar, `mase_op[=callable,...][:Module,...]`, and MASE's name and type of an operator.

Without `=` the callables are those named mase_op. A plain name is looked up in torch, torch.Tensor and
torch.nn.functional, each also with the trailing underscore of the in-place form, and in `_C._nn`; a dotted one
(`linalg.norm`, `F.unfold`, `Tensor.unfold`, `operator.add`) exactly where it says. Names that this torch lacks are
skipped. Modules are classes of torch.nn.
"""

from __future__ import annotations

import builtins
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from mase_server.formats import functional
from mase_server.ops.types import Formula, OpCall, TensorType, iterate_tensors

# Cost formulas that many operators share. FLOPs count a multiply-accumulate as 2, every other operation as 1.
#
# One operation is one elementary function of one element: an addition, an exponential, a comparison.

T = TypeVar("T")


def guard_formula(formula: Formula) -> Formula:
    """The formula, with 0 for a call that it does not understand: a missing cost must not lose the whole graph."""

    def guarded(call: OpCall) -> int:
        try:
            return int(formula(call))
        except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, StopIteration):
            return 0

    return guarded


def get_argument(call: OpCall, position: int, name: str, default: Any = None) -> Any:
    """An argument by position (the tensor of a method is 0) or by name."""
    return call.args[position] if position < len(call.args) else call.kwargs.get(name, default)


def input_tensors(call: OpCall) -> list[TensorType]:
    """The tensors given, positional ones first."""
    return [*iterate_tensors(call.args), *iterate_tensors(call.kwargs)]


def output_elements(call: OpCall) -> int:
    """Elements of the first tensor of the result; 0 where the result has none."""
    return next((tensor.numel for tensor in iterate_tensors(call.result)), 0)


def input_elements(call: OpCall) -> int:
    """Elements of the first tensor given; 0 if none is."""
    return next((tensor.numel for tensor in input_tensors(call)), 0)


def cost_nothing(_: OpCall) -> int:
    """Return 0."""
    return 0


def each_output(operations: int) -> Formula:
    """`operations` for each element of the result."""
    return lambda call: operations * output_elements(call)


def each_input(operations: int) -> Formula:
    """`operations` for each element of the first tensor given."""
    return lambda call: operations * input_elements(call)


def module_setting(call: OpCall, name: str, default: T) -> T:
    """A module's attribute, for formulas that serve a module and its function; `default` for a function."""
    value: T = getattr(call.module, name, default)
    return value


def count_traffic(call: OpCall) -> int:
    """Bytes of every tensor given, of the module's parameters and buffers, and of the results."""
    return sum(tensor.nbytes for tensor in input_tensors(call)) + weight_bytes(call) + result_bytes(call)


def gathered_bytes(call: OpCall) -> int:
    """Bytes where only chosen elements are touched: the indices, plus reading and writing each result element."""
    indices = sum(tensor.nbytes for tensor in input_tensors(call) if is_index(tensor))
    return indices + 2 * result_bytes(call)


def result_bytes(call: OpCall) -> int:
    """Bytes of the tensors in the result."""
    return sum(tensor.nbytes for tensor in iterate_tensors(call.result))


def weight_bytes(call: OpCall) -> int:
    """Bytes of the parameters and buffers of the module called; 0 for a function."""
    if call.module is None:
        return 0
    state = {id(t): t for t in (*call.module.parameters(), *call.module.buffers())}
    return sum(TensorType.of(t).nbytes for t in state.values() if not torch.nn.parameter.is_lazy(t))


def is_index(tensor: TensorType) -> bool:
    """True for element types that can index: integers and bool."""
    return tensor.dtype.startswith(("int", "uint", "bool"))


SPACES: dict[str, object] = {
    "torch": torch,
    "torch._C": torch._C,
    "Tensor": torch.Tensor,
    "F": nn.functional,
    "special": torch.special,
    "linalg": torch.linalg,
    "fft": torch.fft,
    "operator": operator,
    "builtins": builtins,
    "nn": nn,
    "rnn": nn.utils.rnn,
    "_VF": torch._C._VariableFunctions,
    "aten": torch.ops.aten,
    "formats": functional,
}

PLAIN_MODULES = (torch, nn.functional)
DEFAULT_SPACES = (torch, torch.Tensor, nn.functional)


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: its name, family and formulas, and where its callables and modules are found."""

    mase_op: str
    family: str
    flops: Formula
    bytes: Formula
    callables: tuple[str, ...]
    modules: tuple[str, ...]

    def targets(self) -> Iterator[object]:
        """The functions, methods and module classes that this torch has for the row."""
        for spelling in self.callables:
            yield from _find_callables(spelling)
        for name in self.modules:
            if (cls := getattr(nn, name, None)) is not None:
                yield cls


def parse_rows(family: str, flops: Formula, text: str, bytes: Formula = count_traffic) -> tuple[Row, ...]:
    """The rows that `text` lists, separated by white space."""
    return tuple(_parse_row(family, flops, bytes, entry) for entry in text.split())


def _parse_row(family: str, flops: Formula, bytes_: Formula, entry: str) -> Row:
    left, _, modules = entry.partition(":")
    name, _, callables = left.partition("=")
    if not callables:
        callables = name
        name = name.replace(".", "_")
    flops, bytes_ = guard_formula(flops), guard_formula(bytes_)
    return Row(name, family, flops, bytes_, tuple(callables.split(",")), tuple(modules.split(",")) if modules else ())


def _find_callables(spelling: str) -> Iterator[object]:
    space, dot, name = spelling.rpartition(".")
    places = (SPACES[space],) if dot else DEFAULT_SPACES
    names = (name,) if dot or name.endswith("_") else (name, f"{name}_")
    for place in places:
        for attribute in names:
            found = _attribute_of_place(place, attribute)
            if callable(found) and not isinstance(found, torch.dtype):
                yield found


def _attribute_of_place(place: object, name: str) -> object:
    """Without torch's module-level __getattr__, which is slow and may import."""
    return vars(place).get(name) if place in PLAIN_MODULES else getattr(place, name, None)


# MASE's seven operator types.
#
# MASE's own lists decide for the operators that they name. For the others its documentation decides: a function of
# torch.nn.functional and the module that wraps it are `module_related_func`, a module without such a function is
# `module`, other torch functions are `builtin_func`, and functions that only rearrange or describe data are
# `implicit_func`.

MODULE_RELATED = frozenset((
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "batch_norm", "conv1d", "conv2d", "layer_norm", "linear", "max_pool1d", "max_pool2d", "relu",
    "identity", "hardshrink", "silu", "elu", "sigmoid", "softshrink", "logsigmoid", "softmax", "selu", "tanh", "gelu",
    "softplus", "softsign",
))  # fmt: skip

BUILTIN = frozenset((
    "mul", "baddbmm", "addmm", "sub", "add", "matmul", "bmm", "mean", "pow", "sqrt", "div", "softmax", "max", "cumsum",
    "erf", "sin", "cos", "tan", "sinh", "cosh", "tanh", "greater", "gt", "less", "le", "lt", "sigmoid", "not", "min",
    "neg", "log", "arange", "range", "gelu", "scaled_dot_product_attention", "embedding", "df_split", "getitem",
    "zeros", "setitem", "invert", "exp", "normalize",
))  # fmt: skip

IMPLICIT = frozenset((
    "size", "view", "to", "bool", "int", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "reshape",
    "contiguous", "dropout", "eq", "ne", "gemm", "ge", "where", "_assert", "getattr", "long", "type_as", "clamp", "abs",
    "stack", "cast", "shape", "gather", "slice", "cat", "split", "tile", "expand", "full", "ones", "dim", "finfo",
    "masked_fill", "masked_fill_", "index_select", "detach", "tensor", "float", "type", "call", "sum", "unbind",
    "zeros_like", "flip", "repeat",
))  # fmt: skip

LISTS = (("module_related_func", MODULE_RELATED), ("builtin_func", BUILTIN), ("implicit_func", IMPLICIT))


def mase_type(row: Row, is_module: bool, is_query: bool) -> str:
    """MASE's type of a row's operator; a module is never a `builtin_func`."""
    listed = next((kind for kind, names in LISTS if row.mase_op in names), None)
    if listed and not (is_module and listed == "builtin_func"):
        return listed
    if row.family == "shape" or is_query:
        return "implicit_func"
    if has_functional(row):
        return "module_related_func"
    return "module" if is_module else "builtin_func"


def has_functional(row: Row) -> bool:
    """Does torch.nn.functional have one of the row's callables?"""
    names = (name.removeprefix("F.") for name in row.callables)
    return any("." not in name and hasattr(nn.functional, name) for name in names)


def snake_case(name: str) -> str:
    """A class name in snake case: BertSelfAttention -> bert_self_attention, Conv1D -> conv1d."""
    name = re.sub(r"(?<=\d)D\b", "d", name)
    name = re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return name.lower().strip("_")


def name_of(target: object) -> str:
    """A callable's own name; for a partial its function's name, for an autograd function's apply its class's."""
    if isinstance(target, str):
        return target
    if isinstance(target, partial):
        return name_of(target.func)
    owner = getattr(target, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return owner.__name__
    return str(getattr(target, "__name__", type(target).__name__))
