"""The state that a trace child keeps after a trace: its models, and where their values stand in the payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mase_server.snapshot import titles
from mase_server.suggestions import suggest
from mase_server.worker.request import TraceRequest
from mase_server.worker.traced import Traced

#: For each time that a value was seen: the call that made each of its tensors, in order; -1 for none.
Origins = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the values of one model stand in the payload.

    nodes: the row in "nodes" of each call, -1 where it has none.  rows: row in "rows" -> where its value came from.
    """

    nodes: list[int]
    rows: dict[int, Origins] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Live:
    """The models of one file. sources: for each model.  values: of each row in "rows", as the payload has them."""

    request: TraceRequest
    traced: Sequence[Traced]
    sources: Sequence[Sources] = ()
    values: Sequence[Any] = ()

    def index(self, title: str) -> int:
        """Which model has a title; "" for the first. ValueError, with those there are, where none has it."""
        known = titles([one.name for one in self.traced])
        if title in known:
            return known.index(title)
        if known and not title:
            return 0
        raise ValueError(f"this file has no model {title!r}{suggest(title, known, 'it has')}")
