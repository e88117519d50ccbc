"""Sizes that the operands of a torch call have to agree in, callable by callable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A size that a call had and one that it wanted instead. tensor: whose size, in its dimension `at`."""

    tensor: torch.Tensor | None
    at: int
    had: int
    wanted: int


def _linear(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    yield Disagreement(input, input.dim() - 1, input.shape[-1], weight.shape[-1])


def _convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Any = None, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    groups = options.get("groups", more[3] if len(more) > 3 and isinstance(more[3], int) else 1)
    yield Disagreement(input, 1, input.shape[1], weight.shape[1] * groups)


def _transposed(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    yield Disagreement(input, 1, input.shape[1], weight.shape[0])


def _batch_norm(input: torch.Tensor, running_mean: Any = None, *more: Any, **options: Any) -> Iterator[Disagreement]:
    if running_mean is not None:
        yield Disagreement(input, 1, input.shape[1], running_mean.shape[0])


def _layer_norm(input: torch.Tensor, shape: Sequence[int], *more: Any, **options: Any) -> Iterator[Disagreement]:
    for back in range(1, len(shape) + 1):
        yield Disagreement(input, input.dim() - back, input.shape[-back], shape[-back])


def _group_norm(
    input: torch.Tensor, groups: int, weight: Any = None, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    yield Disagreement(input, 1, input.shape[1], weight.shape[0] if weight is not None else groups)


def _product(left: torch.Tensor, right: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    inner = right.shape[-2] if right.dim() > 1 else right.shape[0]
    yield Disagreement(left, left.dim() - 1, left.shape[-1], inner)
    yield Disagreement(right, max(0, right.dim() - 2), inner, left.shape[-1])
    if left.dim() == right.dim() and left.dim() > 2:
        yield Disagreement(left, 0, left.shape[0], right.shape[0])


def _joined(parts: Sequence[torch.Tensor], dim: int = 0, *more: Any, **options: Any) -> Iterator[Disagreement]:
    first, *others = parts
    along = dim % first.dim()
    for other, at in ((other, at) for other in others for at in range(first.dim()) if at != along):
        yield Disagreement(other, at, other.shape[at], first.shape[at])
        yield Disagreement(first, at, first.shape[at], other.shape[at])


def elementwise(*values: Any, **options: Any) -> Iterator[Disagreement]:
    """Sizes of operands that are broadcast, from the last dimension on."""
    found = [value for value in values if isinstance(value, torch.Tensor) and value.dim()]
    for one, other in ((one, other) for one in found for other in found if one is not other):
        for back in range(1, min(one.dim(), other.dim()) + 1):
            if 1 not in (one.shape[-back], other.shape[-back]):
                yield Disagreement(one, one.dim() - back, one.shape[-back], other.shape[-back])


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, width: int = 0, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    for each in (query, key, value):
        if width:
            yield Disagreement(each, each.dim() - 1, each.shape[-1], width)
    yield from elementwise(query, key)
    yield from elementwise(key, value)


#: Plain name of a callable -> sizes of its operands that should agree, from the arguments of a call.
OPERANDS: dict[str, Callable[..., Iterator[Disagreement]]] = {
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("batch_norm", "instance_norm"), _batch_norm),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "group_norm": _group_norm,
    **dict.fromkeys(("matmul", "mm", "bmm", "rmatmul"), _product),
    **dict.fromkeys(("cat", "concat", "concatenate"), _joined),
    "stack": lambda parts, *more, **options: elementwise(*parts),
    **dict.fromkeys(
        ("add", "sub", "mul", "truediv", "div", "where", "masked_fill", "masked_fill_", "addcmul", "maximum", "minimum",
         "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "eq",
         "cosine_similarity", "pairwise_distance", "cdist", "lerp", "pow", "and", "or", "lt", "logical_and", "einsum"),
        elementwise,
    ),
    **dict.fromkeys(("multi_head_attention_forward", "scaled_dot_product_attention"), _attention),
    "bilinear": lambda one, other, weight, *more: iter(
        (Disagreement(one, one.dim() - 1, one.shape[-1], weight.shape[1]),
         Disagreement(other, other.dim() - 1, other.shape[-1], weight.shape[2]))
    ),
}  # fmt: skip


#: Calls that disagree about channels or features, never about how many tokens there are.
CHANNELS = frozenset(OPERANDS) - {name for name, row in OPERANDS.items() if row in (elementwise, _joined, _product)}
