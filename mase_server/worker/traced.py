"""One model of a file, traced: what the job knows of it when it writes the payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mase_server.dtypes import SHORT
from mase_server.inputs.found import Found
from mase_server.ir.build import GraphBuilder
from mase_server.ir.session import Session
from mase_server.ops.types import TensorType
from mase_server.tracing.calls import Look, Run
from mase_server.tracing.probe import Probed, Wire
from mase_server.tracing.values import DictOf, TupleOf, Value, describe, tensors_in
from mase_server.visible import reveal


@dataclass(slots=True)
class Traced:
    """A model, its base recording, and what probing added later.

    error: what its forward raised; the recording then goes up to that point.
    """

    found: Found
    session: Session
    run: Run
    error: BaseException | None = None
    probed: Probed | None = None
    seconds: float = 0.0

    @property
    def runs(self) -> Sequence[Run]:
        """The base recording and its probes."""
        return [self.run] if self.probed is None else self.probed.runs

    @property
    def name(self) -> str:
        """The model's class name, visible: a class may be called anything."""
        return reveal(self.found.name)

    def wire(self) -> Wire:
        """Writes values with this model's symbols."""
        return Wire(self.probed)

    def node_names(self) -> list[str | None]:
        """The fx name of each call, None for those that become no node."""
        builder = GraphBuilder(self.run, self.probed)
        builder.build()
        return [None if node is None else node.name for node in builder.nodes]

    def guards(self) -> list[str]:
        """The assumptions of the graph on sizes and values, each with its line; none before the graph was probed."""
        if self.probed is None or self.error is not None:
            return []
        return GraphBuilder(self.run, self.probed).guards()

    def looks(self) -> list[tuple[Look, Any]]:
        """The looks at values that its graph repeats, and what has to be seen; nothing where the forward fails."""
        return [] if self.error is not None else GraphBuilder(self.run, self.probed).looks()

    def proved_dimensions(self) -> dict[TensorType, tuple[str, ...]]:
        """The symbols of each type of tensor that was recorded; a type whose tensors differ in them has none."""
        wire = self.wire()
        seen: dict[TensorType, set[tuple[str, ...]]] = {}
        for calls in zip(*(run.calls for run in self.runs), strict=True):
            first = calls[0].value
            if isinstance(first, TensorType):
                _, _, texts = wire.value([call.value for call in calls], SHORT)
                seen.setdefault(first, set()).add(tuple(texts or map(str, first.shape)))
        return {tensor: texts.pop() for tensor, texts in seen.items() if len(texts) == 1}

    def knows(self, value: Any) -> bool:
        """Is a value (or all tensors in a container) one that this recording made or took?"""
        recorder = self.session.base
        return recorder is not None and recorder.node_of_value(value) >= 0

    def origins(self, value: Any) -> tuple[int, ...]:
        """The call that made each tensor of a value, in order; -1 for none."""
        recorder = self.session.base
        return () if recorder is None else tuple(map(recorder.node_of_value, tensors_in(value)))

    def values_of(self, value: Any) -> list[Value]:
        """A value bound outside of the recording, as it is in each run."""
        return [self._value_in(run, describe(value), value) for run in self.runs]

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
