"""Attention: written out, or as one operator."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts, call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import Kwargs, MaseArguments, TensorType
from mase_server.passes.completing import transform
from mase_server.passes.declaration import LAYER, Argument, Result, Selection, complete_options
from mase_server.passes.error import GIVES, PART_OF

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"to": "sdpa", "only": ()})
_FUSED = "scaled_dot_product_attention"
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_WAYS = ("sdpa", "eager")


@transform(
    "Swap how attention is computed",
    arguments=(Argument("to", "choice", "one operator, or its steps written out", "sdpa", choices=_WAYS),),
    selects=True,
)
def attention_swap_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Write attention in another way that computes the same: torch's one operator, or products and a softmax.

    to: "sdpa" for F.scaled_dot_product_attention, "eager" for attention written out.  only: nodes and modules to work
    on; without it, the whole graph.
    nn.MultiheadAttention is written out with its projections.
    Written out attention is softmax(query @ keys * scale + masks) @ value; masks and biases are added, filled in or
    chosen by where, in any order with the scaling. Results differ by rounding alone; where a row is masked whole with
    minus infinity, one operator gives zeros, and what is written out here does too. Attention whose weights are used
    elsewhere, or are dropped at random, stays as it is.
    Gives {"swapped": names of the nodes that give the results, "kept": node: why it was left}.
    ValueError for another word or an unknown name.
    Source: `chop.passes.module.transforms.attention.attention_swap_transform_pass`.

    >>> class Attention(nn.Module):
    ...     def forward(self, q, k, v):
    ...         return torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, dim=-1) @ v
    >>> graph = MaseGraph(Attention(), {name: torch.randn(1, 2, 5, 8) for name in "qkv"})
    >>> graph, found = passes.attention_swap_transform_pass(graph)
    >>> found, [node.name for node in graph.nodes if node.op.startswith("call")]
    ({'swapped': ['matmul_1'], 'kept': {}}, ['matmul_1'])
    """
    given = complete_options("attention_swap_transform_pass", pass_args, _DEFAULTS)
    if given["to"] not in _WAYS:
        raise ValueError(f"attention_swap: to is {given['to']!r}, expected {' or '.join(_WAYS)}")
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    swapped, kept = (_fuse_all if given["to"] == "sdpa" else _unfuse_all)(graph, selection)
    return graph, {"swapped": swapped, "kept": kept}


Swap = tuple[list[str], dict[str, str]]


def _fuse_all(graph: MaseGraph, selection: Selection) -> Swap:
    swapped, kept = [], {}
    finder = Finder(graph.fx_graph, dict(graph.facts), graph.module)
    for softmax in list(finder.softmaxes()):
        try:
            found = finder.attention(softmax) if selection.covers(softmax) else None
            if found is not None:
                _fuse_attention(found, finder.facts)
                swapped.append(found.result.name)
        except UnfitError as error:
            kept[softmax.name] = str(error)
    return swapped, kept


def _fuse_attention(found: Attention, facts: Facts) -> None:
    node, graph = found.result, found.result.graph
    with graph.inserting_before(node):
        keys = _source_of_transpose(found.keys, len(facts[found.keys].shape)) or graph.call_method(
            "transpose", (found.keys, -1, -2)
        )
        mask = None
        for term in reversed(found.terms):
            mask = _with_term(graph, mask, term, getattr(torch, facts[found.softmax].dtype))
    for made in keys, mask:
        if made is not None:
            made.meta.setdefault("scope", node.meta.get("scope"))
    node.op, node.target = "call_function", F.scaled_dot_product_attention
    node.args = (found.query, keys, found.value)
    node.kwargs = {**({} if mask is None else {"attn_mask": mask}), "scale": found.scale}
    for each in found.between:
        graph.erase_node(each)
    if not found.keys.users:
        graph.erase_node(found.keys)


def _source_of_transpose(node: fx.Node, rank: int) -> fx.Node | None:
    """The source whose last two dimensions a node exchanges; None for any other node."""
    match node.target, node.args:
        case ("transpose" | torch.transpose, (fx.Node() as source, int(first), int(second))):
            return source if {first % rank, second % rank} == {rank - 2, rank - 1} else None
    return None


def _with_term(graph: fx.Graph, mask: fx.Node | None, term: Term, dtype: torch.dtype) -> fx.Node:
    """Add one more term to the mask of the scaled scores; a fill value replaces earlier terms."""
    if term.value is None:
        node = term.tensor if term.factor == 1 else graph.call_function(operator.mul, (term.tensor, term.factor))
        return node if mask is None else graph.call_function(operator.add, (mask, node))
    kept = graph.call_function(torch.zeros, ((),), {"dtype": dtype}) if mask is None else mask
    value = term.value * term.factor
    choices = (value, kept) if term.where else (kept, value)
    return graph.call_function(torch.where, (term.tensor, *choices))


def _unfuse_all(graph: MaseGraph, selection: Selection) -> Swap:
    facts, swapped = dict(graph.facts), []
    kept: dict[str, str] = {}
    for node in list(graph.fx_graph.nodes):
        layer = Multihead.of(node, graph.module, facts) if selection.covers(node) else None
        if layer is not None:
            try:
                swapped.append(layer.put())
            except UnfitError as error:
                kept[node.name] = str(error)
            continue
        is_call = node.op == "call_function" and operator_of(node, graph.module) == _FUSED
        if is_call and selection.covers(node):
            _WrittenOut(node, facts).put()
            swapped.append(node.name)
    return swapped, kept


class _WrittenOut:
    """One call of the operator that is to be written out."""

    def __init__(self, node: fx.Node, facts: Facts) -> None:
        self.node, self.graph, self.facts = node, node.graph, facts
        self.given: Kwargs = dict(zip(_PARAMETERS, node.args, strict=False)) | node.kwargs

    def put(self) -> None:
        """Write it out; the node itself becomes the last product, so that its name stays."""
        with self.graph.inserting_before(self.node):
            query, key, value = (self.given[name] for name in _PARAMETERS[:3])
            if self.given.get("enable_gqa"):
                key, value = self._repeated(query, key), self._repeated(query, value)
            scores = self._call(torch.matmul, query, self._method("transpose", key, -1, -2))
            scale = self.given.get("scale")
            size = self.facts[query].shape[-1]
            scores = self._call(operator.mul, scores, 1 / math.sqrt(size) if scale is None else scale)
            weights = self._weights(scores, query, key)
        self.node.target, self.node.args, self.node.kwargs = torch.matmul, (weights, value), {}

    def _weights(self, scores: fx.Node, query: fx.Node, key: fx.Node) -> fx.Node:
        masked = self._masked(scores, query, key)
        weights = self._call(torch.softmax, masked, dim=-1)
        if self.given.get("attn_mask") is not None:
            # The operator gives zeros for rows that are masked completely; a softmax of only -inf is NaN.
            empty = self._method("all", self._call(operator.eq, masked, -math.inf), dim=-1, keepdim=True)
            weights = self._method("masked_fill", weights, empty, 0.0)
        probability = self.given.get("dropout_p") or 0.0
        return self._call(F.dropout, weights, probability, True) if probability else weights

    def _masked(self, scores: fx.Node, query: fx.Node, key: fx.Node) -> fx.Node:
        mask = self.given.get("attn_mask")
        if self.given.get("is_causal"):
            sizes = [self._method("size", each, -2) for each in (query, key)]
            mask = self._method("tril", self._call(torch.ones, *sizes, dtype=torch.bool))
        elif isinstance(mask, fx.Node) and self.facts[mask].dtype != "bool":
            return self._call(operator.add, scores, mask)
        if mask is None:
            return scores
        return self._method("masked_fill", scores, self._call(torch.logical_not, mask), -math.inf)

    def _repeated(self, query: fx.Node, node: fx.Node) -> fx.Node:
        """Keys or values, with each head repeated for the queries that share it."""
        times = self.facts[query].shape[-3] // self.facts[node].shape[-3]
        return node if times == 1 else self._method("repeat_interleave", node, times, dim=-3)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        return self._part(self.graph.call_function(function, args, kwargs))

    def _method(self, name: str, *args: Any, **kwargs: Any) -> fx.Node:
        return self._part(self.graph.call_method(name, args, kwargs))

    def _part(self, made: fx.Node) -> fx.Node:
        made.meta |= {"scope": self.node.meta.get("scope"), PART_OF: self.node.name}
        return made


# nn.MultiheadAttention written out: projections, products, and a softmax between them.

_MULTIHEAD_PARAMETERS = (
    "query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Multihead:
    """One call of such a layer. UnfitError for options that cannot be written out: extra keys, random dropout, no
    batch."""

    node: fx.Node
    layer: nn.MultiheadAttention
    facts: Facts

    @classmethod
    def of(cls, node: fx.Node, model: nn.Module, facts: Facts) -> Multihead | None:
        """Parse a node that calls the layer; None for any other node."""
        layer = attribute(model, str(node.target)) if node.op == "call_module" else None
        return cls(node, layer, facts) if isinstance(layer, nn.MultiheadAttention) else None

    def put(self) -> str:
        """Write it out in place of the call; return the name of the node that gives the result."""
        given = dict(zip(_MULTIHEAD_PARAMETERS, self.node.args, strict=False)) | self.node.kwargs
        self._check(given)
        with self.node.graph.inserting_before(self.node):
            values = self._method("transpose", self._projected(given, "value"), 1, 2)
            weights = self._weights(given)
            heads = self._method("transpose", self._call(torch.matmul, weights, values), 1, 2)
            bias = None if self.layer.out_proj.bias is None else self._held("out_proj.bias")
            projected = self._call(F.linear, self._method("flatten", heads, 2), self._held("out_proj.weight"), bias)
            result = self._sides(projected)
            self._give(result, weights, bool(given.get("average_attn_weights", True)))
        self.node.graph.erase_node(self.node)
        return str(result.name)

    def _give(self, result: fx.Node, weights: fx.Node, average: bool) -> None:
        """Pass result and weights to their users."""
        for user in list(self.node.users):
            if user.args[1] == 0:
                result.meta[GIVES] = user.name
                user.replace_all_uses_with(result)
            elif user.users:
                user.replace_all_uses_with(self._call(torch.mean, weights, 1) if average else weights)
            user.graph.erase_node(user)

    def _check(self, given: Kwargs) -> None:
        layer, rank = self.layer, len(self.facts[given["query"]].shape)
        if rank != 3:
            raise UnfitError(f"its query has {rank} dimensions; only [batch, rows, features] is written out")
        if layer.bias_k is not None or layer.add_zero_attn:
            raise UnfitError("it adds keys of its own")
        if layer.training and layer.dropout:
            raise UnfitError("it drops weights at random")
        if any(user.target is not operator.getitem for user in self.node.users):
            raise UnfitError("its result is not taken apart at once")

    def _weights(self, given: Kwargs) -> fx.Node:
        """The weights, [batch, heads, rows, keys]."""
        query, key = (self._method("transpose", self._projected(given, name), 1, 2) for name in ("query", "key"))
        scores = self._call(torch.matmul, query, self._method("transpose", key, -1, -2))
        scores = self._call(operator.mul, scores, 1 / math.sqrt(self.layer.head_dim))
        if (mask := given.get("attn_mask")) is not None:
            by_head = len(self.facts[mask].shape) == 3
            spread = self._method("unflatten", mask, 0, (-1, self.layer.num_heads)) if by_head else mask
            scores = self._masked(scores, spread, mask)
        if (padding := given.get("key_padding_mask")) is not None:
            spread = self._method("unsqueeze", self._method("unsqueeze", padding, 1), 1)
            scores = self._masked(scores, spread, padding)
        return self._call(torch.softmax, scores, dim=-1)

    def _masked(self, scores: fx.Node, spread: fx.Node, mask: fx.Node) -> fx.Node:
        if self.facts[mask].dtype == "bool":
            return self._method("masked_fill", scores, spread, -math.inf)
        return self._call(operator.add, scores, spread)

    def _projected(self, given: Kwargs, name: str) -> fx.Node:
        """Queries, keys or values of all heads, [batch, rows, heads, features]."""
        index, size = ("query", "key", "value").index(name), self.layer.embed_dim
        part = slice(index * size, (index + 1) * size)
        if self.layer._qkv_same_embed_dim:
            weight = self._call(operator.getitem, self._held("in_proj_weight"), part)
        else:
            weight = self._held(f"{name[0]}_proj_weight")
        bias = None
        if self.layer.in_proj_bias is not None:
            bias = self._call(operator.getitem, self._held("in_proj_bias"), part)
        made = self._call(F.linear, self._sides(given[name]), weight, bias)
        return self._method("unflatten", made, -1, (self.layer.num_heads, -1))

    def _sides(self, node: fx.Node) -> fx.Node:
        """Move the batch to the first dimension, or back to where it was."""
        return node if self.layer.batch_first else self._method("transpose", node, 0, 1)

    def _held(self, name: str) -> fx.Node:
        return self._noted(self.node.graph.get_attr(f"{self.node.target}.{name}"))

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        return self._noted(self.node.graph.call_function(function, args, kwargs))

    def _method(self, name: str, *args: Any) -> fx.Node:
        return self._noted(self.node.graph.call_method(name, args))

    def _noted(self, made: fx.Node) -> fx.Node:
        made.meta["scope"] = self.node.meta.get("scope")
        made.meta[LAYER] = str(self.node.target)
        return made


# Finding written-out attention in a graph: two products with a softmax between them.
#
# Recognition starts at the softmax. Attention stays written out where one operator would not compute the same: if
# another
# node reads scores or weights, if a mask is not far below the scores, or if dropout is random.

_PRODUCTS = frozenset({"matmul", "bmm"})
#: A float32 this low does not change when a score is added to it.
_FAR = -1e9
_CASTS = frozenset({"to", "type", "type_as", "float", "contiguous", "identity", "cast"})


class UnfitError(Exception):
    """The reason why a softmax does not belong to attention that one operator can compute."""


@dataclass(slots=True)
class Term:
    """A term added to the scores: `tensor` itself, or `value` where it is true (false, if not `where`).

    factor: the term's factor.
    """

    tensor: fx.Node
    value: Any = None
    where: bool = True
    factor: float = 1.0


@dataclass(slots=True)
class Attention:
    """softmax(query @ keys * scale + terms) @ value. keys: transposed already.

    result: the node of the last product.  between: the nodes with no other use, the last one first.
    """

    softmax: fx.Node
    result: fx.Node
    query: fx.Node
    keys: fx.Node
    value: fx.Node
    scale: float = 1.0
    terms: list[Term] = field(default_factory=list)
    between: list[fx.Node] = field(default_factory=list)


class Finder:
    """Finds written-out attention in one graph."""

    def __init__(self, graph: fx.Graph, facts: Facts, model: nn.Module) -> None:
        self.graph, self.facts, self.model = graph, facts, model

    def softmaxes(self) -> Iterator[fx.Node]:
        """Every softmax over the last dimension of a tensor with rows."""
        for node in self.graph.nodes:
            if node.op.startswith("call_") and operator_of(node, self.model) == "softmax" and self._rank(node) > 1:
                yield node

    def attention(self, softmax: fx.Node) -> Attention | None:
        """The attention around a softmax; None if no product uses it. UnfitError for one with another structure."""
        path, result = self._to_product(softmax)
        if result is None:
            return None
        dim = self._arguments(softmax).get("dim", -1)
        if dim not in (-1, self._rank(softmax) - 1):
            raise UnfitError(f"the softmax is over dimension {dim}")
        first, second = self._operands(result)
        if first is not path[-1]:
            raise UnfitError("its weights are not the first operand of the product")
        between = [*reversed(path), *(part for node in path for part in self._guard(node, softmax))]
        found = Attention(softmax, result, softmax, softmax, second, between=between)
        self._scores(found, softmax.all_input_nodes[0])
        return found

    def _to_product(self, softmax: fx.Node) -> tuple[list[fx.Node], fx.Node | None]:
        """The nodes from the softmax to the product with the values, and that product."""
        path = [softmax]
        while True:
            users = list(path[-1].users)
            if len(users) == 1 and operator_of(users[0], self.model) in _PRODUCTS:
                return path, users[0]
            onward = [user for user in users if self._goes_on(user, softmax)]
            if not onward:
                return path, None
            if len(users) > 1:
                raise UnfitError("its weights are used elsewhere too")
            path.append(users[0])

    def _goes_on(self, node: fx.Node, softmax: fx.Node) -> bool:
        is_product = operator_of(node, self.model) in _PRODUCTS
        return is_product or bool(self._guard(node, softmax)) or self._passes(node)

    def _guard(self, node: fx.Node, softmax: fx.Node) -> tuple[fx.Node, ...]:
        """The condition of a node that puts zeros into rows that are masked completely: is every score minus
        infinity?"""
        match node.target, node.args:
            case "masked_fill", (fx.Node(), fx.Node(target="all", args=(fx.Node() as equal,)) as every, 0.0):
                if equal.args == (softmax.all_input_nodes[0], -math.inf) and len(every.users) == len(equal.users) == 1:
                    return every, equal
        return ()

    def _passes(self, node: fx.Node) -> bool:
        """Does a node pass on its input unchanged?"""
        operator = operator_of(node, self.model)
        if operator == "dropout":
            if self._drops(node):
                raise UnfitError("it drops weights at random, and one operator would drop other ones")
            return True
        return operator in _CASTS and self.facts.get(node) == self.facts.get(node.all_input_nodes[0])

    def _drops(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            layer = attribute(self.model, str(node.target))
            return bool(layer.training and layer.p)
        given = self._arguments(node)
        return bool(given.get("training", True) and given.get("p", 0.5))

    def _scores(self, found: Attention, node: fx.Node) -> None:
        """Follow the scores back to the product of queries and keys."""
        while (operator := operator_of(node, self.model)) not in _PRODUCTS:
            self._require_private(found, node)
            found.between.append(node)
            step = _STEPS.get(operator)
            node = step(self, found, node) if step is not None else self._through(node)
        self._require_private(found, node)
        found.between.append(node)
        found.query, found.keys = self._operands(node)

    def _require_private(self, found: Attention, node: fx.Node) -> None:
        if any(user not in found.between for user in node.users):
            raise UnfitError(f"its scores are used elsewhere too, at {node.name}")

    def _through(self, node: fx.Node) -> fx.Node:
        if self._passes(node):
            return node.all_input_nodes[0]
        raise UnfitError(f"{node.name} changes its scores in another way")

    def _scaled(self, found: Attention, node: fx.Node) -> fx.Node:
        """A product with, or a quotient by, a number."""
        first, second = node.args if len(node.args) == 2 else (None, None)
        if isinstance(second, fx.Node) and not isinstance(first, fx.Node) and operator_of(node, self.model) == "mul":
            first, second = second, first
        if not isinstance(first, fx.Node) or not isinstance(second, int | float):
            raise UnfitError(f"{node.name} scales its scores by something that is no number")
        factor = second if operator_of(node, self.model) == "mul" else 1 / second
        found.scale *= factor
        return first

    def _added(self, found: Attention, node: fx.Node) -> fx.Node:
        """A sum with a mask or a bias: the search continues in the operand that depends on the product."""
        operands = [each for each in node.args if isinstance(each, fx.Node)]
        if len(operands) != 2 or len(node.args) != 2 or node.kwargs:
            raise UnfitError(f"{node.name} adds a number to its scores")
        leading = [each for each in operands if self._leads_to_product(each)]
        if len(leading) != 1:
            raise UnfitError(f"{node.name} does not add to scaled and masked scores")
        scores, other = leading[0], next(each for each in operands if each is not leading[0])
        fact = self.facts[other]
        if not isinstance(fact, TensorType) or fact.dtype != self.facts[scores].dtype:
            raise UnfitError(f"{other.name}, which is added, is of another element type")
        found.terms.append(Term(other, factor=found.scale))
        return scores

    def _filled(self, found: Attention, node: fx.Node) -> fx.Node:
        """masked_fill(scores, mask, value)."""
        given: Kwargs = dict(zip(("input", "mask", "value"), node.args, strict=False)) | node.kwargs
        found.terms.append(Term(given["mask"], self._far(node, given["value"], found.scale), True, found.scale))
        scores: fx.Node = given["input"]
        return scores

    def _chosen(self, found: Attention, node: fx.Node) -> fx.Node:
        """where(mask, scores, value), or where(mask, value, scores)."""
        if node.op != "call_function" or len(node.args) != 3:
            raise UnfitError(f"{node.name} is a where that returns indices, or a method")
        mask, kept, other = node.args
        first = isinstance(kept, fx.Node) and self._leads_to_product(kept)
        scores, value = (kept, other) if first else (other, kept)
        if not isinstance(scores, fx.Node) or not isinstance(mask, fx.Node):
            raise UnfitError(f"{node.name} chooses between tensors that are no scores")
        found.terms.append(Term(mask, self._far(node, value, found.scale), not first, found.scale))
        return scores

    def _far(self, node: fx.Node, value: Any, factor: float) -> float:
        """The number that replaces scores; so far below them that terms added to it do not matter."""
        if isinstance(value, fx.Node) and value.target is torch.tensor:
            value = value.args[0]
        if not isinstance(value, int | float):
            raise UnfitError(f"{node.name} replaces scores by something that is no number")
        if value * factor > _FAR:
            raise UnfitError(f"{node.name} replaces scores by {value}, which is not far enough below them")
        return value

    def _leads_to_product(self, node: fx.Node) -> bool:
        """Is this node between the product of queries and keys and the softmax?"""
        for _ in range(16):
            operator = operator_of(node, self.model)
            if operator in _PRODUCTS:
                return True
            sources = [each for each in node.all_input_nodes if self.facts.get(each) == self.facts.get(node)]
            if not sources or (operator not in _STEPS and operator not in _CASTS):
                return False
            node = next((each for each in sources if operator_of(each, self.model) in _PRODUCTS), sources[0])
        return False

    def _operands(self, product: fx.Node) -> tuple[fx.Node, fx.Node]:
        given = [*product.args, *product.kwargs.values()]
        match given:
            case [fx.Node() as first, fx.Node() as second] if self._rank(first) == self._rank(second) > 1:
                return first, second
        raise UnfitError(f"{product.name} is no product of two tensors with equally many dimensions")

    def _arguments(self, node: fx.Node) -> MaseArguments:
        return named_arguments(call_of(node, self.facts, self.model))

    def _rank(self, node: fx.Node) -> int:
        fact = self.facts.get(node)
        return len(fact.shape) if isinstance(fact, TensorType) else 0


_STEPS: Mapping[str, Callable[[Finder, Attention, fx.Node], fx.Node]] = {
    "mul": Finder._scaled,
    "div": Finder._scaled,
    "add": Finder._added,
    "masked_fill": Finder._filled,
    "where": Finder._chosen,
}
