"""The requests that a client repeats after a lost connection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: Methods that change nothing, so that they may be asked twice.
REPEATABLE = frozenset(
    ("mase/info", "mase/models", "mase/nodeAt", "mase/roots", "mase/passes", "mase/pipeline", "mase/pipelineSettings",
     "mase/transformed", "mase/verilog", "mase/files", "mase/fileStatus", "mase/inputs", "mase/graph", "mase/tensors",
     "mase/problems", "mase/costs", "mase/compare", "mase/workers", "mase/statistics")
)  # fmt: skip


@dataclass(slots=True)
class Kept:
    """The files that a connection has open, and its subscriptions."""

    _asked: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def note(self, method: str, params: dict[str, Any], result: dict[str, Any]) -> None:
        """A call went well."""
        if method == "mase/open":
            self._asked[method, params["path"]] = {**params, "wait": False}
        elif method == "mase/close":
            self._asked.pop(("mase/open", params["path"]), None)
        elif method == "mase/subscribe":
            self._asked[method, str(result["subscription"])] = params
        elif method == "mase/unsubscribe":
            self._asked.pop(("mase/subscribe", str(params["subscription"])), None)

    def calls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The requests that a new connection has to repeat, in order."""
        for (method, _), params in list(self._asked.items()):
            yield method, params
