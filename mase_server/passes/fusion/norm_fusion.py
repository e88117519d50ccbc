"""norm_fusion: RMS norms that are written out, as in most language models, become one operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import fx
from torch.nn import functional as F

from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.ops.types import TensorType
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.selection import Selection

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": None})
#: Give what they take, in another element type at most.
_CASTS = frozenset({"to", "float", "type_as", "type", "contiguous", "identity", "cast", "double"})


@transform
def norm_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Take written out RMS norms together: x * rsqrt(mean(x ** 2) + eps), and the product with a weight behind it.

    The mean is over the last dimension, and casts may stand anywhere between; the whole becomes one F.rms_norm. Squares
    and means need far more bits than what is normalised: as one operator, only its result is rounded.
    only: nodes, layers or scopes, everything without it.  Gives {"fused": names of the nodes that give the results}.

    >>> class Norm(nn.Module):
    ...     def forward(self, x):
    ...         return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    >>> graph, found = passes.norm_fusion_transform_pass(MaseGraph(Norm(), {"x": torch.randn(2, 8)}))
    >>> found["fused"], [node.name for node in graph.nodes if node.op.startswith("call")]
    (['mul'], ['mul'])
    """
    given = options("norm_fusion_transform_pass", pass_args, _DEFAULTS)
    selected = Selection.of(given["only"]).checked(graph.fx_graph)
    finder, fused = _Finder(graph), []
    for root in [node for node in graph.nodes if selected.covers(node)]:
        if (found := finder.norm(root)) is not None:
            _fuse(found, graph)
            fused.append(found.result.name)
    return graph, {"fused": fused}


@dataclass(frozen=True, slots=True)
class _Norm:
    """result: the node that gives it.  source: what is normalised.  weight: what that is multiplied with, or None."""

    result: fx.Node
    source: fx.Node
    weight: fx.Node | None
    epsilon: float


class _Finder:
    """Looks at one graph."""

    def __init__(self, graph: MaseGraph) -> None:
        self.facts, self.model = graph.facts, graph.module

    def norm(self, root: fx.Node) -> _Norm | None:
        """The norm whose reciprocal root this is; None for any other node."""
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
        """What a reciprocal root is taken of."""
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
        """What a mean over the last dimension is of."""
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
        """With the product with a vector of the last dimension's length, where only that uses what is normalised."""
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
        """What a node gives before it was cast."""
        while self._is(node, *_CASTS):
            node = node.all_input_nodes[0]
        return node

    def _is(self, node: fx.Node, *operators: str) -> bool:
        if not node.op.startswith("call") or not isinstance(self.facts.get(node), TensorType):
            return False
        return operator_of(node, self.model) in operators


def _fuse(found: _Norm, graph: MaseGraph) -> None:
    """Its nodes that nobody else uses go; the result keeps its name."""
    node, size = found.result, graph.facts[found.source].shape[-1]
    node.op, node.target = "call_function", F.rms_norm
    before = list(node.all_input_nodes)
    node.args, node.kwargs = (found.source, (size,), found.weight, found.epsilon), {}
    for each in _unused(before):
        graph.fx_graph.erase_node(each)


def _unused(nodes: list[fx.Node]) -> Iterator[fx.Node]:
    """Nodes, and those before them, that nobody uses any more; the next is asked for when the last one is gone."""
    waiting = nodes
    while waiting:
        node = waiting.pop()
        if not node.users and node.op.startswith(("call", "get_attr")) and not node._erased:
            waiting += node.all_input_nodes
            yield node


PASS = Pass(
    name="norm_fusion",
    title="Fuse RMS norms",
    kind="transform",
    function=norm_fusion_transform_pass,
    selects=True,
)
