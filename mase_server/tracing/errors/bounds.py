"""What eager PyTorch refuses and meta tensors do not check: indices of known value, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from mase_server.tracing.shadow import Shadows

Bounded = Iterator[tuple[Any, int]]
Row = Callable[..., Bounded]


class OutOfRangeError(IndexError):
    """An index of known value that is too large. index: the tensor of indices; bound: they have to be below."""

    def __init__(self, index: torch.Tensor, bound: int, largest: int) -> None:
        super().__init__(f"index {largest} is out of range of {bound}")
        self.index, self.bound, self.largest = index, bound, largest


class MaskShapeError(IndexError):
    """A mask that has not the shape of what it selects from, which is where it starts `at`."""

    def __init__(self, mask: torch.Tensor, tensor: torch.Tensor, at: int) -> None:
        shapes = zip(mask.shape, tensor.shape[at:], strict=False)
        wrong = at + next((index for index, (one, other) in enumerate(shapes) if one != other), 0)
        super().__init__(
            f"The shape of the mask {list(mask.shape)} at index {wrong - at} does not match the shape of the indexed "
            f"tensor {list(tensor.shape)} at index {wrong}"
        )


def check(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], shadows: Shadows) -> None:
    """Raise `OutOfRangeError` for a call whose index of known value is out of range."""
    row = ROWS.get(func)
    if row is None:
        return
    try:
        pairs = list(row(*args, **kwargs))
    except MaskShapeError:
        raise
    except (TypeError, IndexError, AttributeError):  # the call itself will say what is wrong with its arguments
        return
    for index, bound in pairs:
        if not isinstance(index, torch.Tensor) or index.dtype in (torch.bool, torch.uint8) or index.is_floating_point():
            continue
        real = shadows.get(index)
        with torch._C.DisableTorchFunction():
            largest = int(real.max()) if real is not None and real.numel() else -1
        if largest >= bound:
            raise OutOfRangeError(index, bound, largest)


def _embedding(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> Bounded:
    yield input, weight.shape[0]


def _item(tensor: torch.Tensor, index: Any, *value: Any) -> Bounded:
    items = index if isinstance(index, tuple) else (index,)
    at = 0
    for item in items:
        if item is Ellipsis:
            return
        if item is None or isinstance(item, bool):
            continue
        if isinstance(item, torch.Tensor) and item.dtype == torch.bool:
            selected = tensor.shape[at : at + item.dim()]
            if len(selected) == item.dim() and tuple(selected) != tuple(item.shape):
                raise MaskShapeError(item, tensor, at)
            at += item.dim()
            continue
        yield item, tensor.shape[at]
        at += 1


def _selected(input: torch.Tensor, dim: int, index: torch.Tensor, *more: Any, **options: Any) -> Bounded:
    if index.dim() > 1:
        raise RuntimeError("index_select(): Index is supposed to be a vector")
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    yield index, input.shape[dim]


def _no_bools(*values: Any, **options: Any) -> Bounded:
    if any(isinstance(value, torch.Tensor) and value.dtype == torch.bool for value in values):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    yield from ()


def _along(input: torch.Tensor, dim: int, index: Any, *more: Any, **options: Any) -> Bounded:
    yield index, input.shape[dim]


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> Bounded:
    if num_classes > 0:
        yield tensor, num_classes


def _target(input: torch.Tensor, target: torch.Tensor, *more: Any, ignore_index: int = -1, **options: Any) -> Bounded:
    if ignore_index < 0:
        yield target, input.shape[1 if input.dim() > 1 else 0]


def _lengths(data: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Bounded:
    yield lengths, data.shape[1 if batch_first else 0] + 1


#: callable -> pairs of an index and what it has to be below, from the arguments of a call.
ROWS: dict[Callable[..., Any], Row] = {
    F.embedding: _embedding,
    F.embedding_bag: _embedding,
    torch.embedding: lambda weight, indices, *more, **options: _embedding(indices, weight),
    F.one_hot: _one_hot,
    F.cross_entropy: _target,
    F.nll_loss: _target,
    torch._VF._pack_padded_sequence: _lengths,
    **dict.fromkeys((torch.Tensor.__getitem__, torch.Tensor.__setitem__), _item),
    **dict.fromkeys(
        (
            torch.gather, torch.Tensor.gather, torch.Tensor.scatter,
            torch.Tensor.scatter_, torch.Tensor.scatter_add, torch.Tensor.scatter_add_, torch.Tensor.index_add,
            torch.Tensor.index_add_, torch.scatter, torch.scatter_add, torch.index_add,
        ),
        _along,
    ),
    **dict.fromkeys((torch.index_select, torch.Tensor.index_select), _selected),
    **dict.fromkeys(
        (torch.sub, torch.rsub, torch.Tensor.sub, torch.Tensor.__sub__, torch.Tensor.__rsub__, torch.Tensor.__isub__),
        _no_bools,
    ),
}  # fmt: skip
