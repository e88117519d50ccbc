"""nn.MultiheadAttention written out: projections, products, a softmax between them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts
from mase_server.passes.attention.written_out import UnfitError
from mase_server.passes.error.measuring import GIVES
from mase_server.passes.selection import LAYER

_PARAMETERS = (
    "query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Multihead:
    """One call of such a layer. UnfitError for what is not written out: extra keys, random dropout, no batch."""

    node: fx.Node
    layer: nn.MultiheadAttention
    facts: Facts

    @classmethod
    def of(cls, node: fx.Node, model: nn.Module, facts: Facts) -> Multihead | None:
        """A node that calls one; None for any other node."""
        layer = attribute(model, str(node.target)) if node.op == "call_module" else None
        return cls(node, layer, facts) if isinstance(layer, nn.MultiheadAttention) else None

    def put(self) -> str:
        """Write it out in place of the call; the name of the node that gives its result."""
        given = dict(zip(_PARAMETERS, self.node.args, strict=False)) | self.node.kwargs
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
        """Result and weights to those who take them."""
        for user in list(self.node.users):
            if user.args[1] == 0:
                result.meta[GIVES] = user.name
                user.replace_all_uses_with(result)
            elif user.users:
                user.replace_all_uses_with(self._call(torch.mean, weights, 1) if average else weights)
            user.graph.erase_node(user)

    def _check(self, given: dict[str, Any]) -> None:
        layer, rank = self.layer, len(self.facts[given["query"]].shape)
        if rank != 3:
            raise UnfitError(f"its query has {rank} dimensions; [batch, rows, features] is written out")
        if layer.bias_k is not None or layer.add_zero_attn:
            raise UnfitError("it adds keys of its own")
        if layer.training and layer.dropout:
            raise UnfitError("it drops weights at random")
        if any(user.target is not operator.getitem for user in self.node.users):
            raise UnfitError("its result is not taken apart at once")

    def _weights(self, given: dict[str, Any]) -> fx.Node:
        """[batch, heads, rows, keys]."""
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

    def _projected(self, given: dict[str, Any], name: str) -> fx.Node:
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
        """The batch first, or where it was."""
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
