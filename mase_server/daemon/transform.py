"""What a pipeline of passes made of one model, as it lies over a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mase_server.snapshot import TRANSFORM_NODES
from mase_server.steps import Step

#: What the overlay says of one node: (format, SQNR in dB, max error, note, saturated share), None each
#: where it is not known.
NodeFacts = tuple[Any, ...]
UNTOUCHED: NodeFacts = (None,) * (len(TRANSFORM_NODES) - 1)


@dataclass(frozen=True, slots=True)
class Transform:
    """One overlay. model: its index in the payload.  values: row of the table rows -> its value now.

    nodes: the columns as they came.  places: row of the table nodes -> its place in them.
    told: all else, as `snapshot.TRANSFORM_KEYS` has it, and "texts": its steps as texts.
    """

    model: int
    values: Mapping[int, Any]
    nodes: Mapping[str, Sequence[Any]]
    places: Mapping[int, int]
    told: Mapping[str, Any]

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Transform:
        """Of a map as a child sends it; KeyError, TypeError or ValueError for what is none."""
        told = {key: value for key, value in data.items() if key not in ("rows", "nodes")}
        told["texts"] = [str(Step.from_wire(step)) for step in told["steps"]]
        nodes, (rows, values) = data["nodes"], data["rows"]
        sizes = {len(rows) - len(values), *(len(nodes[name]) - len(nodes["row"]) for name in TRANSFORM_NODES)}
        if sizes != {0}:
            raise ValueError(f"the columns of a transform of model {data['model']} are not of one length")
        # On the event loop: no object for each row, which would be for the collector to look at.
        places = dict(zip(nodes["row"], range(len(nodes["row"])), strict=True))
        return cls(data["model"], dict(zip(rows, values, strict=True)), nodes, places, told)

    @classmethod
    def nothing(cls, model: int, failed: int | None, problem: str) -> Transform:
        """Where not even the first step was applied, and why; `failed` is the index of the step to blame."""
        told: dict[str, Any] = {"model": model, "steps": [], "texts": [], "summary": {}, "inputs": "", "weights": ""}
        return cls(model, {}, {}, {}, {**told, "complete": True, "problem": problem, "failed": failed})

    def node(self, row: int) -> NodeFacts:
        """What is known of one node."""
        place = self.places.get(row)
        return UNTOUCHED if place is None else tuple(self.nodes[name][place] for name in TRANSFORM_NODES[1:])

    @property
    def failed(self) -> bool:
        """Could one of its steps not be applied?"""
        return self.told["failed"] is not None

    @property
    def complete(self) -> bool:
        """Is no more coming?"""
        return bool(self.told["complete"])

    def stopped(self, why: str | None) -> Transform:
        """The same, of which no more will come, for a reason if there is one."""
        return replace(self, told={**self.told, "complete": True, "problem": why})
