"""Telling whether a graph was changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import fx


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes of a graph at one time, with what they call. fx makes new argument tuples at every change."""

    rows: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of(cls, graph: fx.Graph) -> Snapshot:
        """The graph as it is now."""
        return cls(tuple((node, node.target, node.args, node.kwargs) for node in graph.nodes))

    def holds(self, graph: fx.Graph) -> bool:
        """Is the graph still as it was?"""
        now = list(graph.nodes)
        return len(now) == len(self.rows) and all(
            node is row[0] and node.target is row[1] and node.args is row[2] and node.kwargs is row[3]
            for node, row in zip(now, self.rows, strict=True)
        )
