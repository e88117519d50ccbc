"""attention_swap_transform_pass: attention that is written out as one operator, or the other way round."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from mase_server.ir.facts import Facts
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.attention.multihead import Multihead
from mase_server.passes.attention.written_out import Attention, Finder, Term, UnfitError
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.error.measuring import PART_OF
from mase_server.passes.selection import Selection

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"to": "sdpa", "only": ()})
_FUSED = "scaled_dot_product_attention"
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


@transform
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
    given = options("attention_swap_transform_pass", pass_args, _DEFAULTS)
    if given["to"] not in _WAYS:
        raise ValueError(f"attention_swap: to is {given['to']!r}, expected {' or '.join(_WAYS)}")
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    swapped, kept = _WAYS[given["to"]](graph, selection)
    return graph, {"swapped": swapped, "kept": kept}


Swap = tuple[list[str], dict[str, str]]


def _fuse_all(graph: MaseGraph, selection: Selection) -> Swap:
    swapped, kept = [], {}
    finder = Finder(graph.fx_graph, dict(graph.facts), graph.module)
    for softmax in list(finder.softmaxes()):
        try:
            found = finder.attention(softmax) if selection.covers(softmax) else None
            if found is not None:
                _fuse(found, finder.facts)
                swapped.append(found.result.name)
        except UnfitError as error:
            kept[softmax.name] = str(error)
    return swapped, kept


def _fuse(found: Attention, facts: Facts) -> None:
    node, graph = found.result, found.result.graph
    with graph.inserting_before(node):
        keys = _untransposed(found.keys, len(facts[found.keys].shape)) or graph.call_method(
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


def _untransposed(node: fx.Node, rank: int) -> fx.Node | None:
    """What a node exchanges the last two dimensions of; None where it does something else."""
    match node.target, node.args:
        case ("transpose" | torch.transpose, (fx.Node() as source, int(first), int(second))):
            return source if {first % rank, second % rank} == {rank - 2, rank - 1} else None
    return None


def _with_term(graph: fx.Graph, mask: fx.Node | None, term: Term, dtype: torch.dtype) -> fx.Node:
    """What is added to the scaled scores, with one term more; what is filled in takes the place of earlier terms."""
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
    """One call of the operator, to be written out."""

    def __init__(self, node: fx.Node, facts: Facts) -> None:
        self.node, self.graph, self.facts = node, node.graph, facts
        self.given: dict[str, Any] = dict(zip(_PARAMETERS, node.args, strict=False)) | node.kwargs

    def put(self) -> None:
        """Write it out; the node itself becomes the last product, so that what it is called stays."""
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
            # The operator gives zeros for rows that are masked whole; a softmax of nothing but -inf is NaN.
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
        """Keys or values, each head as often as queries share it."""
        times = self.facts[query].shape[-3] // self.facts[node].shape[-3]
        return node if times == 1 else self._method("repeat_interleave", node, times, dim=-3)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        return self._part(self.graph.call_function(function, args, kwargs))

    def _method(self, name: str, *args: Any, **kwargs: Any) -> fx.Node:
        return self._part(self.graph.call_method(name, args, kwargs))

    def _part(self, made: fx.Node) -> fx.Node:
        made.meta |= {"scope": self.node.meta.get("scope"), PART_OF: self.node.name}
        return made


_WAYS: Mapping[str, Callable[[MaseGraph, Selection], Swap]] = {"sdpa": _fuse_all, "eager": _unfuse_all}

PASS = Pass(
    name="attention_swap",
    title="Swap how attention is computed",
    kind="transform",
    function=attention_swap_transform_pass,
    arguments=(Argument("to", "choice", "one operator, or written out", "sdpa", choices=tuple(_WAYS)),),
    selects=True,
)
