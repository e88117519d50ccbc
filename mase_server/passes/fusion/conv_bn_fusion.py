"""conv_bn_fusion: a batch norm becomes part of the layer before it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.error.measuring import GIVES
from mase_server.passes.fusion.calls import calls_by_path, layer_of
from mase_server.passes.selection import Selection

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})


@transform
def conv_bn_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Take each convolution or linear layer together with the batch norm that alone follows it, for inference.

    only: nodes, layers or scopes, everything without it: pairs of which the layer or the norm is among them.

    The fused layers are new; the model's own are left as they are.  Gives {"fused": (layer, norm) by path, "kept":
    norms that could not be fused, with the reason}.  Source: `chop.passes.graph.transforms.conv_bn_fusion`.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    >>> graph, found = passes.conv_bn_fusion_transform_pass(MaseGraph(model, {"input": torch.randn(1, 3, 8, 8)}))
    >>> found["fused"], [node.op for node in graph.nodes]
    ([('0', '1')], ['placeholder', 'call_module', 'output'])
    """
    given = options("conv_bn_fusion_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    module, fused, kept = graph.module, [], {}
    calls = calls_by_path(graph.fx_graph)
    for node in list(graph.fx_graph.nodes):
        norm = layer_of(node, module)
        before = node.args[0] if node.args else None
        if not isinstance(norm, _NORMS) or not _is_selected(selected, node, before):
            continue
        reason = _unfit(norm, node, before, module, calls)
        if reason is not None or not isinstance(before, fx.Node):
            kept[str(node.target)] = reason or "it has no input"
            continue
        _join(module, before, norm)
        node.replace_all_uses_with(before)
        before.meta[GIVES] = node.name
        graph.fx_graph.erase_node(node)
        fused.append((str(before.target), str(node.target)))
    return graph, {"fused": fused, "kept": kept}


def _is_selected(selected: Selection, norm: fx.Node, before: Any) -> bool:
    return selected.covers(norm) or (isinstance(before, fx.Node) and selected.covers(before))


def _join(module: fx.GraphModule, before: fx.Node, norm: Any) -> None:
    """Put a layer in the place of the one before the norm, that computes both."""
    layer = attribute(module, str(before.target))
    join = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
    transposed = {"transpose": True} if "Transpose" in type(layer).__name__ else {}
    module.add_submodule(str(before.target), join(layer, norm, **transposed))


def _unfit(norm: Any, node: fx.Node, before: Any, module: nn.Module, calls: Mapping[str, int]) -> str | None:
    """Why a norm cannot be taken together with what comes before it; None if it can."""
    layer = layer_of(before, module)
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


PASS = Pass(
    name="conv_bn_fusion",
    title="Fuse batch norms into their layers",
    kind="transform",
    function=conv_bn_fusion_transform_pass,
    selects=True,
)
