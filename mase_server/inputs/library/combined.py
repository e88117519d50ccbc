"""Tensors that are made from several: what a row of text with the places of an image in it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mase_server.inputs.spec import SequenceSpec, Spec


def _join(values: list[Any]) -> torch.Tensor:
    return torch.cat(values, -1)


def _flat(values: list[Any]) -> torch.Tensor:
    flattened: torch.Tensor = values[0].flatten(0, 1)
    return flattened


#: Words of the text form -> how the members become one tensor.
COMBINATIONS: dict[str, Callable[[list[Any]], Any]] = {"join": _join, "flat": _flat}


def join(*parts: Spec) -> SequenceSpec:
    """Parts side by side in the last dimension."""
    return SequenceSpec(parts, build=_join)


def flat(whole: Spec) -> SequenceSpec:
    """A tensor whose first two dimensions are one."""
    return SequenceSpec((whole,), build=_flat)


def word_of(build: Callable[[list[Any]], Any] | None) -> str:
    """The word for a way to combine; empty for any other."""
    return next((word for word, each in COMBINATIONS.items() if each is build), "")
