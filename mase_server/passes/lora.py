"""Low-rank adapters beside linear layers (LoRA): inserted without changing the output, and fused into the weights."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ops.table import parameters_of, trainable_of
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Result, Selection, complete_options
from mase_server.passes.error import GIVES
from mase_server.passes.functional import as_function

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.0, "freeze": False, "only": None}
)


@transform(
    "Insert LoRA adapters",
    arguments=(
        Argument("rank", "integer", "features between the two matrices of an adapter", default=8, minimum=1),
        Argument("lora_alpha", "number", "an adapter's result is scaled by lora_alpha / rank", default=16.0),
        Argument("freeze", "boolean", "train only the adapters", default=True),
        Argument("lora_dropout", "number", "probability, in training only", default=0.0, minimum=0, maximum=0.999),
    ),
    selects=True,
)
def insert_lora_adapter_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add b(a(dropout(x))) * lora_alpha / rank to the result of every linear layer.

    rank: features between a and b, at least 1.  lora_alpha: see above.  lora_dropout: probability, in training only.
    freeze: train only the adapters; the parameters of the model itself then need no gradient any more.
    only: nodes, layers or scopes, everything without it.
    a is drawn as nn.Linear draws its weight and b is zero, so the output stays equal; the layer itself, its bias
    included, is not changed.  The adapters are parameters of the graph's module.
    Gives {"inserted": {node: [in, out]}, "trainable": elements that learn, "parameters": all of them}.
    ValueError for a rank or a probability out of range.
    Source: `chop.passes.graph.transforms.lora.insert_lora_adapter_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(6, 4)), {"input": torch.randn(1, 6)})
    >>> graph, found = passes.insert_lora_adapter_transform_pass(graph, {"rank": 2})
    >>> found["inserted"], sorted(name for name, _ in graph.module.named_parameters())
    ({'_0': [6, 4]}, ['0.bias', '0.weight', '_0_lora_a', '_0_lora_b'])
    """
    given = complete_options("insert_lora_adapter_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    rank, probability = given["rank"], given["lora_dropout"]
    if type(rank) is not int or rank < 1:
        raise ValueError(f"insert_lora_adapter: rank is {rank!r}, expected a whole number of at least 1")
    if not 0 <= probability < 1:
        raise ValueError(f"insert_lora_adapter: lora_dropout is {probability!r}, expected a probability below 1")
    if given["freeze"]:
        graph.module.requires_grad_(requires_grad=False)
    inserted = {}
    for node in list(graph.fx_graph.nodes):
        layer = attribute(graph.module, str(node.target)) if node.op == "call_module" else None
        if isinstance(layer, nn.Linear) and selected.covers(node):
            _insert_adapter(graph.module, node, layer, rank, float(given["lora_alpha"]) / rank, float(probability))
            inserted[node.name] = [layer.in_features, layer.out_features]
    counts = {"trainable": trainable_of(graph.module), "parameters": parameters_of(graph.module)[0]}
    return graph, {"inserted": inserted, **counts}


def _insert_adapter(
    module: fx.GraphModule, node: fx.Node, layer: nn.Linear, rank: int, scale: float, dropout: float
) -> None:
    graph, users, weight = node.graph, list(node.users), layer.weight
    first = torch.empty(rank, layer.in_features, dtype=weight.dtype, device=weight.device)
    nn.init.kaiming_uniform_(first, a=math.sqrt(5))
    module.register_parameter(f"{node.name}{A}", nn.Parameter(first))
    module.register_parameter(f"{node.name}{B}", nn.Parameter(weight.new_zeros(layer.out_features, rank)))
    given: Any = node.args[0]
    with graph.inserting_before(node.next):
        a, b = graph.get_attr(f"{node.name}{A}"), graph.get_attr(f"{node.name}{B}")
        if dropout:
            given = graph.create_node("call_module", _add_dropout(module, node.name, dropout), (given,))
        inner = graph.call_function(F.linear, (given, a))
        outer = graph.call_function(F.linear, (inner, b))
        scaled = graph.call_function(operator.mul, (outer, scale))
        added = graph.call_function(operator.add, (node, scaled))
    for user in users:
        user.replace_input_with(node, added)
    node.meta[GIVES] = added.name
    for made in (a, b, added, inner, outer, scaled):
        made.meta["scope"] = node.meta.get("scope")


def _add_dropout(module: fx.GraphModule, name: str, probability: float) -> str:
    path = f"{name}_lora_dropout"
    module.add_submodule(path, nn.Dropout(probability).train(module.training))
    return path


# The names of the adapters' parameters: the node of their layer, with one of these endings.

A, B = "_lora_a", "_lora_b"


# fuse_lora_weights: adapters become part of their layers' weights.

_FUSE_LORA_WEIGHTS_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})


@transform("Merge LoRA adapters into the weights", selects=True)
def fuse_lora_weights_transform_pass(
    graph: MaseGraph, pass_args: Mapping[str, Any] = _FUSE_LORA_WEIGHTS_DEFAULTS
) -> Result:
    """Add every adapter to the weight of its layer: weight + b @ a * scale, and remove the adapter.

    only: nodes, layers or scopes, everything without it.

    The fused weights are parameters of the graph's module; the model's own stay as they were.  Gives {"fused": names of
    the layers' nodes}.  Source: `chop.passes.graph.transforms.lora.fuse_lora_weights_transform_pass`.

    >>> graph, _ = passes.insert_lora_adapter_transform_pass(MaseGraph(nn.Sequential(nn.Linear(6, 4))), {"rank": 2})
    >>> graph, found = passes.fuse_lora_weights_transform_pass(graph)
    >>> found["fused"], [node.op for node in graph.nodes]
    (['_0'], ['placeholder', 'get_attr', 'get_attr', 'call_function', 'output'])
    """
    given = complete_options("fuse_lora_weights_transform_pass", pass_args, _FUSE_LORA_WEIGHTS_DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    fused = []
    for added in [node for node in graph.fx_graph.nodes if node.target is operator.add]:
        adapter = _match_adapter(added)
        if adapter is not None and selected.covers(adapter[0]):
            base, a, b, scale = adapter
            _fuse_adapter(graph.module, base, getattr(graph.module, a), getattr(graph.module, b), scale)
            added.replace_all_uses_with(base)
            base.meta.pop(GIVES, None)
            _erase_with_sources(added)
            fused.append(base.name)
            delattr(graph.module, a)
            delattr(graph.module, b)
    return graph, {"fused": fused}


def find_adapters(graph: MaseGraph) -> dict[fx.Node, tuple[nn.Parameter, nn.Parameter]]:
    """The two matrices of each inserted adapter, [rank, in] and [out, rank], by the node of their layer."""
    found = {}
    for node in graph.fx_graph.nodes:
        a, b = (getattr(graph.module, f"{node.name}{ending}", None) for ending in (A, B))
        if isinstance(a, nn.Parameter) and isinstance(b, nn.Parameter) and a.shape[:1] == b.shape[1:]:
            found[node] = a, b
    return found


def _match_adapter(added: fx.Node) -> tuple[fx.Node, str, str, float] | None:
    """The base, the names of a and b, and the scale, if this node is the sum that ends an adapter."""
    match added.args:
        case (fx.Node(op="call_module") as base, fx.Node(args=(fx.Node(args=(fx.Node(args=(_, a)), b)), float(scale)))):
            names = str(getattr(a, "target", "")), str(getattr(b, "target", ""))
            return (base, *names, scale) if names[0].endswith(A) and names[1].endswith(B) else None
    return None


def _fuse_adapter(module: fx.GraphModule, base: fx.Node, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
    layer = attribute(module, str(base.target))
    weight = as_function(base, layer)["weight"]
    with torch.no_grad():
        module.register_parameter(f"{base.name}_weight_fused", nn.Parameter(layer.weight + (b @ a) * scale))
    weight.target = f"{base.name}_weight_fused"


def _erase_with_sources(last: fx.Node) -> None:
    """Erase an unused node, and the nodes that only it used."""
    sources = last.all_input_nodes
    last.graph.erase_node(last)
    for source in sources:
        if not source.users and source.op != "placeholder":
            _erase_with_sources(source)
