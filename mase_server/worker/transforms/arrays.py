"""Parameters and buffers as bytes, page by page: all that are asked for stand in a row, and a page is a part of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from mase_server.suggestions import suggest


def page(model: nn.Module, names: Sequence[str], start: int, count: int) -> dict[str, Any]:
    """{"arrays", "total", "next"}: of the bytes of the arrays in a row, `count` from `start` on.

    arrays: {"name", "dtype" as torch calls it, "shape", "size" in bytes, "offset" in the array, "data"} of each that
    has bytes there; of all, without data, where `count` is 0.  names: which, in their order; all without.  total:
    bytes.  next: where the rest starts, or None.  ValueError for a name that there is not, and for a tensor that is no
    plain array.
    """
    arrays, begin = [], 0
    for name, tensor in _chosen(dict(_tensors(model)), names):
        size = tensor.numel() * tensor.element_size()
        first, last = max(start, begin), min(start + count, begin + size)
        if count == 0 or first < last or (size == 0 and start <= begin <= start + count):
            told = {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
            data = _bytes(name, tensor, first - begin, last - begin)
            arrays.append({**told, "size": size, "offset": max(0, first - begin) if data else 0, "data": data})
        begin += size
    return {"arrays": arrays, "total": begin, "next": start + count if count and start + count < begin else None}


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _chosen(known: dict[str, torch.Tensor], names: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for name in names or known:
        if name not in known:
            raise ValueError(f"the model has no parameter or buffer {name!r}{suggest(name, known, 'it has')}")
        yield name, known[name]


def _bytes(name: str, tensor: torch.Tensor, first: int, last: int) -> bytes:
    """Some of the bytes of a tensor, row-major, in this machine's order of bytes, which is little-endian."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueError(f"{name} is of layout {tensor.layout} and type {tensor.dtype}, which is no plain array")
    plain = tensor.detach().cpu().contiguous()
    return ctypes.string_at(plain.data_ptr() + first, last - first) if first < last else b""
