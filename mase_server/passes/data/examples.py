"""Random inputs like an example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mase_server.tracing.rebuild import Rebuild
from mase_server.tracing.values import holds_tensor


def alike(example: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The same inputs with other values.

    Floats are normal with the example's mean and deviation; whole numbers are drawn from those of the example, so that
    each means something; ones and zeros, which are masks, stay.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def change(tensor: Tensor) -> Tensor:
        return _drawn(tensor, generator)

    return {
        name: Rebuild.of(value).changed(change) if holds_tensor(value) else value for name, value in example.items()
    }


def _drawn(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if tensor.is_meta or tensor.numel() < 2 or tensor.is_complex():
        return tensor
    if tensor.is_floating_point():
        finite = tensor.double()
        if not bool(finite.isfinite().all()) or _is_mask(tensor):
            return tensor
        mean, deviation = float(finite.mean()), float(finite.std())
        return (torch.randn(tensor.shape, generator=generator) * deviation + mean).to(tensor.dtype)
    if _is_mask(tensor):
        return tensor
    places = torch.randint(tensor.numel(), tensor.shape, generator=generator)
    return tensor.reshape(-1)[places]


def _is_mask(tensor: Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == 1)).all())
