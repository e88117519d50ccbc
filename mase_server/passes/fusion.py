"""Layers that can be joined, replaced or removed without changing the results of a trained model."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.ops import elementwise
from mase_server.ops.types import TensorType
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Result, Selection, complete_options
from mase_server.passes.error import GIVES

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})


@transform("Fuse batch norms into their layers", selects=True)
def conv_bn_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Take each convolution or linear layer together with the batch norm that alone follows it, for inference.

    only: nodes, layers or scopes, everything without it; a pair is selected by its layer or its norm.

    The fused layers are new; the model's own are left as they are.  Gives {"fused": (layer, norm) by path, "kept":
    norms that could not be fused, with the reason}.  Source: `chop.passes.graph.transforms.conv_bn_fusion`.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    >>> graph, found = passes.conv_bn_fusion_transform_pass(MaseGraph(model, {"input": torch.randn(1, 3, 8, 8)}))
    >>> found["fused"], [node.op for node in graph.nodes]
    ([('0', '1')], ['placeholder', 'call_module', 'output'])
    """
    given = complete_options("conv_bn_fusion_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    module, fused, kept = graph.module, [], {}
    calls = calls_by_path(graph.fx_graph)
    for node in list(graph.fx_graph.nodes):
        norm = layer_of(node, module)
        before = node.args[0] if node.args else None
        if not isinstance(norm, _NORMS) or not _is_selected(selected, node, before):
            continue
        reason = _why_not_fused(norm, node, before, module, calls)
        if reason is not None or not isinstance(before, fx.Node):
            kept[str(node.target)] = reason or "it has no input"
            continue
        _join_norm(module, before, norm)
        node.replace_all_uses_with(before)
        before.meta[GIVES] = node.name
        graph.fx_graph.erase_node(node)
        fused.append((str(before.target), str(node.target)))
    return graph, {"fused": fused, "kept": kept}


def _is_selected(selected: Selection, norm: fx.Node, before: Any) -> bool:
    return selected.covers(norm) or (isinstance(before, fx.Node) and selected.covers(before))


def _join_norm(module: fx.GraphModule, before: fx.Node, norm: Any) -> None:
    """Replace the layer before the norm by one that computes both."""
    layer = attribute(module, str(before.target))
    join = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
    transposed = {"transpose": True} if "Transpose" in type(layer).__name__ else {}
    module.add_submodule(str(before.target), join(layer, norm, **transposed))


def _why_not_fused(norm: Any, node: fx.Node, before: Any, module: nn.Module, calls: Mapping[str, int]) -> str | None:
    """The reason why a norm cannot be fused with its predecessor; None if it can."""
    layer = layer_of(before, module)
    if type(layer) is not nn.Linear and type(layer) not in _CONVOLUTIONS:
        return "its input is from no convolution or linear layer"
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch; put the model in eval mode first"
    if len(before.users) > 1:
        return f"{before.target} is used elsewhere too"
    if calls[str(before.target)] > 1 or calls[str(node.target)] > 1:
        return "one of the two is called more than once"
    if isinstance(layer, nn.Linear) and len(getattr(node.meta.get("value"), "shape", ())) == 3:
        return "it normalises over another dimension than the linear layer's features"
    return None


# The layer that a node calls, and the number of its calls.


def calls_by_path(graph: fx.Graph) -> dict[str, int]:
    """The number of calls of each module, by its path."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            found[str(node.target)] = found.get(str(node.target), 0) + 1
    return found


def layer_of(node: Any, module: nn.Module) -> Any:
    """The module that a node calls; None for any other node."""
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return attribute(module, str(node.target)) if is_call else None


# norm_fusion: written-out RMS norms, as in most language models, become one operator.

#: Operators that pass on their input, at most in another element type.
_CASTS = frozenset({"to", "float", "type_as", "type", "contiguous", "identity", "cast", "double"})


@transform("Fuse RMS norms", selects=True)
def norm_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Fuse written-out RMS norms: x * rsqrt(mean(x ** 2) + eps), and the product with a weight after it.

    The mean is over the last dimension, and there may be casts anywhere; the whole becomes one F.rms_norm. Squares
    and means need far more bits than the normalised values: of one operator, only the result is rounded.
    only: nodes, layers or scopes, everything without it.  Gives {"fused": names of the nodes that give the results}.

    >>> class Norm(nn.Module):
    ...     def forward(self, x):
    ...         return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    >>> graph, found = passes.norm_fusion_transform_pass(MaseGraph(Norm(), {"x": torch.randn(2, 8)}))
    >>> found["fused"], [node.name for node in graph.nodes if node.op.startswith("call")]
    (['mul'], ['mul'])
    """
    given = complete_options("norm_fusion_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    finder, fused = _Finder(graph), []
    for root in [node for node in graph.nodes if selected.covers(node)]:
        if (found := finder.norm(root)) is not None:
            _fuse_norm(found, graph)
            fused.append(found.result.name)
    return graph, {"fused": fused}


@dataclass(frozen=True, slots=True)
class _Norm:
    """result: the node that gives it.  source: the normalised tensor.  weight: the factor of the result, or None."""

    result: fx.Node
    source: fx.Node
    weight: fx.Node | None
    epsilon: float


class _Finder:
    """Searches one graph."""

    def __init__(self, graph: MaseGraph) -> None:
        self.facts, self.model = graph.facts, graph.module

    def norm(self, root: fx.Node) -> _Norm | None:
        """The norm with this reciprocal root; None for any other node."""
        mean, epsilon = self._sum(self._rooted(root))
        source = self._squared(self._averaged(mean))
        users = [user for user in root.users if self._is(user, "mul")]
        if source is None or epsilon is None or len(root.users) != 1 or not users:
            return None
        scaled = users[0]
        others = [self._origin(each) for each in scaled.all_input_nodes if each is not root]
        if others != [source]:
            return None
        return self._weighted(scaled, source, epsilon)

    def _rooted(self, root: fx.Node) -> fx.Node | None:
        """The operand of a reciprocal root."""
        if self._is(root, "rsqrt"):
            return root.all_input_nodes[0]
        if self._is(root, "pow") and root.args[1:] == (-0.5,):
            return root.all_input_nodes[0]
        one_over = root.args[:1] == (1,) or (root.target == "__rdiv__" and root.args[1:] == (1,))
        inverse = self._is(root, "reciprocal") or (self._is(root, "div") and one_over)
        before = root.all_input_nodes[0] if inverse and root.all_input_nodes else None
        return before.all_input_nodes[0] if before is not None and self._is(before, "sqrt") else None

    def _sum(self, node: fx.Node | None) -> tuple[fx.Node | None, float | None]:
        """A tensor and the number that is added to it."""
        if node is None or not self._is(node, "add") or len(node.all_input_nodes) != 1 or len(node.args) != 2:
            return None, None
        numbers = [each for each in node.args if isinstance(each, int | float)]
        return self._origin(node.all_input_nodes[0]), float(numbers[0]) if numbers else None

    def _averaged(self, node: fx.Node | None) -> fx.Node | None:
        """The operand of a mean over the last dimension."""
        if node is None or not self._is(node, "mean"):
            return None
        source, given = node.all_input_nodes[0], dict(zip(("input", "dim", "keepdim"), node.args, strict=False))
        given |= node.kwargs
        dim, rank = given.get("dim"), len(self.facts[source].shape)
        dims = tuple(dim) if isinstance(dim, list | tuple) else (dim,)
        return self._origin(source) if dims in ((-1,), (rank - 1,)) and given.get("keepdim") is True else None

    def _squared(self, node: fx.Node | None) -> fx.Node | None:
        if node is None:
            return None
        power = self._is(node, "pow") and node.args[1:] == (2,)
        product = self._is(node, "mul") and len(node.args) == 2 and node.args[0] is node.args[1]
        return self._origin(node.all_input_nodes[0]) if power or product or self._is(node, "square") else None

    def _weighted(self, scaled: fx.Node, source: fx.Node, epsilon: float) -> _Norm:
        """The norm with its product with a vector of the last dimension's length, if nothing else uses the normalised
        tensor."""
        last = scaled
        while len(last.users) == 1 and self._is(user := next(iter(last.users)), *_CASTS):
            last = user
        product = next(iter(last.users)) if len(last.users) == 1 else None
        if product is not None and self._is(product, "mul") and len(product.all_input_nodes) == 2:
            (weight,) = (each for each in product.all_input_nodes if each is not last)
            if self.facts[weight].shape == self.facts[source].shape[-1:]:
                return _Norm(product, source, weight, epsilon)
        return _Norm(scaled, source, None, epsilon)

    def _origin(self, node: fx.Node) -> fx.Node:
        """The node before all casts."""
        while self._is(node, *_CASTS):
            node = node.all_input_nodes[0]
        return node

    def _is(self, node: fx.Node, *operators: str) -> bool:
        if not node.op.startswith("call") or not isinstance(self.facts.get(node), TensorType):
            return False
        return operator_of(node, self.model) in operators


def _fuse_norm(found: _Norm, graph: MaseGraph) -> None:
    """Replace the norm; its nodes without other users go, and the result keeps its name."""
    node, size = found.result, graph.facts[found.source].shape[-1]
    node.op, node.target = "call_function", F.rms_norm
    before = list(node.all_input_nodes)
    node.args, node.kwargs = (found.source, (size,), found.weight, found.epsilon), {}
    for each in _find_unused(before):
        graph.fx_graph.erase_node(each)


def _find_unused(nodes: list[fx.Node]) -> Iterator[fx.Node]:
    """Yield unused nodes, and then those before them; each must be gone before the next is asked for."""
    waiting = nodes
    while waiting:
        node = waiting.pop()
        if not node.users and node.op.startswith(("call", "get_attr")) and not node._erased:
            waiting += node.all_input_nodes
            yield node


# norm_to_conv: a batch norm without a layer before it becomes a convolution of single elements.

#: A batch norm, and the dimensions of its input -> the convolution that can replace it.
_NORM_TO_CONV_CONVOLUTIONS: Mapping[tuple[type, int], type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {
    (nn.BatchNorm1d, 3): nn.Conv1d,
    (nn.BatchNorm2d, 4): nn.Conv2d,
    (nn.BatchNorm3d, 5): nn.Conv3d,
}


@transform("Turn batch norms into convolutions", selects=True)
def norm_to_conv_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Make each batch norm a convolution of kernel size 1 with one group for each channel: for inference.

    only: nodes, layers or scopes, everything without it.

    Hardware has a product and a sum for each channel, rounded once.  Apply conv_bn_fusion first, which leaves
    no norm after a convolution.  The new layers are the graph's own.  Gives {"made": paths of norms, "kept": those
    that cannot become one, with the reason}.

    >>> model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()).eval()
    >>> graph, found = passes.norm_to_conv_transform_pass(MaseGraph(model, {"input": torch.randn(2, 3, 4, 4)}))
    >>> found["made"], graph.module.get_submodule("0").groups
    (['0'], 3)
    """
    given = complete_options("norm_to_conv_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    made: list[str] = []
    kept: dict[str, str] = {}
    calls = calls_by_path(graph.fx_graph)
    for node in graph.fx_graph.nodes:
        norm, path = layer_of(node, graph.module), str(node.target)
        if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) or not selected.covers(node):
            continue
        dims = len(graph.facts[node].shape)
        if (why := _why_not_converted(norm, dims, calls[path])) is not None:
            kept[path] = why
            continue
        graph.module.add_submodule(path, _convolution_of_norm(norm, _NORM_TO_CONV_CONVOLUTIONS[type(norm), dims]))
        made.append(path)
    return graph, {"made": made, "kept": kept}


def _why_not_converted(norm: Any, dims: int, calls: int) -> str | None:
    """The reason why a norm cannot become a convolution; None if it can."""
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch; put the model in eval mode first"
    if (type(norm), dims) not in _NORM_TO_CONV_CONVOLUTIONS:
        return f"its input has {dims} dimensions, which no convolution takes"
    return "it is called more than once" if calls > 1 else None


def _convolution_of_norm(norm: Any, kind: type[nn.Conv1d | nn.Conv2d | nn.Conv3d]) -> nn.Module:
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


# fold_weights: weights that a normalisation computes at each call are computed once.

#: The hooks of older normalisations of weights -> what leaves the weight that they compute.
_WEIGHT_HOOKS: Mapping[type, Any] = {WeightNorm: remove_weight_norm, SpectralNorm: remove_spectral_norm}


@transform("Fold computed weights", selects=True)
def fold_weights_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Give each layer whose weights are computed at each call the weights that it has now: for inference.

    Weight norms, spectral norms and other parametrizations compute them.
    only: nodes, layers or scopes, everything without it.  The new layers are the graph's own; the model's are left as
    they are.  Gives {"folded": paths of layers, "kept": those that cannot be folded, with the reason}.

    >>> model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))).eval()
    >>> graph, found = passes.fold_weights_transform_pass(MaseGraph(model, {"input": torch.randn(1, 4)}))
    >>> found["folded"], [name for name, _ in graph.module.named_parameters()]
    (['0'], ['0.bias', '0.weight'])
    """
    given = complete_options("fold_weights_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    layers = {
        str(node.target): layer for node in graph.fx_graph.nodes
        if selected.covers(node) and (layer := layer_of(node, graph.module)) is not None and _computes_weights(layer)
    }  # fmt: skip
    kept = {
        path: "it changes in training; put the model in eval mode first" for path in layers if layers[path].training
    }
    for path in layers.keys() - kept.keys():
        graph.module.add_submodule(path, _with_plain_weights(layers[path]))
    return graph, {"folded": [path for path in layers if path not in kept], "kept": kept}


def _computes_weights(layer: nn.Module) -> bool:
    return parametrize.is_parametrized(layer) or any(type(each) in _WEIGHT_HOOKS for each in _list_hooks(layer))


def _list_hooks(layer: nn.Module) -> list[Any]:
    return list(layer._forward_pre_hooks.values())


def _with_plain_weights(layer: nn.Module) -> nn.Module:
    """A copy whose weights are parameters."""
    # A hook leaves the weight of the last call, which cannot be copied, since gradients may flow through it.
    left = {id(each): each.detach() for each in vars(layer).values() if isinstance(each, torch.Tensor)}
    # The class of a parametrized layer is made for it alone, and shared by its copies.
    kind = parametrize.type_before_parametrizations(layer)
    plain: nn.Module = object.__new__(kind)
    plain.__dict__ = copy.deepcopy(vars(layer), dict(left))
    with torch.no_grad():
        for hook in _list_hooks(plain):
            if type(hook) in _WEIGHT_HOOKS:
                _WEIGHT_HOOKS[type(hook)](plain, hook.name)
        computed: Any = plain._modules.pop("parametrizations", {})
        for name in computed:
            plain.register_parameter(name, nn.Parameter(getattr(layer, name).detach().clone()))
    return plain


# remove_dropout: dropouts do nothing in inference.

_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})


@transform("Remove dropouts", selects=True)
def remove_dropout_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Remove dropouts, which do nothing in inference.

    only: nodes, layers or scopes, everything without it.  Gives {"removed": names of their nodes}.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    >>> graph, found = passes.remove_dropout_transform_pass(MaseGraph(model, {"input": torch.randn(1, 4)}))
    >>> found["removed"]
    ['_1']
    """
    given = complete_options("remove_dropout_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    removed = []
    for node in list(graph.fx_graph.nodes):
        is_dropout = node.op.startswith("call") and operator_of(node, graph.module) in _DROPOUTS
        if is_dropout and selected.covers(node):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.fx_graph.erase_node(node)
            removed.append(node.name)
    return graph, {"removed": removed}


# remove_loss: a model in use gives its predictions, not their distance from targets.

_LOSSES = frozenset(row.mase_op for row in elementwise.LOSS_ROWS)
_REMOVE_LOSS_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


@transform("Remove losses")
def remove_loss_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _REMOVE_LOSS_DEFAULTS) -> Result:
    """Remove losses, and values computed from them, from a model's results.

    None replaces each among other results; a loss that is the only result is replaced by the prediction that it
    compares.  Gives {"removed": names of their nodes}.

    >>> class Trained(nn.Module):
    ...     def forward(self, x, y):
    ...         return x, nn.functional.mse_loss(x, y)
    >>> graph = MaseGraph(Trained(), {"x": torch.ones(2, 3), "y": torch.zeros(2, 3)})
    >>> graph, found = passes.remove_loss_transform_pass(graph)
    >>> found["removed"], graph.model(torch.ones(2, 3), torch.zeros(2, 3))[1]
    (['mse_loss'], None)
    """
    complete_options("remove_loss_transform_pass", pass_args, _REMOVE_LOSS_DEFAULTS)
    losses = _find_losses(graph)
    for node in graph.fx_graph.nodes:
        if node not in losses and losses.keys() & set(node.all_input_nodes):
            _leave_out(node, losses)
    removed = []
    for node in reversed(losses):
        if not node.users:
            graph.fx_graph.erase_node(node)
            removed.append(node.name)
    return graph, {"removed": removed[::-1]}


def _find_losses(graph: MaseGraph) -> dict[fx.Node, fx.Node]:
    """Each node that is a loss, or computed from one -> the prediction that the first of the losses compares."""
    found: dict[fx.Node, fx.Node] = {}
    for node in graph.fx_graph.nodes:
        if node.op == "output" or not isinstance(graph.facts.get(node), TensorType) or not node.all_input_nodes:
            continue
        if operator_of(node, graph.module) in _LOSSES:
            found[node] = node.all_input_nodes[0]
        elif (first := next((found[each] for each in node.all_input_nodes if each in found), None)) is not None:
            found[node] = first
    return found


def _leave_out(end: fx.Node, losses: Mapping[fx.Node, fx.Node]) -> None:
    """Remove losses from a node that collects results."""
    others = [node for node in end.all_input_nodes if node not in losses]

    def instead(node: fx.Node) -> Any:
        return node if node not in losses else None if others else losses[node]

    end.args, end.kwargs = fx.map_arg(end.args, instead), fx.map_arg(end.kwargs, instead)
