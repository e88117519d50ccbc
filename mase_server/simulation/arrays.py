"""Arrays of integers in files that numpy reads, written without it."""

from __future__ import annotations

import struct
import sys
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

_MAGIC = b"\x93NUMPY\x01\x00"
#: The header ends where the data can be mapped.
_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class Integers:
    """An array of int64, row-major. ValueError where values and shape do not agree."""

    shape: tuple[int, ...]
    values: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.values) != prod(self.shape):
            raise ValueError(f"{len(self.values)} values are no array of shape {self.shape}")


def npy(integers: Integers) -> bytes:
    """The bytes of a .npy file, version 1.0."""
    about = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {integers.shape!r}, }}"
    padding = -(len(_MAGIC) + 2 + len(about) + 1) % _ALIGNED
    header = f"{about}{' ' * padding}\n".encode("ascii")
    data = array("q", integers.values)
    if sys.byteorder == "big":
        data.byteswap()
    return _MAGIC + struct.pack("<H", len(header)) + header + data.tobytes()


def write_npz(path: Path, arrays: Mapping[str, Integers]) -> None:
    """Write a .npz file; the same arrays give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, integers in arrays.items():
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(integers), zipfile.ZIP_DEFLATED)
