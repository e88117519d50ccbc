"""prune_transform_pass: masks on weights, and activations made sparse before their layers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Findings, Result, Selection, complete_options
from mase_server.passes.prune.functional import sparsify
from mase_server.passes.prune.masks import METHODS, SCOPES, SCORES, Plan, Scored, make_masks
from mase_server.passes.weighted import (
    MASK,
    PRUNED,
    Weighted,
    expose_weight,
    find_weighted,
    is_mask,
    require_values,
    without_weight,
)
from mase_server.suggestions import suggest

_DEFAULTS: Mapping[str, Any] = {"weight": None, "activation": None, "only": None}
_FIELDS = ("sparsity", "method", "scope", "granularity")

#: Operator -> the dimension of its input's channels.
_CHANNELS: Mapping[str, int] = {"conv1d": -2, "conv2d": -3, "conv3d": -4}

_GRAINS = "elementwise, channelwise, or n:m such as 2:4"


@transform(
    "Prune weights and activations",
    arguments=(
        Argument("weight.sparsity", "number", "share of a weight's elements to make zero", 0.5, minimum=0, maximum=1),
        Argument("weight.method", "choice", "how elements are chosen", "l1-norm", choices=METHODS),
        Argument("weight.scope", "choice", "each weight by itself, or all together", "local", choices=SCOPES),
        Argument("weight.granularity", "text", _GRAINS, "elementwise"),
        Argument("activation.sparsity", "number", "share of an input's elements to make zero", minimum=0, maximum=1),
        Argument("activation.method", "choice", "how elements are chosen", choices=tuple(SCORES)),
        Argument("activation.scope", "choice", "each input by itself", choices=("local",)),
        Argument("activation.granularity", "text", _GRAINS),
    ),
    needs={"weights"},
    selects=True,
)
def prune_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Make weights, activations, or both of linear and convolution layers sparse.

    weight, activation: {"sparsity": share of zeros, "method": "l1-norm" | "random" | "movement" (weights only),
    "scope": "local" | "global" (weights only), "granularity": "elementwise" | "channelwise" | "2:4"}, each optional but
    the sparsity.  only: nodes, layers or scopes to prune, instead of all.  A weight is multiplied by a mask, a buffer
    of the graph's module, so that it can go on learning; the model's own parameters stay as they were.  Elements that
    an earlier mask pruned stay pruned.  An activation is made sparse anew at each run.
    Gives {"weight": share of zeros by node, "activation": pruned nodes, "left": nodes whose channels n:m does not
    divide, or whose weight is no parameter but made of others, as by weight norm}.
    ValueError for values out of range, for movement if no layer has its scores, and for weights on meta.
    Source: `chop.passes.graph.transforms.pruning.prune_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(8, 4)), {"input": torch.randn(1, 8)})
    >>> graph, found = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5, "granularity": "2:4"}})
    >>> found["weight"]
    {'_0': 0.5}
    """
    given = complete_options("prune_transform_pass", pass_args, _DEFAULTS)
    plans = {kind: plan for kind in ("weight", "activation") if (plan := _read_plan(kind, given[kind])) is not None}
    only = Selection.of(given["only"])
    layers = find_weighted(graph.fx_graph, graph.module, only)
    others = [node.name for node in without_weight(graph.fx_graph, graph.module, only)]
    found: Findings = {"weight": {}, "activation": [], "left": []}
    if "activation" in plans:
        found["activation"] = [_prune_activation(layer, plans["activation"]) for layer in layers]
    if "weight" in plans:
        found["weight"], left = _prune_weights(graph.module, layers, plans["weight"])
        found["left"] = [*left, *others]
    return graph, found


def _read_plan(kind: str, given: Any) -> Plan | None:
    if given is None or (isinstance(given, Mapping) and "sparsity" in given and given["sparsity"] is None):
        return None
    if not isinstance(given, Mapping) or "sparsity" not in given:
        raise ValueError(f'prune: {given!r} is no plan, e.g. {{"sparsity": 0.5, "method": "l1-norm"}}')
    for key in given:
        if key not in _FIELDS:
            raise ValueError(f"prune: a plan has no {key!r}{suggest(key, _FIELDS, 'it takes')}")
    plan = Plan(**{key: value for key, value in given.items() if value is not None})
    if kind == "activation" and plan.method not in SCORES:
        raise ValueError(f"prune: activations have no scores of {plan.method}; use one of {', '.join(SCORES)}")
    if kind == "activation" and plan.scope != "local":
        raise ValueError(f"prune: activations are made sparse one by one; their scope is local, not {plan.scope!r}")
    return plan


def _prune_activation(layer: Weighted, plan: Plan) -> str:
    node, source = layer.node, layer.data
    channels = _CHANNELS.get(layer.operator, -1)
    with node.graph.inserting_before(node):
        arguments = (source, plan.sparsity, plan.method, plan.granularity, channels)
        sparse = node.graph.call_function(sparsify, arguments)
    sparse.meta["scope"] = source.meta.get("scope")
    node.replace_input_with(source, sparse)
    return node.name


def _prune_weights(
    module: fx.GraphModule, layers: Sequence[Weighted], plan: Plan
) -> tuple[dict[str, float], list[str]]:
    scored = {layer.path: _score_weight(layer, module, plan) for layer in layers}
    whole = {path: each for path, each in scored.items() if each.fits(plan)}
    made = make_masks(plan, whole if whole or not scored else scored)
    names = {layer.path: f"{layer.node.name}{MASK}" for layer in reversed(layers)}
    found = {
        layer.node.name: _add_mask(layer, module, made[layer.path], names[layer.path])
        for layer in layers
        if layer.path in made
    }
    return found, [layer.node.name for layer in layers if layer.path not in made]


def _score_weight(layer: Weighted, module: nn.Module, plan: Plan) -> Scored:
    weight = layer.weight(module)
    require_values("prune", layer, weight)
    score = plan.score(weight) if plan.method in SCORES else _movement_scores(layer)
    if is_mask(layer.user):
        # Already pruned elements are pruned first, whatever the method.
        score = torch.where(_mask_of(layer, module) == 0, score.min() - 1, score)
    return Scored(score, 1 - layer.sums, layer.sums)


def _movement_scores(layer: Weighted) -> Tensor:
    software = layer.node.meta["mase"]["software"].get("args", {}) if "mase" in layer.node.meta else {}
    score = software.get(layer.name, {}).get("stat", {}).get("movement")
    if not isinstance(score, Tensor):
        name = layer.node.name
        raise ValueError(f"prune: {name} has no movement scores; run add_movement_metadata_analysis_pass first")
    return score.detach()


def _mask_of(layer: Weighted, module: nn.Module) -> Tensor:
    found: Tensor = getattr(module, str(layer.user.all_input_nodes[1].target))
    return found


def _add_mask(layer: Weighted, module: nn.Module, mask: Tensor, name: str) -> float:
    """Multiply the weight by a mask of this name; an existing mask takes over the new one's zeros."""
    if is_mask(layer.user):
        mask = mask * _mask_of(layer, module)
        setattr(module, str(layer.user.all_input_nodes[1].target), mask)
        return _share_of_zeros(mask)
    module.register_buffer(name, mask)
    layer = expose_weight(layer, module)
    assert layer.origin is not None
    with layer.node.graph.inserting_after(layer.origin):
        place = layer.node.graph.get_attr(name)
    with layer.node.graph.inserting_after(place):
        masked = layer.node.graph.call_function(operator.mul, (layer.origin, place))
    masked.meta["scope"] = layer.node.meta.get("scope")
    layer.user.replace_input_with(layer.origin, masked)
    return _share_of_zeros(mask)


def _share_of_zeros(mask: Tensor) -> float:
    return 1.0 - mask.mean().item()


# prune_detach_hook_transform_pass: zeros move into the weights, masks out of the graph.


@transform("Write pruned weights", needs={"weights"}, selects=True)
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
    only = Selection.of(complete_options("prune_detach_hook_transform_pass", pass_args, {"only": None})["only"])
    chosen, detached = only.checked(graph.fx_graph), []
    for node in graph.nodes:
        if node.target is sparsify and any(map(chosen.covers, node.users)):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.fx_graph.erase_node(node)
        elif is_mask(node) and any(map(chosen.covers, _users_of_masked(node))):
            detached.append(_detach_mask(graph.module, node))
    return graph, {"detached": list(dict.fromkeys(detached))}


def _users_of_masked(masked: fx.Node) -> list[fx.Node]:
    """The nodes that read the masked weight, perhaps rounded."""
    return [each for user in masked.users for each in (user, *user.users)]


def _detach_mask(module: fx.GraphModule, masked: fx.Node) -> str:
    weight, place = masked.args
    assert isinstance(weight, fx.Node)
    assert isinstance(place, fx.Node)
    mask = str(place.target)
    name = mask.removesuffix(MASK)
    with torch.no_grad():
        pruned = attribute(module, str(weight.target)) * getattr(module, mask)
    module.register_parameter(f"{name}{PRUNED}", nn.Parameter(pruned))
    with masked.graph.inserting_before(masked):
        detached = masked.graph.get_attr(f"{name}{PRUNED}")
    detached.meta["scope"] = weight.meta.get("scope")
    masked.replace_all_uses_with(detached)
    for node in (masked, place, weight):
        if not node.users:
            masked.graph.erase_node(node)
    if not any(node.target == mask for node in masked.graph.nodes):
        delattr(module, mask)
    return name
