"""What hardware was made of one model of a trace, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mase_server.building import EMISSION_KEYS, Build

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot

#: So many emissions of one trace of a model are remembered, so that undo and redo need not ask again.
_KEPT = 4
#: How the problem of an emission begins where another diagnostic tells its cause: a pass's, or the trace's own.
PASS_FAILED = "no hardware is made, because a pass before it failed"
TOLD_ELSEWHERE = (PASS_FAILED, "the forward of ")


@dataclass(frozen=True, slots=True)
class Emission:
    """One emission. model: index in `snapshot`, whose rows are told.  told: a map of `building.EMISSION_KEYS`.

    steps: texts of the model's own pipeline.  stale: the newest text, pipeline and build may give another one.
    problem: why they give none, "" where they do, or it is being made.
    """

    snapshot: GraphSnapshot = field(repr=False)
    model: int
    build: Build
    steps: tuple[str, ...]
    told: Mapping[str, Any] = field(repr=False)
    places: Mapping[int, tuple[int, ...]] = field(repr=False)
    stale: bool = False
    problem: str = ""

    @classmethod
    def of(cls, snapshot: GraphSnapshot, model: int, build: Build, steps: tuple[str, ...], told: Any) -> Emission:
        """Of a map as a child sends it; KeyError, TypeError or ValueError for what is none."""
        if missing := sorted(set(EMISSION_KEYS) - set(told)):
            raise ValueError(f"what was emitted lacks {', '.join(missing)}")
        places: dict[int, tuple[int, ...]] = {}
        for index, operation in enumerate(told["operations"]):
            for row in operation["rows"]:
                places[row] = (*places.get(row, ()), index)
        return cls(snapshot, model, build, steps, told, places)

    @property
    def title(self) -> str:
        """Of its model."""
        return self.snapshot.titles[self.model]

    def of_row(self, row: int) -> tuple[Mapping[str, Any], ...]:
        """The operations, as `building.OPERATION_KEYS` has them, that a row of the table nodes is part of."""
        return tuple(self.told["operations"][index] for index in self.places.get(row, ()))

    def is_of(self, snapshot: GraphSnapshot) -> bool:
        """Does it speak of this trace?"""
        return self.snapshot.payload is snapshot.payload

    def fits(self, snapshot: GraphSnapshot, build: Build, steps: tuple[str, ...]) -> bool:
        """Is it what this trace, build and pipeline give?"""
        return self.is_of(snapshot) and (self.build, self.steps) == (build, steps)

    def outdated(self, problem: str = "") -> Emission:
        """The same, which is not known to be of the newest text any longer."""
        return replace(self, stale=True, problem=problem)

    def without_text(self) -> dict[str, Any]:
        """`told`, without the text."""
        return {key: value for key, value in self.told.items() if key != "text"}


@dataclass(slots=True)
class Memory:
    """The emissions of the newest trace of one model, the newest last."""

    found: list[Emission] = field(default_factory=list)

    def find(self, snapshot: GraphSnapshot, build: Build, steps: tuple[str, ...]) -> Emission | None:
        """What this trace, build and pipeline gave."""
        return next((each for each in self.found if each.fits(snapshot, build, steps)), None)

    def put(self, emission: Emission) -> None:
        """Remember it; what was made of another trace is forgotten."""
        others = [each for each in self.found if each.is_of(emission.snapshot)]
        others = [each for each in others if not each.fits(emission.snapshot, emission.build, emission.steps)]
        self.found = [*others, emission][-_KEPT:]
