"""add_software_metadata: a place for the statistics of every tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.passes.arguments import Result, with_common_metadata
from mase_server.passes.completing import add_places, analysis
from mase_server.passes.declaration import Pass


@analysis
def add_software_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Add an empty `stat` for every tensor among the arguments and results; found statistics are kept.

    ValueError where the graph was never annotated.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_software_metadata_analysis_pass(graph)
    >>> graph.nodes[1].meta["mase"]["software"]["args"]
    {'data_in_0': {'stat': {}}, 'weight': {'stat': {}}, 'bias': {'stat': {}}}
    """
    with_common_metadata(graph)
    for node in graph.fx_graph.nodes:
        add_places(metadata_of(node, graph.module))
    return graph, {}


PASS = Pass(
    name="add_software_metadata",
    title="Add places for statistics",
    kind="analysis",
    function=add_software_metadata_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
