"""Layers as functions of their parameters, so that a graph can round the parameters first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.nn import functional as F

from mase_server.formats import with_parameters
from mase_server.passes.declaration import LAYER


@dataclass(frozen=True, slots=True)
class Row:
    """function(input, **{attributes of the module}). tensors: parameters; numbers: everything else."""

    function: Callable[..., Any]
    tensors: tuple[str, ...]
    numbers: tuple[str, ...] = ()


_CONV = ("stride", "padding", "dilation", "groups")
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_LOOKUP = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
_BOTH = ("weight", "bias")

#: Class -> its function. Layers with a state of their own (batch norm, recurrent ones) are called as they are.
ROWS: dict[type[nn.Module], Row] = {
    nn.Linear: Row(F.linear, _BOTH),
    nn.Bilinear: Row(F.bilinear, _BOTH),
    nn.Conv1d: Row(F.conv1d, _BOTH, _CONV),
    nn.Conv2d: Row(F.conv2d, _BOTH, _CONV),
    nn.Conv3d: Row(F.conv3d, _BOTH, _CONV),
    nn.ConvTranspose1d: Row(F.conv_transpose1d, _BOTH, _TRANSPOSED),
    nn.ConvTranspose2d: Row(F.conv_transpose2d, _BOTH, _TRANSPOSED),
    nn.ConvTranspose3d: Row(F.conv_transpose3d, _BOTH, _TRANSPOSED),
    nn.Embedding: Row(F.embedding, ("weight",), _LOOKUP),
    nn.LayerNorm: Row(F.layer_norm, _BOTH, ("normalized_shape", "eps")),
    nn.GroupNorm: Row(F.group_norm, _BOTH, ("num_groups", "eps")),
    nn.InstanceNorm2d: Row(F.instance_norm, _BOTH, ("eps",)),  # and those of rows and volumes share this forward
    nn.RMSNorm: Row(F.rms_norm, ("weight",), ("normalized_shape", "eps")),
    nn.PReLU: Row(F.prelu, ("weight",)),
}


def as_function(node: fx.Node, module: nn.Module) -> dict[str, fx.Node]:
    """Turn the call of a layer into the call of a function; return its parameters' nodes by name.

    The node stays the same, with its name, its users and its metadata.
    """
    graph, path = node.graph, str(node.target)
    names = [name for name, _ in module.named_parameters()]
    with graph.inserting_before(node):
        tensors = {name: graph.get_attr(f"{path}.{name}") for name in names}
        row = _row_of_module(module, node)
        layer = None if row is not None else graph.get_attr(path)
    if row is not None:
        numbers = {name: getattr(module, name) for name in row.numbers}
        given = {name: tensors.get(name) for name in row.tensors}
        node.target, node.kwargs = row.function, {**node.kwargs, **given, **numbers}
    else:
        node.target, node.args = with_parameters, (layer, dict(tensors), *node.args)
    node.op, node.meta[LAYER] = "call_function", path
    return tensors


def _row_of_module(module: nn.Module, node: fx.Node) -> Row | None:
    """The row of exactly the module's computation; None for a subclass with a forward of its own, and for a layer that
    does more than the function."""
    row = next((row for kind, row in ROWS.items() if type(module).forward is kind.forward), None)
    if getattr(module, "padding_mode", "zeros") != "zeros" or len(node.args) != 1 or node.kwargs:
        return None
    if getattr(module, "running_mean", None) is not None:
        return None
    return row if row is not None and _has_own_parameters(module, row.tensors) else None


def _has_own_parameters(module: nn.Module, names: tuple[str, ...]) -> bool:
    """Are these parameters the module's own, or None? A parametrised weight is computed from others at each read."""
    own = dict(module.named_parameters(recurse=False))
    return all(name in own or getattr(module, name, None) is None for name in names)
