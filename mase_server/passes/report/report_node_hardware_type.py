"""report_node_hardware_type: the hardware that every node becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass
from mase_server.passes.report.tables import reported


@analysis
def report_node_hardware_type_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: the hardware that it becomes.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> _, found = passes.report_node_hardware_type_analysis_pass(graph)
    >>> [row["module"] for row in found["rows"]]
    [None, 'fixed_linear', 'fixed_relu', None]
    """
    head = ("name", "fx op", "mase_op", "implicit", "toolchain", "module", "device")
    keys = ("is_implicit", "toolchain", "module", "device_id")
    return reported(graph, head, lambda node, metadata: (
        node.name, node.op, metadata["common"].get("mase_op"), *(metadata["hardware"].get(key) for key in keys),
    ), parts=("common", "hardware"))  # fmt: skip


PASS = Pass(
    name="report_node_hardware_type",
    title="Report the hardware of every node",
    kind="analysis",
    function=report_node_hardware_type_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
