"""Where the integers that came differ from those that had to come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from mase_server.simulation.streams import Stream


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element. vector: of which sample, from 0.  element: its row-major index in the sample."""

    output: str
    vector: int
    element: int
    expected: int
    got: int

    def to_wire(self) -> dict[str, object]:
        """As a map."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences. count: elements that arrived and are wrong.  first: None if there is none."""

    count: int
    first: Mismatch | None


def differences(folder: Path, outputs: Iterable[Stream]) -> Differences:
    """All elements that came at the last run, against the expected ones."""
    count, first = 0, None
    for stream in outputs:
        wanted, came = stream.expected(folder), stream.got(folder)
        if came == wanted[: len(came)]:
            continue
        pairs = zip(stream.elements(wanted), stream.elements(came), strict=False)
        for index, (expected, got) in enumerate(pairs):
            if expected != got:
                count += 1
                vector, place = divmod(index, stream.size)
                first = first or Mismatch(stream.name, vector, stream.place(place), expected, got)
    return Differences(count, first)
