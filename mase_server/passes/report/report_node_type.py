"""report_node_type: fx operation, target, MASE operator and type of every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass
from mase_server.passes.report.tables import reported


@analysis
def report_node_type_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: fx's operation and target, MASE's operator and type.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_type_analysis_pass(graph)
    >>> [row["mase_type"] for row in found["rows"]]
    ['placeholder', 'module_related_func', 'module_related_func', 'output']
    """
    head = ("name", "fx op", "target", "mase_op", "mase_type")
    return reported(graph, head, lambda node, metadata: (
        node.name, node.op, _target(node), metadata["common"].get("mase_op"), metadata["common"].get("mase_type"),
    ))  # fmt: skip


def _target(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", type(node.target).__name__)


PASS = Pass(
    name="report_node_type",
    title="Report the operator and type of every node",
    kind="analysis",
    function=report_node_type_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
