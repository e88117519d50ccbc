"""The hardware emitted for one model of a trace, and the emissions that are remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mase_server.building import EMISSION_KEYS, Build
from mase_server.protocol.records import EmissionRecord, Operation

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot
    from mase_server.protocol import answers

#: Maximum number of emissions remembered for one model of a trace, so that undo and redo need not emit again.
_KEPT = 4
#: Beginnings of emission problems whose cause another diagnostic reports: a failed pass, or an error of the trace.
PASS_FAILED = "no hardware is made, because a pass before it failed"
TOLD_ELSEWHERE = (PASS_FAILED, "the forward of ")


@dataclass(frozen=True, slots=True)
class Emission:
    """One emission. model: index in `snapshot`, whose rows are reported.  told: a map of `building.EMISSION_KEYS`.

    steps: texts of the model's own pipeline.  stale: the newest text, pipeline and build may give another result.
    problem: why they give no result, "" if they do or the result is being made.
    """

    snapshot: GraphSnapshot = field(repr=False)
    model: int
    build: Build
    steps: tuple[str, ...]
    told: EmissionRecord = field(repr=False)
    places: Mapping[int, tuple[int, ...]] = field(repr=False)
    stale: bool = False
    problem: str = ""

    @classmethod
    def of(cls, snapshot: GraphSnapshot, model: int, build: Build, steps: tuple[str, ...], told: Any) -> Emission:
        """Convert a map that a child sent; KeyError, TypeError or ValueError if it is malformed."""
        if missing := sorted(set(EMISSION_KEYS) - set(told)):
            raise ValueError(f"what was emitted lacks {', '.join(missing)}")
        places: dict[int, tuple[int, ...]] = {}
        for index, operation in enumerate(told["operations"]):
            for row in operation["rows"]:
                places[row] = (*places.get(row, ()), index)
        return cls(snapshot, model, build, steps, told, places)

    @property
    def title(self) -> str:
        """The title of its model."""
        return self.snapshot.titles[self.model]

    def of_row(self, row: int) -> tuple[Operation, ...]:
        """The operations, as `building.OPERATION_KEYS` has them, that contain this row of the table nodes."""
        return tuple(self.told["operations"][index] for index in self.places.get(row, ()))

    def is_of(self, snapshot: GraphSnapshot) -> bool:
        """Does it belong to this trace?"""
        return self.snapshot.payload is snapshot.payload

    def fits(self, snapshot: GraphSnapshot, build: Build, steps: tuple[str, ...]) -> bool:
        """Is it the result of this trace, build and pipeline?"""
        return self.is_of(snapshot) and (self.build, self.steps) == (build, steps)

    def outdated(self, problem: str = "") -> Emission:
        """The same emission, marked as possibly out of date."""
        return replace(self, stale=True, problem=problem)

    def without_text(self) -> answers.EmissionHead:
        """The map `told` without the text."""
        told = self.told
        return {
            "model": told["model"], "build": told["build"], "steps": told["steps"], "weights": told["weights"],
            "accuracy": told["accuracy"], "module": told["module"], "files": told["files"],
            "folder": told["folder"], "operations": told["operations"], "unsupported": told["unsupported"],
            "totals": told["totals"], "refusal": told["refusal"], "scopes": told["scopes"],
        }  # fmt: skip


@dataclass(slots=True)
class Memory:
    """The emissions of the newest trace of one model, the newest last."""

    found: list[Emission] = field(default_factory=list)

    def find(self, snapshot: GraphSnapshot, build: Build, steps: tuple[str, ...]) -> Emission | None:
        """The remembered emission for this trace, build and pipeline; None if there is none."""
        return next((each for each in self.found if each.fits(snapshot, build, steps)), None)

    def put(self, emission: Emission) -> None:
        """Remember an emission and forget those of other traces."""
        others = [each for each in self.found if each.is_of(emission.snapshot)]
        others = [each for each in others if not each.fits(emission.snapshot, emission.build, emission.steps)]
        self.found = [*others, emission][-_KEPT:]
