"""prune_transform_pass: masks on the weights, and roundings to nothing before the layers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.functional import as_function
from mase_server.passes.prune.functional import sparsify
from mase_server.passes.prune.masks import SCORES, Plan, masks

#: Layers that are pruned.
PRUNED = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
_MASK = "_pruning_mask"
_DEFAULTS: Mapping[str, Any] = {"weight": None, "activation": None}


def prune_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Make weights, activations, or both of linear and convolution layers sparse.

    weight, activation: {"sparsity": share of zeros, "method": "l1-norm" | "random" | "movement" (weights only),
    "scope": "local" | "global" (weights only), "granularity": "elementwise" | "channelwise" | "2:4"}, each optional but
    the sparsity.  A weight is multiplied by a mask, a buffer of the graph's module, so that it can go on learning; the
    model's own parameters stay as they were.  An activation is made sparse anew at each run.
    Gives {"weight": share of zeros by node, "activation": pruned nodes}.  ValueError for what is out of range, and
    for movement where no layer has its scores.  Source: `chop.passes.graph.transforms.pruning.prune_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(8, 4)), {"input": torch.randn(1, 8)})
    >>> graph, found = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5, "granularity": "2:4"}})
    >>> found["weight"]
    {'_0': 0.5}
    """
    given = options("prune_transform_pass", pass_args, _DEFAULTS)
    plans = {name: Plan(**_known(given[name])) for name in _DEFAULTS if given[name] is not None}
    module = graph.module
    nodes = [
        node
        for node in graph.fx_graph.nodes
        if node.op == "call_module" and operator_of(node, module) in PRUNED and _plain(node, module)
    ]
    found: dict[str, Any] = {"weight": {}, "activation": []}
    if "activation" in plans:
        found["activation"] = [_prune_activation(node, plans["activation"]) for node in nodes]
    if "weight" in plans:
        found["weight"] = _prune_weights(module, nodes, plans["weight"])
    return graph, found


def _known(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or "sparsity" not in given:
        raise ValueError(f'prune: {given!r} is no plan, e.g. {{"sparsity": 0.5, "method": "l1-norm"}}')
    fields = ("sparsity", "method", "scope", "granularity")
    for key in given:
        if key not in fields:
            raise ValueError(f"prune: a plan has no {key!r}; it takes {', '.join(fields)}")
    return dict(given)


def _plain(node: fx.Node, module: nn.Module) -> bool:
    return "weight" in dict(attribute(module, str(node.target)).named_parameters(recurse=False))


def _prune_activation(node: fx.Node, plan: Plan) -> str:
    if plan.method not in SCORES:
        raise ValueError(f"prune: activations have no scores of {plan.method}; use one of {', '.join(SCORES)}")
    source = node.all_input_nodes[0]
    with node.graph.inserting_before(node):
        sparse = node.graph.call_function(sparsify, (source, plan.sparsity, plan.method, plan.granularity))
    node.replace_input_with(source, sparse)
    return node.name


def _prune_weights(module: fx.GraphModule, nodes: list[fx.Node], plan: Plan) -> dict[str, float]:
    weights = {node.name: attribute(module, f"{node.target}.weight") for node in nodes}
    scores = {node.name: _score(node, weights[node.name], plan) for node in nodes}
    found = {}
    made = masks(plan, scores)
    for node in nodes:
        name, mask = f"{node.name}{_MASK}", made[node.name]
        module.register_buffer(name, mask)
        weight = as_function(node, attribute(module, str(node.target)))["weight"]
        with node.graph.inserting_before(node):
            masked = node.graph.call_function(operator.mul, (weight, node.graph.get_attr(name)))
        node.replace_input_with(weight, masked)
        found[node.name] = 1.0 - mask.mean().item() if not mask.is_meta else plan.sparsity
    return found


def _score(node: fx.Node, weight: Tensor, plan: Plan) -> Tensor:
    if plan.method in SCORES:
        return plan.score(weight)
    software = node.meta["mase"]["software"].get("args", {}) if "mase" in node.meta else {}
    score = software.get("weight", {}).get("stat", {}).get("movement")
    if not isinstance(score, Tensor):
        raise ValueError(f"prune: {node.name} has no movement scores; run add_movement_metadata_analysis_pass first")
    return score.detach()


def prune_detach_hook_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Write the zeros into the weights and take masks and sparse activations out of the graph.

    The pruned weights are parameters of the graph's module.  Gives {"detached": names of the layers' nodes}.
    Source: `chop.passes.graph.transforms.pruning.prune_detach_hook_transform_pass`.

    >>> graph, _ = passes.prune_transform_pass(MaseGraph(nn.Sequential(nn.Linear(8, 4))), {"weight": {"sparsity": 0.5}})
    >>> graph, found = passes.prune_detach_hook_transform_pass(graph)
    >>> found["detached"], int((graph.module._0_weight_pruned == 0).sum())
    (['_0'], 16)
    """
    options("prune_detach_hook_transform_pass", pass_args, {})
    detached = []
    for node in list(graph.fx_graph.nodes):
        if node.target is sparsify:
            node.replace_all_uses_with(node.args[0])
            graph.fx_graph.erase_node(node)
        elif node.op == "get_attr" and str(node.target).endswith(_MASK):
            (masked,) = node.users
            detached.append(_detach(graph.module, masked, str(node.target)))
    return graph, {"detached": detached}


def _detach(module: fx.GraphModule, masked: fx.Node, mask: str) -> str:
    weight, place = masked.args
    assert isinstance(weight, fx.Node)
    assert isinstance(place, fx.Node)
    name = mask.removesuffix(_MASK)
    with torch.no_grad():
        pruned = attribute(module, str(weight.target)) * getattr(module, mask)
    module.register_parameter(f"{name}_weight_pruned", nn.Parameter(pruned))
    weight.target = f"{name}_weight_pruned"
    masked.replace_all_uses_with(weight)
    masked.graph.erase_node(masked)
    masked.graph.erase_node(place)
    delattr(module, mask)
    return name
