"""fuse_lora_weights: adapters become part of the weights of their layers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.error.measuring import GIVES
from mase_server.passes.functional import as_function
from mase_server.passes.lora.names import A, B
from mase_server.passes.selection import Selection

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})


@transform
def fuse_lora_weights_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add every adapter to the weight of its layer: weight + b @ a * scale, and leave the adapter out.

    only: nodes, layers or scopes, everything without it.

    The fused weights are parameters of the graph's module; the model's own stay as they were.  Gives {"fused": names of
    the layers' nodes}.  Source: `chop.passes.graph.transforms.lora.fuse_lora_weights_transform_pass`.

    >>> graph, _ = passes.insert_lora_adapter_transform_pass(MaseGraph(nn.Sequential(nn.Linear(6, 4))), {"rank": 2})
    >>> graph, found = passes.fuse_lora_weights_transform_pass(graph)
    >>> found["fused"], [node.op for node in graph.nodes]
    (['_0'], ['placeholder', 'get_attr', 'get_attr', 'call_function', 'output'])
    """
    given = options("fuse_lora_weights_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    fused = []
    for added in [node for node in graph.fx_graph.nodes if node.target is operator.add]:
        adapter = _adapter(added)
        if adapter is not None and selected.covers(adapter[0]):
            base, a, b, scale = adapter
            _fuse(graph.module, base, getattr(graph.module, a), getattr(graph.module, b), scale)
            added.replace_all_uses_with(base)
            base.meta.pop(GIVES, None)
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
            return (base, *names, scale) if names[0].endswith(A) and names[1].endswith(B) else None
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


PASS = Pass(
    name="fuse_lora_weights",
    title="Fuse LoRA adapters into the weights",
    kind="transform",
    function=fuse_lora_weights_transform_pass,
    selects=True,
)
