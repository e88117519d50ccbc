"""Rounding as functions that stand in graphs: readable, and kept by checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mase_server.formats.format import NumberFormat
from mase_server.formats.registry import parse


def quantise(values: Tensor, format: str) -> Tensor:
    """The nearest values of a format, same shape and element type; the gradient goes straight through.

    format: its text, e.g. "fixed(8,4)".  ValueError for a text that names none, TypeError for an integer tensor.
    """
    return parse(format).quantise(values)


def round_gradient(values: Tensor, format: str) -> Tensor:
    """The same values; on the way back their gradient is rounded to a format. Errors as of `quantise`."""
    return _RoundedGradient.apply(values, parse(format))  # type: ignore[no-any-return, no-untyped-call]


def with_parameters(layer: nn.Module, parameters: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    """What a layer gives with other parameters in place of its own, by name; its buffers stay its own.

    For layers that have a state or a forward that no single function computes.
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
