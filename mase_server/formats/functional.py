"""Rounding as functions that stand in graphs: readable, and kept by checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from mase_server.formats.registry import parse


def quantise(values: Tensor, format: str) -> Tensor:
    """The nearest values of a format, same shape and element type; the gradient goes straight through.

    format: its text, e.g. "fixed(8,4)".  ValueError for a text that names none, TypeError for an integer tensor.
    """
    return parse(format).quantise(values)


def with_parameters(layer: nn.Module, parameters: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    """What a layer gives with other parameters in place of its own, by name; its buffers stay its own.

    For layers that have a state or a forward that no single function computes.
    """
    return functional_call(layer, dict(parameters), args, kwargs)
