"""init_metadata: an empty MaseMetadata for every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass


@analysis
def init_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Give every node an empty MaseMetadata under `node.meta["mase"]`; what is there already is kept.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.init_metadata_analysis_pass(graph)
    >>> list(graph.nodes[0].meta["mase"])
    ['common', 'hardware', 'software']
    """
    graph.init_metadata()
    return graph, {}


PASS = Pass(
    name="init_metadata",
    title="Give every node empty metadata",
    kind="analysis",
    function=init_metadata_analysis_pass,
    menu=False,
)
