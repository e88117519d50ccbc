"""Sizes in which the operands of a torch call have to agree, callable by callable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from mase_server.ops.types import Kwargs
from mase_server.tracing.recording.calling import GETTER, Values, iterate_leaf_tensors
from mase_server.tracing.recording.rules import check_bounds
from mase_server.tracing.recording.shadow import MetaMode, Shadows


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A size of a call, and the one that it needs instead. tensor: has that size in its dimension `at`."""

    tensor: torch.Tensor | None
    at: int
    had: int
    wanted: int


def _compare_linear(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    yield Disagreement(input, input.dim() - 1, input.shape[-1], weight.shape[-1])


def _compare_convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: Any = None, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    groups = options.get("groups", more[3] if len(more) > 3 and isinstance(more[3], int) else 1)
    yield Disagreement(input, 1, input.shape[1], weight.shape[1] * groups)


def _compare_transposed(
    input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any
) -> Iterator[Disagreement]:
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


def _compare_product(left: torch.Tensor, right: torch.Tensor, *more: Any, **options: Any) -> Iterator[Disagreement]:
    inner = right.shape[-2] if right.dim() > 1 else right.shape[0]
    yield Disagreement(left, left.dim() - 1, left.shape[-1], inner)
    yield Disagreement(right, max(0, right.dim() - 2), inner, left.shape[-1])
    if left.dim() == right.dim() and left.dim() > 2:
        yield Disagreement(left, 0, left.shape[0], right.shape[0])


def _compare_joined(parts: Sequence[torch.Tensor], dim: int = 0, *more: Any, **options: Any) -> Iterator[Disagreement]:
    first, *others = parts
    along = dim % max(1, first.dim())
    for other, at in ((other, at) for other in others for at in range(first.dim()) if at != along):
        yield Disagreement(other, at, other.shape[at], first.shape[at])
        yield Disagreement(first, at, first.shape[at], other.shape[at])


def compare_elementwise(*values: Any, **options: Any) -> Iterator[Disagreement]:
    """Sizes of operands that are broadcast, from the last dimension on."""
    found = [value for value in values if isinstance(value, torch.Tensor) and value.dim()]
    for one, other in ((one, other) for one in found for other in found if one is not other):
        for back in range(1, min(one.dim(), other.dim()) + 1):
            if 1 not in (one.shape[-back], other.shape[-back]):
                yield Disagreement(one, one.dim() - back, one.shape[-back], other.shape[-back])


def _compare_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, width: int = 0, *more: Any, **options: Any
) -> Iterator[Disagreement]:
    for each in (query, key, value):
        if width:
            yield Disagreement(each, each.dim() - 1, each.shape[-1], width)
    yield from compare_elementwise(query, key)
    yield from compare_elementwise(key, value)


#: An input gets no more dimensions than a clip of pictures has so that it agrees with another tensor.
MOST_RANK = 5
#: Plain name of a callable -> sizes of its operands that should agree, from the arguments of a call.
OPERANDS: dict[str, Callable[..., Iterator[Disagreement]]] = {
    "linear": _compare_linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _compare_convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _compare_transposed),
    **dict.fromkeys(("batch_norm", "instance_norm"), _batch_norm),
    **dict.fromkeys(("layer_norm", "rms_norm"), _layer_norm),
    "group_norm": _group_norm,
    **dict.fromkeys(("matmul", "mm", "bmm", "rmatmul"), _compare_product),
    **dict.fromkeys(("cat", "concat", "concatenate"), _compare_joined),
    "stack": lambda parts, *more, **options: compare_elementwise(*parts),
    **dict.fromkeys(
        ("add", "sub", "mul", "truediv", "div", "where", "masked_fill", "masked_fill_", "addcmul", "maximum", "minimum",
         "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "eq",
         "cosine_similarity", "pairwise_distance", "cdist", "lerp", "pow", "and", "or", "lt", "logical_and", "einsum"),
        compare_elementwise,
    ),
    **dict.fromkeys(("multi_head_attention_forward", "scaled_dot_product_attention"), _compare_attention),
    "bilinear": lambda one, other, weight, *more: iter(
        (Disagreement(one, one.dim() - 1, one.shape[-1], weight.shape[1]),
         Disagreement(other, other.dim() - 1, other.shape[-1], weight.shape[2]))
    ),
}  # fmt: skip


#: Calls that disagree about channels or features, never about the number of tokens.
CHANNELS = frozenset(OPERANDS) - {
    name for name, row in OPERANDS.items() if row in (compare_elementwise, _compare_joined, _compare_product)
}


# Running a forward on meta so that its error shows the call that raised it, and the inputs that caused it.


class TrackingMode(MetaMode):
    """MetaMode that remembers from which tensors each tensor was computed, until that is dropped.

    lines: the number of successive lines outside of torch that completed torch calls.  made: their tensors, in
    order.
    """

    def __init__(self, shadows: Shadows) -> None:
        super().__init__(shadows)
        self.lines = 0
        self._line: tuple[Any, int] | None = None
        self.made: list[torch.Tensor] = []
        self.sources: dict[int, frozenset[int]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Values = (), kwargs: Kwargs | None = None
    ) -> Any:
        # Reading a shape is no progress, and copies nothing.
        if type(func) is GETTER:
            return self.run(func, args, kwargs or {})
        check_bounds(func, args, kwargs or {}, self.shadows)
        out = super().__torch_function__(func, types, args, kwargs)
        self._count_line()
        came_from = frozenset[int]().union(
            *(self.sources_of(tensor) for tensor in iterate_leaf_tensors((args, kwargs)))
        )
        for tensor in iterate_leaf_tensors(out):
            if id(tensor) not in self.sources:
                self.made.append(tensor)
                self.sources[id(tensor)] = came_from
        return out

    def _count_line(self) -> None:
        """Count lines, not calls: a layer may make more calls for one input than for another."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch.", "mase_server.")):
            frame = frame.f_back
        line = (frame.f_code, frame.f_lineno) if frame is not None else None
        if line != self._line:
            self._line = line
            self.lines += 1

    def sources_of(self, tensor: torch.Tensor) -> frozenset[int]:
        """Ids of the tensors, made by no call, that a tensor was computed from; its own if it is one."""
        return self.sources.get(id(tensor), frozenset((id(tensor),)))


@dataclass(frozen=True, slots=True)
class Trail:
    """The facts in an error's traceback: the torch call that raised it, if one did, and the run's mode.

    before: the progress of the run on meta that needed values, of which this one has them.
    """

    func: Callable[..., Any] | None = None
    args: Values = ()
    kwargs: Kwargs = field(default_factory=dict)
    mode: TrackingMode | None = None
    before: int = 0

    @property
    def progress(self) -> int:
        """The progress of the run, in lines: with values it came further than on meta, by some lines."""
        return self.mode.lines if self.mode is not None else self.before + bool(self.before)

    @property
    def name(self) -> str:
        """The call's plain name: `add` for `__add__`, `__radd__` and `torch.add` alike."""
        name = getattr(self.func, "__name__", "").strip("_")
        return {"radd": "add", "rsub": "sub", "rmul": "mul", "iadd": "add", "imul": "mul"}.get(name, name)


def trail_of(error: BaseException) -> Trail:
    """Read an error that came out of a `TrackingMode`; empty for any other."""
    found, trace = Trail(), error.__traceback__
    while trace is not None:
        held = trace.tb_frame.f_locals
        code = trace.tb_frame.f_code
        if code is TrackingMode.__torch_function__.__code__:
            found = Trail(held["func"], held["args"], held["kwargs"] or {}, held["self"])
        elif found.mode is None and isinstance(held.get("tracking"), TrackingMode):
            found = Trail(mode=held["tracking"])
        elif isinstance(held.get("on_meta"), BaseException):
            found = Trail(before=trail_of(held["on_meta"]).progress)
        trace = trace.tb_next
    return found


def list_operands(trail: Trail) -> Iterator[torch.Tensor]:
    """The tensors of the call that raised."""
    return iterate_leaf_tensors((trail.args, trail.kwargs))
