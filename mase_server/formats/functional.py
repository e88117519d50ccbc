"""Rounding as a function of a tensor and a text, as it stands in a graph: readable, and kept by checkpoints."""

from __future__ import annotations

from torch import Tensor

from mase_server.formats.registry import parse


def quantise(values: Tensor, format: str) -> Tensor:
    """The nearest values of a format, same shape and element type; the gradient goes straight through.

    format: its text, e.g. "fixed(8,4)".  ValueError for a text that names none, TypeError for an integer tensor.
    """
    return parse(format).quantise(values)
