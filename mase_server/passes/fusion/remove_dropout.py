"""remove_dropout: what does nothing in inference is left out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.selection import Selection

_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})
_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})


@transform
def remove_dropout_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Remove dropouts, which do nothing in inference.

    only: nodes, layers or scopes, everything without it.  Gives {"removed": names of their nodes}.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    >>> graph, found = passes.remove_dropout_transform_pass(MaseGraph(model, {"input": torch.randn(1, 4)}))
    >>> found["removed"]
    ['_1']
    """
    given = options("remove_dropout_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    removed = []
    for node in list(graph.fx_graph.nodes):
        is_dropout = node.op.startswith("call") and operator_of(node, graph.module) in _DROPOUTS
        if is_dropout and selected.covers(node):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.fx_graph.erase_node(node)
            removed.append(node.name)
    return graph, {"removed": removed}


PASS = Pass(
    name="remove_dropout",
    title="Remove dropouts",
    kind="transform",
    function=remove_dropout_transform_pass,
    selects=True,
)
