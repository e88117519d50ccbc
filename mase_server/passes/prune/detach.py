"""prune_detach_hook_transform_pass: the zeros go into the weights, the masks out of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.prune.functional import sparsify
from mase_server.passes.selection import Selection
from mase_server.passes.weighted import MASK, is_mask


@transform
def prune_detach_hook_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Write the zeros into the weights and take masks and sparse activations out of the graph.

    only: nodes, layers or scopes, instead of all.  The pruned weights are parameters of the graph's module.
    Gives {"detached": names of the layers' nodes}.
    Source: `chop.passes.graph.transforms.pruning.prune_detach_hook_transform_pass`.

    >>> graph, _ = passes.prune_transform_pass(MaseGraph(nn.Sequential(nn.Linear(8, 4))), {"weight": {"sparsity": 0.5}})
    >>> graph, found = passes.prune_detach_hook_transform_pass(graph)
    >>> found["detached"], int((graph.module._0_weight_pruned == 0).sum())
    (['_0'], 16)
    """
    only = Selection.of(options("prune_detach_hook_transform_pass", pass_args, {"only": None})["only"])
    chosen, detached = only.checked(graph.fx_graph), []
    for node in graph.nodes:
        if node.target is sparsify and any(map(chosen.covers, node.users)):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.fx_graph.erase_node(node)
        elif is_mask(node) and any(map(chosen.covers, _layers(node))):
            detached.append(_detach(graph.module, node))
    return graph, {"detached": list(dict.fromkeys(detached))}


def _layers(masked: fx.Node) -> list[fx.Node]:
    """Who takes the masked weight, perhaps rounded."""
    return [each for user in masked.users for each in (user, *user.users)]


def _detach(module: fx.GraphModule, masked: fx.Node) -> str:
    weight, place = masked.args
    assert isinstance(weight, fx.Node)
    assert isinstance(place, fx.Node)
    mask = str(place.target)
    name = mask.removesuffix(MASK)
    with torch.no_grad():
        pruned = attribute(module, str(weight.target)) * getattr(module, mask)
    module.register_parameter(f"{name}_weight_pruned", nn.Parameter(pruned))
    with masked.graph.inserting_before(masked):
        detached = masked.graph.get_attr(f"{name}_weight_pruned")
    detached.meta["scope"] = weight.meta.get("scope")
    masked.replace_all_uses_with(detached)
    for node in (masked, place, weight):
        if not node.users:
            masked.graph.erase_node(node)
    if not any(node.target == mask for node in masked.graph.nodes):
        delattr(module, mask)
    return name


PASS = Pass(
    "prune_detach_hook",
    "Write pruned weights",
    "transform",
    prune_detach_hook_transform_pass,
    needs=frozenset({"weights"}),
    selects=True,
)
