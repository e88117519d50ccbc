"""Which of MASE's seven types an operator has.

MASE's own lists decide for the operators that it names; for the others its documentation does: a function of
torch.nn.functional and the module that wraps it are `module_related_func`, a module without such a function is
`module`, other torch functions are `builtin_func`, and what only rearranges or describes data is `implicit_func`.
"""

from __future__ import annotations

import re
from functools import partial

import torch
from torch import nn

from mase_server.ops.rows import Row

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
    """True if torch.nn.functional has one of the row's callables."""
    names = (name.removeprefix("F.") for name in row.callables)
    return any("." not in name and hasattr(nn.functional, name) for name in names)


def snake_case(name: str) -> str:
    """A class name in snake case: BertSelfAttention -> bert_self_attention, Conv1D -> conv1d."""
    name = re.sub(r"(?<=\d)D\b", "d", name)
    name = re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return name.lower().strip("_")


def name_of(target: object) -> str:
    """What a callable calls itself; for a partial its function's name, for an autograd function's apply its class's."""
    if isinstance(target, str):
        return target
    if isinstance(target, partial):
        return name_of(target.func)
    owner = getattr(target, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return owner.__name__
    return str(getattr(target, "__name__", type(target).__name__))
