"""Tensors in one file, in the layout of safetensors: sizes are checked before anything is made, nothing is executed.

8 bytes little-endian length of the header, a JSON header {name: {dtype, shape, data_offsets}}, then the values.
Source: https://huggingface.co/docs/safetensors. torch.load is not used, not even with `weights_only`: it interprets
a pickle, while this reader interprets nothing.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from mase_server.ir.allowed import CheckpointError

MAX_HEADER = 64 << 20
_DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "C64": torch.complex64, "C128": torch.complex128, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def can_hold(tensor: torch.Tensor) -> bool:
    """Is this a dense tensor of a type that the layout has?"""
    return tensor.layout is torch.strided and tensor.dtype in _NAMES and not tensor.is_meta


def is_pickle(start: bytes) -> bool:
    """Do these first bytes belong to a pickle, or to a zip file as torch.save writes it?"""
    return start[:4] == b"PK\x03\x04" or (start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5"))


def write_tensors(file: BinaryIO, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors, the widest element types first, so that all are aligned."""
    order = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in order:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for _, tensor in order:
        _write_values(file, tensor)


def _write_values(file: BinaryIO, tensor: torch.Tensor) -> None:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    if size:
        file.write((ctypes.c_char * size).from_address(plain.data_ptr()))


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file by name; CheckpointError for anything that is not exactly such a file."""
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if length > MAX_HEADER and is_pickle(start):  # a small length may look like a pickle's first bytes
            raise CheckpointError(
                f"{path} is a pickle, as torch.save and MASE write them; reading one executes it, so it is not read. "
                f"Load it where you trust it and export the graph again with mase_server"
            )
        if len(start) < 8 or length > MAX_HEADER:
            raise CheckpointError(f"{path} is not a file of tensors: it begins with {start!r}")
        header = _parse_header(path, file.read(length), length)
        size = path.stat().st_size - 8 - length
        if not size:
            return {
                name: _tensor_from_entry(path, name, entry, memoryview(b""), size) for name, entry in header.items()
            }
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            data = memoryview(mapped)[8 + length :]
            try:
                return {name: _tensor_from_entry(path, name, entry, data, size) for name, entry in header.items()}
            finally:
                data.release()


def _parse_header(path: Path, text: bytes, length: int) -> Mapping[str, object]:
    if len(text) < length:
        raise CheckpointError(f"{path} is cut off: its header should have {length} bytes and has {len(text)}")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a file of tensors: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is not a file of tensors: its header is a {type(header).__name__}")
    header.pop("__metadata__", None)
    return header


def _tensor_from_entry(path: Path, name: str, entry: Any, data: memoryview, size: int) -> torch.Tensor:
    match entry:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(start), int(end)]} if kind in _DTYPES:
            dtype = _DTYPES[kind]
        case _:
            raise CheckpointError(f"{path} describes tensor {name!r:.80} by {entry!r:.120}, which is not understood")
    if not all(type(side) is int and 0 <= side < 1 << 62 for side in shape):
        raise CheckpointError(f"{path} gives tensor {name!r:.80} the shape {shape!r:.80}")
    wanted = math.prod(shape) * dtype.itemsize
    if end > size:
        raise CheckpointError(f"{path} is cut off: tensor {name!r:.80} ends at byte {end} of {size}")
    if not 0 <= start <= end or end - start != wanted:
        raise CheckpointError(f"{path}: tensor {name!r:.80} of shape {shape} has {end - start} bytes, not {wanted}")
    return _tensor_from_bytes(path, name, data[start:end], dtype, shape)


def _tensor_from_bytes(path: Path, name: str, data: memoryview, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    try:
        if not len(data):
            return torch.empty(shape, dtype=dtype)
        raw = torch.frombuffer(data, dtype=torch.uint8).clone()
        # Any other byte in a bool is undefined behaviour in kernels.
        values = raw.ne(0) if dtype is torch.bool else raw.view(dtype)
        return values.reshape(shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: tensor {name!r:.80} of shape {shape!r:.80} cannot be made: {error}") from None
    finally:
        data.release()
