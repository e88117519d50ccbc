"""Short names of element types, as in hints and `# mase:` comments, and their sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

#: torch's name (without "torch.") -> short name.
SHORT: dict[str, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn_x2": "f4e2m1fnx2",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "quint8": "qu8",
    "qint8": "qi8",
    "qint32": "qi32",
}

#: short name -> torch's name.
LONG: dict[str, str] = {short: name for name, short in SHORT.items()}


def short(torch_name: str) -> str:
    """The short name of `torch.float32` or `float32` ("f32"); an unknown type keeps its own name."""
    name = torch_name.removeprefix("torch.")
    return SHORT.get(name, name)


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a short element type such as "bf16"; types under a byte are stored in one."""
    bits = re.match(r"[a-z]+(\d+)", dtype)
    return max(1, int(bits.group(1)) // 8) if bits else 1


def tensor_bytes(tensor: Sequence[object], formats: Mapping[str, float] | None = None) -> float:
    """Bytes of a tensor value `[dtype, shape, symbols]`. formats: bits of an element of each number format."""
    dtype, shape = tensor[0], tensor[1]
    assert isinstance(dtype, str)
    assert isinstance(shape, list | tuple)
    bits = (formats or {}).get(dtype)
    return prod(shape) * (item_bytes(dtype) if bits is None else bits / 8)
