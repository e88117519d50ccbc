"""Where a tensor is on a mesh of devices: for each axis of the mesh, whole, split along a dimension, or as parts of a
sum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mase_server.ops.types import TensorType

#: R: whole on every device.  P: every device has a part of a sum.  A number: split along that dimension.
Place = int | str
Layout = tuple[Place, ...]

_SPLIT = re.compile(r"S\((\d+)\)")


def text_of(layout: Layout) -> str:
    """As `S(1),R`: split along dimension 1 over the first axis of the mesh, whole along the second."""
    return ",".join(place if isinstance(place, str) else f"S({place})" for place in layout)


def parse(text: str) -> Layout:
    """The inverse of `text_of`; ValueError, quoting it, for what is none."""
    return tuple(_place(part.strip(), text) for part in text.split(","))


def _place(part: str, text: str) -> Place:
    if part == "R" or part == "P":
        return part
    found = _SPLIT.fullmatch(part)
    if found is None:
        raise ValueError(f"{text!r} is no layout: {part!r} is none of R, P and S(dimension)")
    return int(found[1])


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices in a grid.

    shape: devices along each axis.  bandwidths: bytes a second between them along each axis.  flops: operations a
    second of a device.  latency: seconds before a transfer begins.
    """

    shape: tuple[int, ...]
    bandwidths: tuple[float, ...]
    flops: float
    latency: float = 1e-6

    def whole(self) -> Layout:
        """The layout of a tensor that is whole everywhere."""
        return ("R",) * len(self.shape)

    def fits(self, layout: Layout, sizes: Sequence[int]) -> bool:
        """Can every split dimension be divided evenly?"""
        split: dict[int, int] = {}
        for place, devices in zip(layout, self.shape, strict=True):
            if isinstance(place, int):
                split[place] = split.get(place, 1) * devices
        return all(sizes[dim] % parts == 0 and sizes[dim] >= parts for dim, parts in split.items())

    def parts(self, layout: Layout) -> int:
        """Into how many parts a tensor is split."""
        return _product(n for place, n in zip(layout, self.shape, strict=True) if isinstance(place, int))

    def seconds(self, tensor: TensorType, source: Layout, target: Layout) -> float:
        """How long it takes to bring a tensor from one layout into another, axis after axis."""
        total = 0.0
        for axis, (before, after) in enumerate(zip(source, target, strict=True)):
            share = _SHARES.get((_kind(before), _kind(after)), 0.0) if before != after else 0.0
            if share:
                others = tuple("R" if index == axis else place for index, place in enumerate(source))
                devices = self.shape[axis]
                size = tensor.nbytes / self.parts(others)
                divided = devices if _kind(before) == _kind(after) == "S" else 1
                moved = share * size * (devices - 1) / devices / divided
                total += self.latency + moved / self.bandwidths[axis]
        return total


#: Of what a device then holds, how much it sends, in parts of (devices - 1) / devices. Nothing is sent to split what is
#: whole. Sums: a ring adds and distributes.
_SHARES = {("S", "R"): 1.0, ("S", "S"): 1.0, ("P", "S"): 1.0, ("P", "R"): 2.0}


def _kind(place: Place) -> str:
    return place if isinstance(place, str) else "S"


def _product(values: Any) -> int:
    total = 1
    for value in values:
        total *= value
    return total
