"""Cost formulas that many operators share. FLOPs count a multiply-accumulate as 2, every other operation as 1.

One operation is one elementary function of one element: an addition, an exponential, a comparison.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from mase_server.ops.types import Formula, OpCall, TensorType, tensors

T = TypeVar("T")


def safe(formula: Formula) -> Formula:
    """The formula, but 0 for a call that it does not understand: a missing cost must not lose the whole graph."""

    def guarded(call: OpCall) -> int:
        try:
            return int(formula(call))
        except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, StopIteration):
            return 0

    return guarded


def argument(call: OpCall, position: int, name: str, default: Any = None) -> Any:
    """An argument by position (the tensor of a method is 0) or by name."""
    return call.args[position] if position < len(call.args) else call.kwargs.get(name, default)


def inputs(call: OpCall) -> list[TensorType]:
    """The tensors given, positional ones first."""
    return [*tensors(call.args), *tensors(call.kwargs)]


def output_elements(call: OpCall) -> int:
    """Elements of the first tensor of the result; 0 where the result has none."""
    return next((tensor.numel for tensor in tensors(call.result)), 0)


def input_elements(call: OpCall) -> int:
    """Elements of the first tensor given; 0 without one."""
    return next((tensor.numel for tensor in inputs(call)), 0)


def free(_: OpCall) -> int:
    """Nothing."""
    return 0


def each_output(operations: int) -> Formula:
    """`operations` for each element of the result."""
    return lambda call: operations * output_elements(call)


def each_input(operations: int) -> Formula:
    """`operations` for each element of the first tensor given."""
    return lambda call: operations * input_elements(call)


def setting(call: OpCall, name: str, default: T) -> T:
    """A module's attribute, for formulas that serve a module and its function; `default` for a function."""
    value: T = getattr(call.module, name, default)
    return value


def traffic(call: OpCall) -> int:
    """Bytes of every tensor given, of the module's parameters and buffers, and of the results."""
    return sum(tensor.nbytes for tensor in inputs(call)) + weight_bytes(call) + result_bytes(call)


def gathered(call: OpCall) -> int:
    """Bytes where only chosen elements are touched: the indices, then each result element read and written."""
    indices = sum(tensor.nbytes for tensor in inputs(call) if is_index(tensor))
    return indices + 2 * result_bytes(call)


def result_bytes(call: OpCall) -> int:
    """Bytes of the tensors in the result."""
    return sum(tensor.nbytes for tensor in tensors(call.result))


def weight_bytes(call: OpCall) -> int:
    """Bytes of the parameters and buffers of the module called; 0 for a function."""
    if call.module is None:
        return 0
    state = {id(t): t for t in (*call.module.parameters(), *call.module.buffers())}
    return sum(TensorType.of(t).nbytes for t in state.values() if not torch.nn.parameter.is_lazy(t))


def is_index(tensor: TensorType) -> bool:
    """True for element types that can index: integers and bool."""
    return tensor.dtype.startswith(("int", "uint", "bool"))
