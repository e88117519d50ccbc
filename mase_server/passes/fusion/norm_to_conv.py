"""norm_to_conv: a batch norm that stands alone becomes a convolution of single elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.fusion.calls import calls_by_path, layer_of
from mase_server.passes.selection import Selection

#: A batch norm, and its input's dimensions -> the convolution that can stand for it.
_CONVOLUTIONS: Mapping[tuple[type, int], type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {
    (nn.BatchNorm1d, 3): nn.Conv1d,
    (nn.BatchNorm2d, 4): nn.Conv2d,
    (nn.BatchNorm3d, 5): nn.Conv3d,
}
_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})


@transform
def norm_to_conv_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Make each batch norm a convolution of kernel size 1 with one group for each channel: for inference.

    only: nodes, layers or scopes, everything without it.

    A product and a sum for each channel, rounded once, is what hardware has.  Apply conv_bn_fusion first, which leaves
    no norm behind a convolution.  The new layers are the graph's own.  Gives {"made": paths of norms, "kept": those
    that cannot become one, with the reason}.

    >>> model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()).eval()
    >>> graph, found = passes.norm_to_conv_transform_pass(MaseGraph(model, {"input": torch.randn(2, 3, 4, 4)}))
    >>> found["made"], graph.module.get_submodule("0").groups
    (['0'], 3)
    """
    given = options("norm_to_conv_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    made: list[str] = []
    kept: dict[str, str] = {}
    calls = calls_by_path(graph.fx_graph)
    for node in graph.fx_graph.nodes:
        norm, path = layer_of(node, graph.module), str(node.target)
        if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) or not selected.covers(node):
            continue
        dims = len(graph.facts[node].shape)
        if (why := _unfit(norm, dims, calls[path])) is not None:
            kept[path] = why
            continue
        graph.module.add_submodule(path, _convolution(norm, _CONVOLUTIONS[type(norm), dims]))
        made.append(path)
    return graph, {"made": made, "kept": kept}


def _unfit(norm: Any, dims: int, calls: int) -> str | None:
    """Why a norm cannot become a convolution; None if it can."""
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch; put the model in eval mode first"
    if (type(norm), dims) not in _CONVOLUTIONS:
        return f"its input has {dims} dimensions, which no convolution takes"
    return "it is called more than once" if calls > 1 else None


def _convolution(norm: Any, kind: type[nn.Conv1d | nn.Conv2d | nn.Conv3d]) -> nn.Module:
    channels, mean = norm.num_features, norm.running_mean
    made = kind(channels, channels, 1, groups=channels, device=mean.device, dtype=mean.dtype)
    with torch.no_grad():
        scale = torch.rsqrt(norm.running_var + norm.eps)
        scale = scale if norm.weight is None else scale * norm.weight
        shift = -mean * scale
        made.weight.copy_(scale.reshape(made.weight.shape))
        assert made.bias is not None
        made.bias.copy_(shift if norm.bias is None else shift + norm.bias)
    return made.eval()


PASS = Pass(
    name="norm_to_conv",
    title="Turn batch norms into convolutions",
    kind="transform",
    function=norm_to_conv_transform_pass,
    selects=True,
)
