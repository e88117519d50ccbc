"""Meta rules: what torch's own meta kernels cannot do, or do more strictly than eager.

A rule is a function `(shadows, func, args, kwargs) -> result`, registered for a torch callable with `@meta_rule(func)`.
A project's own code may register more for its own kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from mase_server.tracing.errors import losses as losses  # its rows are registered by importing it
from mase_server.tracing.errors.complaints import Call
from mase_server.tracing.errors.explainers import PRODUCTS, explain_call, stricter_than_meta
from mase_server.tracing.errors.lenient import LENIENT, ask_eager
from mase_server.tracing.values import tensor_type

if TYPE_CHECKING:
    from mase_server.tracing.shadow import Shadows

Rule = Callable[["Shadows", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

#: callable -> its rule.
RULES: dict[Callable[..., Any], Rule] = {}

#: Callables whose rule looks at types alone, so that one result serves all calls with the same types.
BY_TYPE: frozenset[Callable[..., Any]] = PRODUCTS | LENIENT


def meta_rule(*functions: Callable[..., Any] | None) -> Callable[[Rule], Rule]:
    """Register a rule for torch callables; None (a callable that this torch does not have) is skipped."""

    def register(rule: Rule) -> Rule:
        RULES.update({function: rule for function in functions if function is not None})
        return rule

    return register


@meta_rule(getattr(torch, "_grouped_mm", None), getattr(torch.nn.functional, "grouped_mm", None))
def _grouped_mm(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The meta kernel insists on bfloat16, and so on its alignment; eager on that of the real type."""
    first, second, *rest = args
    try:
        out = func(first.to(torch.bfloat16), second.to(torch.bfloat16), *rest, **kwargs)
    except RuntimeError as error:
        if "16 bytes" not in str(error) or not (_is_aligned(first) and _is_aligned(second)):
            raise
        groups = rest[0] if rest else kwargs.get("offs")
        return first.new_empty(_GROUPED[first.dim(), second.dim()](first.shape, second.shape, groups))
    return out.to(first.dtype)


#: Numbers of dimensions -> the shape of a grouped product.
_GROUPED: dict[tuple[int, int], Callable[[Any, Any, Any], tuple[int, ...]]] = {
    (2, 2): lambda first, second, groups: (len(groups), first[0], second[1]),
    (2, 3): lambda first, second, groups: (first[0], second[2]),
    (3, 2): lambda first, second, groups: (first[1], second[1]),
    (3, 3): lambda first, second, groups: (first[0], first[1], second[2]),
}


def _is_aligned(matrix: torch.Tensor) -> bool:
    """Do its rows, or its columns where those are contiguous, begin at multiples of 16 bytes?"""
    row, column = matrix.stride()[-2:]
    return (row if column == 1 else column) * matrix.element_size() % 16 == 0


@meta_rule(*LENIENT)
def _lenient(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What no kernel of eager takes, the meta kernel lets pass."""
    out = func(*args, **kwargs)
    ask_eager(func, args, kwargs)
    return out


@meta_rule(*PRODUCTS)
def _product(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Meta kernels multiply mixed types; eager refuses, and the person should hear of it here."""
    found = stricter_than_meta(Call(func, *tree_map_only(torch.Tensor, tensor_type, (args, kwargs))))
    if found is not None:
        raise RuntimeError(found.text)
    return _lenient(shadows, func, args, kwargs)


@meta_rule(*(getattr(torch.nn.functional, name) for name in ("binary_cross_entropy", "cross_entropy", "nll_loss")))
def _loss(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Meta kernels do not look at the type of a target."""
    found = explain_call(Call(func, *tree_map_only(torch.Tensor, tensor_type, (args, kwargs))))
    if found is not None:
        raise RuntimeError(found.text)
    return func(*args, **kwargs)


@meta_rule(torch.Tensor.__getitem__)
def _getitem(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A boolean mask of known value selects a known number of elements: index by positions instead."""
    tensor, index = args
    items = index if isinstance(index, tuple) else (index,)
    out: list[Any] = []
    for item in items:
        mask = shadows.get(item) if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8) else None
        if mask is None or mask.dim() == 0:
            out.append(item)
        else:
            out.extend(shadows.twin(positions) for positions in mask.nonzero(as_tuple=True))
    # A list may still be read as a tuple: `x[[slice(None), 0]]` is `x[:, 0]`, as torch decides.
    return func(tensor, index if isinstance(index, list) else tuple(out))


@meta_rule(torch.masked_select, torch.Tensor.masked_select)
def _masked_select(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    mask = shadows.get(args[1] if len(args) > 1 else kwargs["mask"])
    if mask is None:
        return func(*args, **kwargs)
    shape = torch.broadcast_shapes(mask.shape, tensor.shape)  # type: ignore[no-untyped-call]
    return tensor.new_empty(int(mask.expand(shape).sum()))


@meta_rule(torch.repeat_interleave, torch.Tensor.repeat_interleave)
def _repeat_interleave(
    shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats")
    real = shadows.get(repeats) if isinstance(repeats, torch.Tensor) else None
    if real is None:
        return func(*args, **kwargs)
    size = int(real.sum()) if real.numel() > 1 else None
    rest = {key: value for key, value in kwargs.items() if key not in ("repeats", "output_size")}
    if size is None:
        return func(args[0], int(real), *args[2:], **rest)
    return func(args[0], repeats, *args[2:], **rest, output_size=size)


# Packed sequences: the C++ kernels read lengths and batch sizes, which are known, on the CPU.


@meta_rule(torch._VF._pack_padded_sequence, torch._pack_padded_sequence)
def _pack(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data, lengths, batch_first = args
    real = shadows.get(lengths) if lengths.is_meta else lengths
    if real is None:
        return func(*args, **kwargs)
    # As many rows and steps as the data has, so that lengths that do not fit them are refused as in eager.
    _, sizes = func(torch.zeros(*data.shape[:2], 1), real, batch_first)
    packed = data.new_empty(int(sizes.sum()), *data.shape[2:])
    return packed, shadows.twin(sizes)


@meta_rule(torch._VF._pad_packed_sequence, torch._pad_packed_sequence)
def _pad(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data, batch_sizes, batch_first, value, total = args
    real = shadows.get(batch_sizes) if batch_sizes.is_meta else batch_sizes
    if real is None:
        return func(*args, **kwargs)
    padded, lengths = func(torch.zeros(int(real.sum()), 1), real, batch_first, value, total)
    return data.new_empty(*padded.shape[:2], *data.shape[1:]), shadows.twin(lengths)


@meta_rule(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def _recurrent(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Shapes alone, since the meta kernel goes through every time step.

    The arguments are (data, hidden, weights, ...), or (data, batch_sizes, hidden, weights, ...) of a packed sequence.
    """
    if isinstance(args[1], torch.Tensor) and isinstance(args[3], list | tuple):
        data, _, hidden, weights, _, _, _, _, bidirectional = args
        batch_first = False
        # A packed sequence is not checked by the layer itself: eager's first product refuses what does not fit.
        torch.nn.functional.linear(data, weights[0])
    else:
        data, hidden, _, _, _, _, _, bidirectional, batch_first = args
    states = tuple(hidden) if isinstance(hidden, list | tuple) else (hidden,)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    # Kernels compute time first: what is returned batch first is a view.
    lead = data.shape[:-1][::-1] if batch_first else data.shape[:-1]
    out = data.new_empty(*lead, width)
    return out.transpose(0, 1) if batch_first else out, *(state.new_empty(state.shape) for state in states)


@meta_rule(getattr(torch, "_nested_tensor_from_mask_left_aligned", None))
def _left_aligned(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asked by nn.TransformerEncoder before it takes its nested-tensor path, which gives the same shapes: not taken."""
    return False
