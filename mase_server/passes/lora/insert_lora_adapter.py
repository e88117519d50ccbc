"""insert_lora_adapter: low-rank adapters beside linear layers (LoRA), without changing the output."""

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
from mase_server.ops.cost import parameters_of, trainable_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.error.measuring import GIVES
from mase_server.passes.lora.names import A, B
from mase_server.passes.selection import Selection

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.0, "freeze": False, "only": None}
)


@transform
def insert_lora_adapter_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add b(a(dropout(x))) * lora_alpha / rank to what every linear layer gives.

    rank: features between a and b, at least 1.  lora_alpha: see above.  lora_dropout: probability, in training only.
    freeze: let nothing but adapters learn; the parameters of the model itself then need no gradient any more.
    only: nodes, layers or scopes, everything without it.
    a is drawn as nn.Linear draws its weight and b is zero, so the output stays equal; the layer itself, its bias
    included, is not touched.  The adapters are parameters of the graph's module.
    Gives {"inserted": {node: [in, out]}, "trainable": elements that learn, "parameters": all of them}.
    ValueError for a rank or a probability out of range.
    Source: `chop.passes.graph.transforms.lora.insert_lora_adapter_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(6, 4)), {"input": torch.randn(1, 6)})
    >>> graph, found = passes.insert_lora_adapter_transform_pass(graph, {"rank": 2})
    >>> found["inserted"], sorted(name for name, _ in graph.module.named_parameters())
    ({'_0': [6, 4]}, ['0.bias', '0.weight', '_0_lora_a', '_0_lora_b'])
    """
    given = options("insert_lora_adapter_transform_pass", pass_args, _DEFAULTS)
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
            _insert(graph.module, node, layer, rank, float(given["lora_alpha"]) / rank, float(probability))
            inserted[node.name] = [layer.in_features, layer.out_features]
    counts = {"trainable": trainable_of(graph.module), "parameters": parameters_of(graph.module)[0]}
    return graph, {"inserted": inserted, **counts}


def _insert(module: fx.GraphModule, node: fx.Node, layer: nn.Linear, rank: int, scale: float, dropout: float) -> None:
    graph, users, weight = node.graph, list(node.users), layer.weight
    first = torch.empty(rank, layer.in_features, dtype=weight.dtype, device=weight.device)
    nn.init.kaiming_uniform_(first, a=math.sqrt(5))
    module.register_parameter(f"{node.name}{A}", nn.Parameter(first))
    module.register_parameter(f"{node.name}{B}", nn.Parameter(weight.new_zeros(layer.out_features, rank)))
    given: Any = node.args[0]
    with graph.inserting_before(node.next):
        a, b = graph.get_attr(f"{node.name}{A}"), graph.get_attr(f"{node.name}{B}")
        if dropout:
            given = graph.create_node("call_module", _dropout(module, node.name, dropout), (given,))
        inner = graph.call_function(F.linear, (given, a))
        outer = graph.call_function(F.linear, (inner, b))
        scaled = graph.call_function(operator.mul, (outer, scale))
        added = graph.call_function(operator.add, (node, scaled))
    for user in users:
        user.replace_input_with(node, added)
    node.meta[GIVES] = added.name
    for made in (a, b, added, inner, outer, scaled):
        made.meta["scope"] = node.meta.get("scope")


def _dropout(module: fx.GraphModule, name: str, probability: float) -> str:
    path = f"{name}_lora_dropout"
    module.add_submodule(path, nn.Dropout(probability).train(module.training))
    return path


PASS = Pass(
    name="insert_lora_adapter",
    title="Insert LoRA adapters",
    kind="transform",
    function=insert_lora_adapter_transform_pass,
    arguments=(
        Argument("rank", "integer", "features between the two matrices of an adapter", default=8, minimum=1),
        Argument("lora_alpha", "number", "an adapter counts lora_alpha / rank times", default=16.0),
        Argument("freeze", "boolean", "let nothing but the adapters learn", default=True),
        Argument("lora_dropout", "number", "probability, in training only", default=0.0, minimum=0, maximum=0.999),
    ),
    selects=True,
)
