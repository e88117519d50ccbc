"""A sweep: what is known already is taken from the file of results, the rest is measured and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from mase_server.sweep.engines import Engine
from mase_server.sweep.environment import environment_of
from mase_server.sweep.figures import Figure, front
from mase_server.sweep.points import Hashes, Point, Result, Surroundings
from mase_server.sweep.store import Store, keys_of


@dataclass(slots=True)
class Sweep:
    """The points of a grid with their results so far, None for those that have none.

    retry: are points that failed measured again?  again: are all?
    """

    store: Store
    keys: dict[str, Point]
    retry: bool = False
    again: bool = False
    results: dict[str, Result] = field(default_factory=dict)
    #: By the identity of a point: a map in it keeps it from being a key.
    _key_of: dict[int, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._key_of = {id(point): key for key, point in self.keys.items()}
        hashes = Hashes()
        for key in () if self.again else self.keys:
            if (known := self._known(key, hashes)) is not None:
                self.results[key] = known

    def _known(self, key: str, hashes: Hashes) -> Result | None:
        known = self.store.find(key, hashes)
        return None if known is None or (known.error and self.retry) else known

    @property
    def pending(self) -> list[Point]:
        """The points that are still to be measured."""
        return [point for key, point in self.keys.items() if key not in self.results]

    def wants(self, point: Point) -> bool:
        """Is a point still to be measured, or has another sweep on the same file done it meanwhile?"""
        if self.again:
            return True
        known = self._known(key := self._key_of[id(point)], Hashes())
        if known is not None:
            self.results[key] = known
        return known is None

    async def run(self, engine: Engine, tell: Callable[[Point, Result], None]) -> None:
        """Measure what is pending; each result is kept before it is told."""
        async with aclosing(engine.run(self.pending)) as found:
            async for point, result in found:
                key = self._key_of[id(point)]
                self.store.put(point, key, result)
                self.results[key] = result
                tell(point, result)

    def rows(self, objectives: Sequence[Figure]) -> list[Row]:
        """Every point with a result; the front is each model's own."""
        known = [(point, self.results[key]) for key, point in self.keys.items() if key in self.results]
        best: dict[int, bool] = {}
        for model in dict.fromkeys((point.file, result.model) for point, result in known):
            places = [index for index, (point, result) in enumerate(known) if (point.file, result.model) == model]
            best |= zip(places, front([known[place][1].figures for place in places], objectives), strict=True)
        return [Row(point, result, best[index]) for index, (point, result) in enumerate(known)]


@dataclass(frozen=True, slots=True)
class Row:
    """A point with its result. best: does no other point of the same model beat it?"""

    point: Point
    result: Result
    best: bool


def planned(
    points: Sequence[Point], results: Path, python: str | None, depends: Sequence[str]
) -> tuple[Surroundings, dict[str, Point]]:
    """The surroundings of the points, and the points by their keys."""
    environments = sorted({environment_of(point.file, python) for point in points})
    around = Surroundings(str(results.parent.absolute()), ", ".join(environments), tuple(depends))
    return around, keys_of(points, around, Hashes())
