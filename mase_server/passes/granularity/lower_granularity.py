"""lower_granularity_transform_pass: what a module computes in place of its call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.build import attribute, executable
from mase_server.ir.facts import map_nodes
from mase_server.ir.graph import MaseGraph
from mase_server.ir.tracer import MaseTracer
from mase_server.ops.types import TensorType
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.granularity.outline import inline
from mase_server.passes.selection import Selection

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": ()})
#: Modules of torch.nn that are made of others.
_COMPOSED = (
    nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoder,
    nn.TransformerDecoderLayer,
)  # fmt: skip
_APART = (fx.GraphModule, *_COMPOSED)


@transform
def lower_granularity_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Put what a module computes in place of its call: modules that were taken together, and torch.nn's transformers.

    only: modules and nodes to work on; without it, the whole graph.  Modules inside of modules are taken apart too.
    torch.nn's transformers are run through again, on their slow path: their fused kernels round a little differently,
    and give zeros where inputs are padded.
    Gives {"lowered": module paths, "kept": why another could not be taken apart}.  ValueError for an unknown name.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> graph = MaseGraph(nn.Sequential(layer, nn.Linear(8, 2)), {"input": torch.randn(1, 5, 8)})
    >>> graph, found = passes.lower_granularity_transform_pass(graph)
    >>> found, [str(node.target) for node in graph.nodes if node.op == "call_module"][:3]
    ({'lowered': ['0'], 'kept': {}}, ['0.self_attn', '0.dropout1', '0.norm1'])
    """
    given = options("lower_granularity_transform_pass", pass_args, _DEFAULTS)
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    lowered: list[str] = []
    kept: dict[str, str] = {}
    while (node := _next(graph, selection, kept)) is not None:
        reason = _lower(graph, node)
        if reason is None:
            lowered.append(str(node.target))
        else:
            kept[node.name] = reason
    return graph, {"lowered": lowered, "kept": kept}


def _next(graph: MaseGraph, selection: Selection, kept: Mapping[str, str]) -> fx.Node | None:
    """The first call that can be taken apart."""
    calls = (node for node in graph.fx_graph.nodes if node.op == "call_module" and node.name not in kept)
    fitting = (node for node in calls if isinstance(attribute(graph.module, str(node.target)), _APART))
    return next(filter(selection.covers, fitting), None)


def _lower(graph: MaseGraph, node: fx.Node) -> str | None:
    """Take one call apart; None, or why that was not possible."""
    model = graph.module
    layer = attribute(model, str(node.target))
    if isinstance(layer, fx.GraphModule):
        names = [str(each.target) for each in layer.graph.nodes if each.op == "placeholder"]
        inline(model, node, layer, dict(zip(names, node.args, strict=False)) | node.kwargs, "")
        return None
    facts = graph.facts
    signature = inspect.signature(layer.forward)
    given = signature.bind(*node.args, **node.kwargs).arguments
    # Left open, it is read off the mask's values: then the graph would hold for such masks only.
    given |= {name: False for name in signature.parameters if name.endswith("is_causal") and given.get(name) is None}
    try:
        inner = _recorded(
            layer, {name: map_nodes(value, lambda source: facts[source]) for name, value in given.items()}
        )
    except Exception as error:  # noqa: BLE001 - a layer that cannot be run through stays as it is, and says why
        return f"{type(error).__name__}: {error}"
    inline(model, node, inner, given, str(node.target))
    return None


def _recorded(layer: nn.Module, types: Mapping[str, Any]) -> fx.GraphModule:
    """The graph of a layer on inputs of these types; its fast path is one kernel, which shows nothing."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        tracer = _Through()
        graph = tracer.trace(layer, {name: _example(value) for name, value in types.items()})
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return executable(graph, layer, {} if tracer.run is None else tracer.run.constants)


def _example(fact: Any) -> Any:
    """A tensor of a type, with zeros: a mask of zeros looks like no special one."""
    if not isinstance(fact, TensorType):
        return fact
    return torch.zeros(fact.shape, dtype=getattr(torch, fact.dtype))


class _Through(MaseTracer):
    """Runs through the modules that are made of others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, _COMPOSED) and super().is_leaf_module(m, module_qualified_name)


PASS = Pass(
    name="lower_granularity",
    title="Take modules apart into what they compute",
    kind="transform",
    function=lower_granularity_transform_pass,
    selects=True,
)
