"""report_node_shape: shapes of the arguments and results of every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass
from mase_server.passes.report.tables import reported


@analysis
def report_node_shape_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: the shapes of its arguments and results.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_shape_analysis_pass(graph)
    >>> found["rows"][2]
    {'name': '_1', 'mase_op': 'relu', 'inputs': 'data_in_0 [3, 2]', 'outputs': 'data_out_0 [3, 2]'}
    """
    head = ("name", "mase_op", "inputs", "outputs")
    return reported(graph, head, lambda node, metadata: (
        node.name, metadata["common"].get("mase_op"), _shapes(metadata, "args"), _shapes(metadata, "results"),
    ))  # fmt: skip


def _shapes(metadata: MaseMetadata, part: str) -> str:
    entries = metadata["common"].get(part, {})
    shaped = ((name, entry["shape"]) for name, entry in entries.items() if isinstance(entry, dict) and "shape" in entry)
    return ", ".join(f"{name} {shape}" for name, shape in shaped)


PASS = Pass(
    name="report_node_shape",
    title="Report the shapes of every node",
    kind="analysis",
    function=report_node_shape_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
