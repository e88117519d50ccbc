"""Counting zeros, of weights and of what runs through a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.propagate import visit_for_real
from mase_server.passes.data import Data, load


@dataclass(slots=True)
class Zeros:
    """Elements seen, and how many of them were zero."""

    count: int = 0
    zeros: int = 0

    def add(self, value: Any) -> None:
        """Count a tensor's elements; anything else has none."""
        if isinstance(value, Tensor):
            self.count += value.numel()
            self.zeros += value.numel() - int(torch.count_nonzero(value))

    @property
    def share(self) -> float:
        """The share of zeros; 0 where nothing was seen."""
        return self.zeros / self.count if self.count else 0.0

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Zeros:
        """Of some tensors together."""
        made = cls()
        for tensor in tensors:
            made.add(tensor)
        return made

    @classmethod
    def together(cls, parts: Iterable[Zeros]) -> Zeros:
        """The sum of counts."""
        kept = list(parts)
        return cls(sum(part.count for part in kept), sum(part.zeros for part in kept))


def inputs_from(given: Mapping[str, Any], graph: MaseGraph) -> Data:
    """What to run on: MASE's `dummy_in`, one batch by name, or `data` as all passes have it."""
    data = given["data"] if given["dummy_in"] is None else [dict(graph.knowledge.named(given["dummy_in"]))]
    return load(graph, data, given["samples"])


def zeros_in(graph: MaseGraph, data: Data, nodes: Iterable[fx.Node]) -> dict[fx.Node, Zeros]:
    """The zeros in the results of nodes over all batches. The graph is run for real, and left as it was."""
    found = {node: Zeros() for node in nodes}

    def visit(node: fx.Node, value: Any) -> None:
        if node in found:
            found[node].add(value)

    for values in data.feeds(graph) if found else ():
        visit_for_real(graph.module, values, visit)
    return found


def software_entry(node: fx.Node, graph: MaseGraph, name: str) -> dict[str, Any]:
    """The place in a node's software metadata for an argument."""
    arguments = metadata_of(node, graph.module)["software"].setdefault("args", {})
    found: dict[str, Any] = arguments.setdefault(name, {"stat": {}})
    return found


def data_name(node: fx.Node, graph: MaseGraph, source: fx.Node) -> str:
    """What MASE calls the argument that a node gets from another one."""
    arguments = metadata_of(node, graph.module)["common"].get("args", {})
    named = (name for name, entry in arguments.items() if isinstance(entry, dict) and entry.get("from") is source)
    return next(named, "data_in_0")
