"""add_common_metadata: operator, type, arguments and results of every node."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"add_value": True, "dummy_in": None, "force_device_meta": False})


@analysis
def add_common_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add operator, type, arguments and results of every node.

    dummy_in: inputs by name (a dict or BatchEncoding), all of which are honoured; without it those that the graph was
    recorded on.  add_value: offer values, which are computed when they are read.  force_device_meta: offer meta tensors
    in place of values.  Raises ValueError for an unknown option or input.
    Source: `chop.passes.graph.analysis.add_metadata.add_common_metadata_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.add_common_metadata_analysis_pass(graph, {"dummy_in": {"input": torch.randn(5, 4)}})
    >>> graph.nodes[2].meta["mase"]["common"]["results"]["data_out_0"]["shape"]
    [5, 2]
    """
    graph.annotate(**options("add_common_metadata_analysis_pass", pass_args, _DEFAULTS))
    return graph, {}


PASS = Pass(
    name="add_common_metadata",
    title="Add operators, types, arguments and results",
    kind="analysis",
    function=add_common_metadata_analysis_pass,
    arguments=(
        Argument("add_value", "boolean", "offer values, which are computed when they are read", default=True),
        Argument("force_device_meta", "boolean", "offer meta tensors in place of values", default=False),
    ),
    menu=False,
)
