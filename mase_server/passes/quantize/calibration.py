"""Calibration: formats that are left open, closed by the values that their nodes have on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, fx

from mase_server.formats import NumberFormat, Open
from mase_server.ir.check import tensors_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import visit_for_real
from mase_server.passes.data import Data
from mase_server.passes.quantize.methods import Method, Ranges, Trials, candidates

#: (node, open format) -> the format that its values choose.
Closed = dict[tuple[fx.Node, Open], NumberFormat]


def calibrate(graph: MaseGraph, wanted: Mapping[fx.Node, Iterable[Open]], data: Data, method: Method) -> Closed:
    """Run the graph on data and choose the parameters of formats for nodes' results.

    Nothing but ranges, histograms and sums is kept. By squared errors it runs twice: ranges first.
    """
    ranges = {node: Ranges(method.name == "percentile") for node in wanted}

    def measure(node: fx.Node, tensor: Tensor) -> None:
        ranges[node].add(tensor)

    def attempt(node: fx.Node, tensor: Tensor) -> None:
        for open_ in wanted[node]:
            trials[node, open_].add(tensor)

    _run(graph, data, measure, wanted)
    trials = {
        (node, open_): Trials(candidates(open_, ranges[node], method))
        for node, formats in wanted.items()
        for open_ in formats
    }
    if any(len(each.formats) > 1 for each in trials.values()):
        _run(graph, data, attempt, wanted)
    return {key: each.best for key, each in trials.items()}


def _run(graph: MaseGraph, data: Data, see: Callable[[fx.Node, Tensor], None], nodes: Mapping[fx.Node, Any]) -> None:
    def visit(node: fx.Node, value: Any) -> None:
        if node in nodes:
            for tensor in tensors_of(value).values():
                if tensor.is_floating_point():
                    see(node, tensor)

    for values in data.feeds(graph):
        visit_for_real(graph.module, values, visit)
