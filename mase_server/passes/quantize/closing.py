"""What formats that leave a parameter to data become at each place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mase_server.formats import NumberFormat, Open
from mase_server.ir.graph import MaseGraph
from mase_server.passes.data import load
from mase_server.passes.quantize.calibration import Closed, calibrate
from mase_server.passes.quantize.methods import Method, of_tensor
from mase_server.passes.quantize.places import Places
from mase_server.tracing.rebuild import Rebuild


@dataclass(frozen=True, slots=True)
class Closing:
    """words: what the values were from, None where none were needed."""

    closed: Closed
    method: Method
    words: str | None

    @classmethod
    def of(cls, graph: MaseGraph, places: Places, given: Mapping[str, Any]) -> Closing:
        """By the pass's arguments `calibrate`, `percentile`, `data` and `samples`."""
        method = Method(given.get("calibrate") or "mse", given.get("percentile") or 99.9)
        wanted: dict[fx.Node, list[Open]] = {}
        for node, format in (each for place in places.found for each in place.values):
            if isinstance(format, Open) and format not in wanted.setdefault(node, []):
                wanted[node].append(format)
        wanted = {node: formats for node, formats in wanted.items() if formats}
        if not wanted or not has_values(graph):
            return cls({}, method, None)
        data = load(graph, given.get("data"), given.get("samples"))
        with torch.no_grad():
            return cls(calibrate(graph, wanted, data, method), method, data.words)

    def of_value(self, node: fx.Node, format: NumberFormat) -> NumberFormat:
        """The format for a node's value."""
        return self.closed.get((node, format), format) if isinstance(format, Open) else format

    def of_parameter(self, tensor: torch.Tensor, format: NumberFormat) -> NumberFormat:
        """The format for a parameter."""
        if not isinstance(format, Open) or tensor.is_meta:
            return format
        with torch.no_grad():
            return of_tensor(format, tensor, self.method)


def has_values(graph: MaseGraph) -> bool:
    """Are weights and inputs real?"""
    tensors = [*graph.module.parameters(), *Rebuild.of(dict(graph.arguments)).tensors]
    return not any(tensor.is_meta for tensor in tensors)
