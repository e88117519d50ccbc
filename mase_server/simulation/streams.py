"""The streams of an emitted folder, from `sim/streams.json`, and the integers in files of their beats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from mase_server.simulation.processes import SimulationError

_ABOUT = Path("sim") / "streams.json"


@dataclass(frozen=True, slots=True)
class Stream:
    """A port of the top module. kind: "in" or "out".  lanes: elements of a beat.  width: bits of an element.

    shape: of a sample.  order: the row-major index of each element as it flows; None for row-major itself.
    """

    name: str
    kind: str
    lanes: int
    width: int
    fraction_width: int
    shape: tuple[int, ...]
    order: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Elements of a sample."""
        return prod(self.shape)

    def place(self, flowing: int) -> int:
        """The row-major index of the element that comes at this place of a sample."""
        return flowing if self.order is None else self.order[flowing]

    def elements(self, beats: Sequence[str]) -> Iterator[int]:
        """The signed integers of hexadecimal beats, as they flow."""
        mask, half = (1 << self.width) - 1, 1 << (self.width - 1)
        for beat in beats:
            word = int(beat, 16)
            for lane in range(self.lanes):
                yield (((word >> (lane * self.width)) & mask) ^ half) - half

    def samples(self, beats: Sequence[str]) -> Iterator[list[int]]:
        """The whole samples of hexadecimal beats, row-major."""
        sample = [0] * self.size
        for index, value in enumerate(self.elements(beats)):
            sample[self.place(index % self.size)] = value
            if (index + 1) % self.size == 0:
                yield list(sample)

    def expected(self, folder: Path) -> list[str]:
        """The beats that go in, or that have to come out."""
        return (folder / "sim" / f"{self.name}.hex").read_text(encoding="ascii").split()

    def got(self, folder: Path) -> list[str]:
        """The beats that came out at the last run."""
        return (folder / "sim" / f"{self.name}.hex.got").read_text(encoding="ascii").split()


def streams(folder: Path) -> tuple[Stream, ...]:
    """All streams, inputs first. SimulationError where the folder is none that was emitted."""
    try:
        found = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return tuple(_stream(name, about) for name, about in found.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SimulationError(f"{folder} was not emitted by mase-server: {_ABOUT}: {error}") from None


def _stream(name: str, about: dict[str, object]) -> Stream:
    numbers = {key: int(str(about[key])) for key in ("lanes", "width", "fraction_width")}
    shape, order = about["shape"], about["order"]
    if not isinstance(shape, list) or not (order is None or isinstance(order, list)):
        raise ValueError(f"{name} has no shape")
    return Stream(
        name, str(about["kind"]), **numbers, shape=tuple(shape), order=None if order is None else tuple(order)
    )
