"""Number formats of tensors and numbers, in MASE's words: a type and its precision in bits."""

from __future__ import annotations

from typing import Any

import torch

from mase_server.ops.types import TensorType

#: dtype (torch's name) -> MASE's type and precision.
FORMATS: dict[str, tuple[str, int]] = {
    **{f"float{bits}": ("float", bits) for bits in (16, 32, 64)},
    "bfloat16": ("float", 16),
    **{
        f"float8_{kind}": ("float", 8)
        for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
    },
    **{f"{sign}int{bits}": ("int", bits) for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": ("bool", 1),
    **{f"complex{bits}": ("complex", bits) for bits in (32, 64, 128)},
}  # fmt: skip

#: Python's numbers, as torch computes with them.
NUMBERS: dict[type, tuple[str, int]] = {
    bool: ("bool", 1), int: ("int", 64), float: ("float", 64), complex: ("complex", 128),
}  # fmt: skip


def format_of(dtype: str) -> tuple[str, list[int]]:
    """MASE's type and precision of an element type, e.g. "int64" -> ("int", [64]); ("NA", []) for one unknown."""
    kind, bits = FORMATS.get(dtype, ("NA", 0))
    return kind, [bits] if bits else []


def number_format(value: Any) -> tuple[str, list[int]]:
    """MASE's type and precision of a Python number; ("NA", []) for anything else."""
    kind, bits = NUMBERS.get(type(value), ("NA", 0))
    return kind, [bits] if bits else []


def torch_dtype(tensor: TensorType) -> torch.dtype | str:
    """torch's own dtype object; the name where this torch does not have it."""
    found: torch.dtype | str = getattr(torch, tensor.dtype, tensor.dtype)
    return found
