"""The average number of bits of data and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.passes.arguments import Result

#: Operators that hardware spends its multipliers on.
COUNTED = frozenset(
    {"linear", "conv1d", "conv2d", "conv3d", "matmul", "bmm", "mul", "add", "relu", "scaled_dot_product_attention"}
)


def calculate_avg_bits_mg_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Bits of each element of data and of weights, averaged over all elements that operators read.

    The width of a format is the first number of its precision.  Gives {"data_avg_bit", "w_avg_bit"}, 0.0 where the
    graph has none.  The common metadata must be there.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> passes.calculate_avg_bits_mg_analysis_pass(graph)[1]
    {'data_avg_bit': 32.0, 'w_avg_bit': 32.0}
    """
    data: list[Mapping[str, Any]] = []
    weights: list[Mapping[str, Any]] = []
    for node in graph.fx_graph.nodes:
        common = metadata_of(node, graph.module)["common"]
        if common.get("mase_op") not in COUNTED:
            continue
        for name, entry in common["args"].items():
            if isinstance(entry, dict) and "shape" in entry:
                (data if name.startswith("data_in_") else weights).append(entry)
    return graph, {"data_avg_bit": _average(data), "w_avg_bit": _average(weights)}


def _average(entries: Iterable[Mapping[str, Any]]) -> float:
    sizes = [(prod(entry["shape"]), entry["precision"][0]) for entry in entries if entry["precision"]]
    total = sum(size for size, _ in sizes)
    return sum(size * bits for size, bits in sizes) / total if total else 0.0
