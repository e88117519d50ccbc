"""Rounding as functions that graphs can call: readable, and kept by checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mase_server.formats.format import NumberFormat
from mase_server.formats.registry import parse


def quantise(values: Tensor, format: str) -> Tensor:
    """Round to the nearest values of a format: same shape and element type; the gradient goes straight through.

    format: its text, e.g. "fixed(8,4)".  ValueError for a text that names no format, TypeError for an integer
    tensor.
    """
    if torch.compiler.is_dynamo_compiling():
        return _rounded(values, format)  # type: ignore[no-any-return]
    return parse(format).quantise(values)


def round_gradient(values: Tensor, format: str) -> Tensor:
    """Return the values unchanged; in the backward pass, round their gradient to a format. Errors as of `quantise`."""
    if torch.compiler.is_dynamo_compiling():
        return _with_rounded_gradient(values, format)  # type: ignore[no-any-return]
    return _RoundedGradient.apply(values, parse(format))  # type: ignore[no-any-return, no-untyped-call]


def with_parameters(layer: nn.Module, parameters: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    """Call a layer with other parameters, given by name, in place of its own; its buffers stay its own.

    For layers that have a state, or a forward that no single function computes.
    """
    return functional_call(layer, dict(parameters), args, kwargs)


class _RoundedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, format: NumberFormat) -> Tensor:
        ctx.format = format
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.format.round(gradients[0]), None


# torch.compile sees each rounding as one operator. Its kernel is the eager one, so values are the same to the bit, and
# the author of a format need not know what can be compiled.


@torch.library.custom_op("mase_server::rounded", mutates_args=(), schema="(Tensor values, str format) -> Tensor")
def _rounded(values: Tensor, format: str) -> Tensor:
    rounded = parse(format).round(values).contiguous()
    return rounded.clone() if rounded.data_ptr() == values.data_ptr() else rounded


@torch.library.custom_op("mase_server::with_rounded_gradient", mutates_args=(), schema="(Tensor x, str y) -> Tensor")
def _with_rounded_gradient(values: Tensor, format: str) -> Tensor:
    return values.clone(memory_format=torch.contiguous_format)


@_rounded.register_fake
@_with_rounded_gradient.register_fake
def _(values: Tensor, format: str) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _keep_mask(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
    mask = parse(inputs[1]).passes_gradient(inputs[0])
    ctx.has_mask = mask is not None
    ctx.save_for_backward(*([] if mask is None else [mask]))


def _keep_format(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
    ctx.format = inputs[1]


_rounded.register_autograd(
    lambda ctx, gradient: (gradient * ctx.saved_tensors[0] if ctx.has_mask else gradient, None),
    setup_context=_keep_mask,
)
_with_rounded_gradient.register_autograd(
    lambda ctx, gradient: (_rounded(gradient, ctx.format), None), setup_context=_keep_format
)
