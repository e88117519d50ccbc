"""Attention that is written out: two products with a softmax between them, found in a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts, call_of
from mase_server.ir.number_formats import operator_of
from mase_server.ops.table import named_arguments
from mase_server.ops.types import TensorType

_PRODUCTS = frozenset({"matmul", "bmm"})
#: A float32 as low as this does not change when a score is added to it.
_FAR = -1e9
_CASTS = frozenset({"to", "type", "type_as", "float", "contiguous", "identity", "cast"})


class UnfitError(Exception):
    """Why a softmax is not that of an attention which one operator computes."""


@dataclass(slots=True)
class Term:
    """Something that is added to the scores: `tensor` itself, or `value` where it is true (false, if not `where`).

    factor: what it is multiplied with.
    """

    tensor: fx.Node
    value: Any = None
    where: bool = True
    factor: float = 1.0


@dataclass(slots=True)
class Attention:
    """softmax(query @ keys * scale + terms) @ value. keys: transposed already.

    result: the node of the last product.  between: the nodes that are used for nothing else, the last one first.
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
    """Finds written out attention in one graph."""

    def __init__(self, graph: fx.Graph, facts: Facts, model: nn.Module) -> None:
        self.graph, self.facts, self.model = graph, facts, model

    def softmaxes(self) -> Iterator[fx.Node]:
        """Every softmax over the last dimension of something with rows."""
        for node in self.graph.nodes:
            if node.op.startswith("call_") and operator_of(node, self.model) == "softmax" and self._rank(node) > 1:
                yield node

    def attention(self, softmax: fx.Node) -> Attention | None:
        """The attention around a softmax; None where no product uses it. UnfitError for one that differs from ours."""
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
        """The nodes from the softmax to the product with the values, and that."""
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
        """What tells a node to put zeros into rows that are masked whole: is every score minus infinity?"""
        match node.target, node.args:
            case "masked_fill", (fx.Node(), fx.Node(target="all", args=(fx.Node() as equal,)) as every, 0.0):
                if equal.args == (softmax.all_input_nodes[0], -math.inf) and len(every.users) == len(equal.users) == 1:
                    return every, equal
        return ()

    def _passes(self, node: fx.Node) -> bool:
        """Does a node give what it takes?"""
        operator = operator_of(node, self.model)
        if operator == "dropout":
            if self._drops(node):
                raise UnfitError("it drops weights at random, and one operator would drop others")
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
        """A sum with a mask or a bias: the operand that depends on the scores' product goes on."""
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
        given: dict[str, Any] = dict(zip(("input", "mask", "value"), node.args, strict=False)) | node.kwargs
        found.terms.append(Term(given["mask"], self._far(node, given["value"], found.scale), True, found.scale))
        scores: fx.Node = given["input"]
        return scores

    def _chosen(self, found: Attention, node: fx.Node) -> fx.Node:
        """where(mask, scores, value), or the other way round."""
        if node.op != "call_function" or len(node.args) != 3:
            raise UnfitError(f"{node.name} is a where that gives places, or a method")
        mask, kept, other = node.args
        first = isinstance(kept, fx.Node) and self._leads_to_product(kept)
        scores, value = (kept, other) if first else (other, kept)
        if not isinstance(scores, fx.Node) or not isinstance(mask, fx.Node):
            raise UnfitError(f"{node.name} chooses between things that are no scores")
        found.terms.append(Term(mask, self._far(node, value, found.scale), not first, found.scale))
        return scores

    def _far(self, node: fx.Node, value: Any, factor: float) -> float:
        """The number that is put in place of scores; so far below that what is added to it does not matter."""
        if isinstance(value, fx.Node) and value.target is torch.tensor:
            value = value.args[0]
        if not isinstance(value, int | float):
            raise UnfitError(f"{node.name} puts something that is no number in place of scores")
        if value * factor > _FAR:
            raise UnfitError(f"{node.name} puts {value} in place of scores, which is not far enough below them")
        return value

    def _leads_to_product(self, node: fx.Node) -> bool:
        """Is this on the way from the product of queries and keys?"""
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

    def _arguments(self, node: fx.Node) -> dict[str, Any]:
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
