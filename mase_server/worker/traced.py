"""One traced model of a file, and the live state that a trace child keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mase_server.dtypes import SHORT
from mase_server.ir.build import GraphBuilder
from mase_server.ir.session import Session
from mase_server.ops.types import TensorType
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import unique_titles
from mase_server.suggestions import suggest
from mase_server.tracing.models.found import Found
from mase_server.tracing.recording.calls import Look, Run
from mase_server.tracing.recording.state import KeptParts
from mase_server.tracing.recording.values import DictOf, TupleOf, Value, describe_value, tensors_in
from mase_server.tracing.symbols.probing import Probed, Wire
from mase_server.visible import reveal

# The state that a trace child keeps after a trace: its models, and the rows of their values in the payload.

#: For each time that a value was seen: the call that made each of its tensors, in order; -1 for none.
Origins = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Sources:
    """The rows of one model's values in the payload.

    nodes: the row in "nodes" of each call, -1 for a call without one.  rows: row in "rows" -> where its value came
    from.
    """

    nodes: list[int]
    rows: dict[int, Origins] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Live:
    """The models of one file. sources: for each model.  values: of each row in "rows", as in the payload."""

    request: TraceRequest
    traced: Sequence[Traced]
    sources: Sequence[Sources] = ()
    values: Sequence[Any] = ()

    def index(self, title: str) -> int:
        """The index of the model with a title; "" for the first. ValueError, listing the titles, if no model has it."""
        known = unique_titles([one.name for one in self.traced])
        if title in known:
            return known.index(title)
        if known and not title:
            return 0
        raise ValueError(f"this file has no model {title!r}{suggest(title, known, 'it has')}")


@dataclass(slots=True)
class Traced:
    """A model, its base recording, and what probing added later.

    error: the exception that its forward raised; the recording then ends there.
    ran: the marks of what its forward ran, by file.  parts: those that it had when it was recorded.
    """

    found: Found
    session: Session
    run: Run
    error: BaseException | None = None
    probed: Probed | None = None
    seconds: float = 0.0
    ran: Mapping[str, bytes] = field(default_factory=dict)
    parts: KeptParts | None = None

    @property
    def runs(self) -> Sequence[Run]:
        """The base recording and its probes."""
        return [self.run] if self.probed is None else self.probed.runs

    @property
    def name(self) -> str:
        """The model's class name, with invisible characters shown: a class may have any name."""
        return reveal(self.found.name)

    def wire(self) -> Wire:
        """Writes values with this model's symbols."""
        return Wire(self.probed)

    def node_names(self) -> list[str | None]:
        """The fx name of each call, None for calls that do not become nodes."""
        return GraphBuilder(self.run, self.probed).names()

    def guards(self) -> list[str]:
        """The graph's assumptions on sizes and values, each with its line; none before the graph was probed."""
        if self.probed is None or self.error is not None:
            return []
        return GraphBuilder(self.run, self.probed).guards()

    def looks(self) -> list[tuple[Look, Any]]:
        """The looks at values that the graph repeats, each with the value that it must see; empty if the forward
        fails."""
        return [] if self.error is not None else GraphBuilder(self.run, self.probed).looks()

    def proved_dimensions(self) -> dict[TensorType, tuple[str, ...]]:
        """The symbols of each recorded type of tensor; types whose tensors differ in their symbols are left out."""
        wire = self.wire()
        seen: dict[TensorType, set[tuple[str, ...]]] = {}
        for calls in zip(*(run.calls for run in self.runs), strict=True):
            first = calls[0].value
            if isinstance(first, TensorType):
                _, _, texts = wire.value([call.value for call in calls], SHORT)
                seen.setdefault(first, set()).add(tuple(texts or map(str, first.shape)))
        return {tensor: texts.pop() for tensor, texts in seen.items() if len(texts) == 1}

    def knows(self, value: Any) -> bool:
        """Did this recording make or take this value (or all tensors in a container)?"""
        recorder = self.session.base
        return recorder is not None and recorder.node_of_value(value) >= 0

    def origins(self, value: Any) -> tuple[int, ...]:
        """The call that made each tensor of a value, in order; -1 for none."""
        recorder = self.session.base
        return () if recorder is None else tuple(map(recorder.node_of_value, tensors_in(value)))

    def values_of(self, value: Any) -> list[Value]:
        """A value bound outside of the recording, as its value in each run."""
        return [self._value_in(run, describe_value(value), value) for run in self.runs]

    def _value_in(self, run: Run, described: Value, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            recorder = self.session.base
            index = -1 if recorder is None else recorder.node_of_value(value)
            return described if index < 0 else run.calls[index].value
        if isinstance(described, TupleOf):
            parts = zip(described.items, value, strict=False)
            return TupleOf(tuple(self._value_in(run, part, item) for part, item in parts))
        if isinstance(described, DictOf) and hasattr(value, "items"):
            entries = zip(described.items, value.values(), strict=False)
            return DictOf(tuple((key, self._value_in(run, part, item)) for (key, part), item in entries))
        return described
