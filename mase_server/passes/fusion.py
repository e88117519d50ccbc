"""Layers that can be taken together or left out without changing what a trained model gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.passes.arguments import Result, options

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})


def conv_bn_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Take each convolution or linear layer together with the batch norm that alone follows it, for inference.

    The fused layers are new; the model's own are left as they are.  Gives {"fused": (layer, norm) by path, "kept":
    norms that could not be fused, with the reason}.  Source: `chop.passes.graph.transforms.conv_bn_fusion`.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    >>> graph, found = passes.conv_bn_fusion_transform_pass(MaseGraph(model, {"input": torch.randn(1, 3, 8, 8)}))
    >>> found["fused"], [node.op for node in graph.nodes]
    ([('0', '1')], ['placeholder', 'call_module', 'output'])
    """
    options("conv_bn_fusion_transform_pass", pass_args, {})
    module, fused, kept = graph.module, [], {}
    calls = _calls(graph.fx_graph)
    for node in list(graph.fx_graph.nodes):
        norm = _layer(node, module)
        if not isinstance(norm, _NORMS):
            continue
        before = node.args[0] if node.args else None
        reason = _unfit(norm, node, before, module, calls)
        if reason is not None or not isinstance(before, fx.Node):
            kept[str(node.target)] = reason or "it has no input"
            continue
        layer = attribute(module, str(before.target))
        join = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
        transposed = {"transpose": True} if "Transpose" in type(layer).__name__ else {}
        module.add_submodule(str(before.target), join(layer, norm, **transposed))
        node.replace_all_uses_with(before)
        graph.fx_graph.erase_node(node)
        fused.append((str(before.target), str(node.target)))
    return graph, {"fused": fused, "kept": kept}


def _unfit(norm: Any, node: fx.Node, before: Any, module: nn.Module, calls: Mapping[str, int]) -> str | None:
    """Why a norm cannot be taken together with what comes before it; None if it can."""
    layer = _layer(before, module)
    if type(layer) is not nn.Linear and type(layer) not in _CONVOLUTIONS:
        return "what comes before it is no convolution or linear layer"
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch; put the model in eval mode first"
    if len(before.users) > 1:
        return f"{before.target} is used elsewhere too"
    if calls[str(before.target)] > 1 or calls[str(node.target)] > 1:
        return "one of the two is called more than once"
    if isinstance(layer, nn.Linear) and len(getattr(node.meta.get("value"), "shape", ())) == 3:
        return "it normalises over another dimension than the linear layer's features"
    return None


def remove_dropout_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Leave out dropouts, which do nothing in inference.  Gives {"removed": names of their nodes}.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    >>> graph, found = passes.remove_dropout_transform_pass(MaseGraph(model, {"input": torch.randn(1, 4)}))
    >>> found["removed"]
    ['_1']
    """
    options("remove_dropout_transform_pass", pass_args, {})
    removed = []
    for node in list(graph.fx_graph.nodes):
        if node.op.startswith("call") and operator_of(node, graph.module) in _DROPOUTS:
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.fx_graph.erase_node(node)
            removed.append(node.name)
    return graph, {"removed": removed}


def _calls(graph: fx.Graph) -> dict[str, int]:
    """How often each module is called."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            found[str(node.target)] = found.get(str(node.target), 0) + 1
    return found


def _layer(node: Any, module: nn.Module) -> Any:
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return attribute(module, str(node.target)) if is_call else None
