"""remove_loss: a model that is used gives what it found, not how far that is from what was wanted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.ops import loss
from mase_server.ops.types import TensorType
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass

_LOSSES = frozenset(row.mase_op for row in loss.ROWS)
_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


@transform
def remove_loss_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Remove losses, and what is computed of them, from a model's results.

    None stands in place of each among other results; what a loss compares takes the place of one that is the only
    result.  Gives {"removed": names of their nodes}.

    >>> class Trained(nn.Module):
    ...     def forward(self, x, y):
    ...         return x, nn.functional.mse_loss(x, y)
    >>> graph = MaseGraph(Trained(), {"x": torch.ones(2, 3), "y": torch.zeros(2, 3)})
    >>> graph, found = passes.remove_loss_transform_pass(graph)
    >>> found["removed"], graph.model(torch.ones(2, 3), torch.zeros(2, 3))[1]
    (['mse_loss'], None)
    """
    options("remove_loss_transform_pass", pass_args, _DEFAULTS)
    losses = _losses(graph)
    for node in graph.fx_graph.nodes:
        if node not in losses and losses.keys() & set(node.all_input_nodes):
            _leave_out(node, losses)
    removed = []
    for node in reversed(losses):
        if not node.users:
            graph.fx_graph.erase_node(node)
            removed.append(node.name)
    return graph, {"removed": removed[::-1]}


def _losses(graph: MaseGraph) -> dict[fx.Node, fx.Node]:
    """What gives a loss, or is computed of one -> what the first of them compares."""
    found: dict[fx.Node, fx.Node] = {}
    for node in graph.fx_graph.nodes:
        if node.op == "output" or not isinstance(graph.facts.get(node), TensorType) or not node.all_input_nodes:
            continue
        if operator_of(node, graph.module) in _LOSSES:
            found[node] = node.all_input_nodes[0]
        elif (first := next((found[each] for each in node.all_input_nodes if each in found), None)) is not None:
            found[node] = first
    return found


def _leave_out(end: fx.Node, losses: Mapping[fx.Node, fx.Node]) -> None:
    """Of a node that puts results together."""
    others = [node for node in end.all_input_nodes if node not in losses]

    def instead(node: fx.Node) -> Any:
        return node if node not in losses else None if others else losses[node]

    end.args, end.kwargs = fx.map_arg(end.args, instead), fx.map_arg(end.kwargs, instead)


PASS = Pass(
    name="remove_loss",
    title="Remove losses",
    kind="transform",
    function=remove_loss_transform_pass,
)
