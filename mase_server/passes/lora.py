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
from mase_server.passes.arguments import Result, options
from mase_server.passes.functional import as_function

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.0})
_A, _B = "_lora_a", "_lora_b"


def insert_lora_adapter_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add b(a(dropout(x))) * lora_alpha / rank to what every linear layer gives.

    rank: features between a and b, at least 1.  lora_alpha: see above.  lora_dropout: probability, in training only.
    a is drawn as nn.Linear draws its weight and b is zero, so the output stays equal; the layer itself, its bias
    included, is not touched.  The adapters are parameters of the graph's module.
    Gives {"inserted": {node: [in, out]}}.  ValueError for a rank or a probability out of range.
    Source: `chop.passes.graph.transforms.lora.insert_lora_adapter_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(6, 4)), {"input": torch.randn(1, 6)})
    >>> graph, found = passes.insert_lora_adapter_transform_pass(graph, {"rank": 2})
    >>> found["inserted"], sorted(name for name, _ in graph.module.named_parameters())
    ({'_0': [6, 4]}, ['0.bias', '0.weight', '_0_lora_a', '_0_lora_b'])
    """
    given = options("insert_lora_adapter_transform_pass", pass_args, _DEFAULTS)
    rank, probability = given["rank"], given["lora_dropout"]
    if type(rank) is not int or rank < 1:
        raise ValueError(f"insert_lora_adapter: rank is {rank!r}, expected a whole number of at least 1")
    if not 0 <= probability < 1:
        raise ValueError(f"insert_lora_adapter: lora_dropout is {probability!r}, expected a probability below 1")
    inserted = {}
    for node in list(graph.fx_graph.nodes):
        layer = attribute(graph.module, str(node.target)) if node.op == "call_module" else None
        if isinstance(layer, nn.Linear):
            _insert(graph.module, node, layer, rank, float(given["lora_alpha"]) / rank, float(probability))
            inserted[node.name] = [layer.in_features, layer.out_features]
    return graph, {"inserted": inserted}


def _insert(module: fx.GraphModule, node: fx.Node, layer: nn.Linear, rank: int, scale: float, dropout: float) -> None:
    graph, users, weight = node.graph, list(node.users), layer.weight
    first = torch.empty(rank, layer.in_features, dtype=weight.dtype, device=weight.device)
    nn.init.kaiming_uniform_(first, a=math.sqrt(5))
    module.register_parameter(f"{node.name}{_A}", nn.Parameter(first))
    module.register_parameter(f"{node.name}{_B}", nn.Parameter(weight.new_zeros(layer.out_features, rank)))
    given: Any = node.args[0]
    with graph.inserting_before(node.next):
        a, b = graph.get_attr(f"{node.name}{_A}"), graph.get_attr(f"{node.name}{_B}")
        if dropout:
            given = graph.create_node("call_module", _dropout(module, node.name, dropout), (given,))
        inner = graph.call_function(F.linear, (given, a))
        outer = graph.call_function(F.linear, (inner, b))
        scaled = graph.call_function(operator.mul, (outer, scale))
        added = graph.call_function(operator.add, (node, scaled))
    for user in users:
        user.replace_input_with(node, added)
    for made in (a, b, added, inner, outer, scaled):
        made.meta["scope"] = node.meta.get("scope")


def _dropout(module: fx.GraphModule, name: str, probability: float) -> str:
    path = f"{name}_lora_dropout"
    module.add_submodule(path, nn.Dropout(probability).train(module.training))
    return path


def fuse_lora_weights_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Add every adapter to the weight of its layer: weight + b @ a * scale, and leave the adapter out.

    The fused weights are parameters of the graph's module; the model's own stay as they were.  Gives {"fused": names of
    the layers' nodes}.  Source: `chop.passes.graph.transforms.lora.fuse_lora_weights_transform_pass`.

    >>> graph, _ = passes.insert_lora_adapter_transform_pass(MaseGraph(nn.Sequential(nn.Linear(6, 4))), {"rank": 2})
    >>> graph, found = passes.fuse_lora_weights_transform_pass(graph)
    >>> found["fused"], [node.op for node in graph.nodes]
    (['_0'], ['placeholder', 'get_attr', 'get_attr', 'call_function', 'output'])
    """
    options("fuse_lora_weights_transform_pass", pass_args, {})
    fused = []
    for added in [node for node in graph.fx_graph.nodes if node.target is operator.add]:
        adapter = _adapter(added)
        if adapter is not None:
            base, a, b, scale = adapter
            _fuse(graph.module, base, getattr(graph.module, a), getattr(graph.module, b), scale)
            added.replace_all_uses_with(base)
            _erase(added)
            fused.append(base.name)
            delattr(graph.module, a)
            delattr(graph.module, b)
    return graph, {"fused": fused}


def _adapter(added: fx.Node) -> tuple[fx.Node, str, str, float] | None:
    """base, names of a and b, and scale, if this is the sum that an adapter ends with."""
    match added.args:
        case (fx.Node(op="call_module") as base, fx.Node(args=(fx.Node(args=(fx.Node(args=(_, a)), b)), float(scale)))):
            names = str(getattr(a, "target", "")), str(getattr(b, "target", ""))
            return (base, *names, scale) if names[0].endswith(_A) and names[1].endswith(_B) else None
    return None


def _fuse(module: fx.GraphModule, base: fx.Node, a: torch.Tensor, b: torch.Tensor, scale: float) -> None:
    layer = attribute(module, str(base.target))
    weight = as_function(base, layer)["weight"]
    with torch.no_grad():
        module.register_parameter(f"{base.name}_weight_fused", nn.Parameter(layer.weight + (b @ a) * scale))
    weight.target = f"{base.name}_weight_fused"


def _erase(last: fx.Node) -> None:
    """A node that nobody uses, and what only it used."""
    sources = last.all_input_nodes
    last.graph.erase_node(last)
    for source in sources:
        if not source.users and source.op != "placeholder":
            _erase(source)
