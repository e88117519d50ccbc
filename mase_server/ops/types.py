"""The types of the operator table: tensors without values, calls, and descriptions of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn

#: The keyword arguments of a call, by the names of the parameters.
Kwargs = dict[str, Any]
#: The arguments of a call under MASE's names; those of modules have the parameters too, tensors are `TensorType`s.
MaseArguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor without its values.  dtype: torch's name without "torch.", e.g. "float32".  shape: outermost first."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar tensor."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, stored densely; ValueError for a dtype that this torch does not have."""
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(
                f"torch {torch.__version__} has no element type {self.dtype!r}; give its name, e.g. 'float32'"
            )
        return self.numel * dtype.itemsize

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorType:
        """The type of a tensor, on any device, meta included."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call as it ran: fx's node kind, its target, and every tensor replaced by its `TensorType`, nested as it was.

    target: the callable, the method's name, or the module instance.  module: the instance, for call_module.
    """

    kind: str
    target: object
    args: tuple[Any, ...] = ()
    kwargs: Kwargs = field(default_factory=dict)
    result: Any = None
    module: nn.Module | None = None


Formula = Callable[[OpCall], int]


@dataclass(frozen=True, slots=True)
class OpInfo:
    """The description of an operator before it is called.

    mase_op: MASE's name where MASE has one, else torch's own.  mase_type: one of `MASE_TYPES`.  arg_names: MASE's
    names of the parameters in torch's order, then of the module's own parameters; parameters: torch's names of the
    former. implicit: no hardware of its own.  known: False for a callable that the table does not have; its flops
    are 0. flops(call): operations, a multiply-accumulate counts as 2.  bytes(call): read and written.
    """

    mase_op: str
    mase_type: str
    family: str
    arg_names: tuple[str, ...]
    parameters: tuple[str, ...]
    implicit: bool
    known: bool
    flops: Formula
    bytes: Formula

    @property
    def is_matmul_like(self) -> bool:
        """Does torch.utils.flop_counter count it: a matrix product, a convolution, attention, a recurrence?"""
        return self.family in MATMUL_FAMILIES


MASE_TYPES = (
    "module", "module_related_func", "builtin_func", "implicit_func", "placeholder", "get_attr", "output",
)  # fmt: skip

FAMILIES = (
    "conv", "matmul", "norm", "activation", "pool", "attention", "recurrent", "embedding", "elementwise", "reduction",
    "shape", "creation", "index", "loss", "fft", "other",
)  # fmt: skip

MATMUL_FAMILIES = frozenset({"matmul", "conv", "attention", "recurrent"})


def iterate_tensors(value: Any) -> Iterator[TensorType]:
    """Yield every tensor in a nested value, in order; tuples, lists, dicts and slices are searched."""
    if isinstance(value, TensorType):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from iterate_tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from iterate_tensors(item)
    elif isinstance(value, slice):
        yield from iterate_tensors((value.start, value.stop, value.step))
