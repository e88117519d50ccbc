"""Which values of a graph are data, to be rounded, and which must stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts
from mase_server.ir.number_formats import moves, operator_of
from mase_server.ops.types import TensorType

#: What is added to scores that are to count for nothing is at most this.
_NEVER = -1e4
#: Put a value that means "never" where it is told to.
_MASKING = frozenset({"masked_fill", "where", "masked_fill_"})


@dataclass(frozen=True, slots=True)
class Values:
    """data: nodes whose floating-point results depend on inputs, parameters or buffers, not only on sizes and masks.
    masked: those that may hold "minus infinity", which a narrow format would make a moderate number."""

    data: set[fx.Node]
    masked: set[fx.Node]

    def rounds(self, node: fx.Node) -> bool:
        """May this value be rounded?"""
        return node in self.data and node not in self.masked

    @classmethod
    def of(cls, graph: fx.Graph, facts: Facts, model: nn.Module) -> Values:
        """Found by following the graph once."""
        data: set[fx.Node] = set()
        masked: set[fx.Node] = set()
        for node in graph.nodes:
            if not is_floating(facts.get(node)):
                continue
            tensors = [source for source in node.all_input_nodes if is_floating(facts.get(source))]
            known = [source in data for source in tensors]
            if node.op == "get_attr" and _is_mask(attribute(model, str(node.target))):
                continue
            if node.op in ("placeholder", "get_attr") or _has_parameters(node, model) or any(known):
                data.add(node)
            operator = operator_of(node, model)
            added_to = operator in ("add", "sub") and any(known) and not all(known)
            moved = any(source in masked for source in tensors) and moves(node, model)
            if operator in _MASKING or added_to or moved:
                masked.add(node)
        return cls(data, masked)


def _is_mask(held: object) -> bool:
    """Is this a buffer of zeros and minus infinity, or of what is as good as that? On meta nobody knows."""
    if not isinstance(held, Tensor) or isinstance(held, nn.Parameter) or held.is_meta or not held.numel():
        return False
    return bool(((held == 0) | (held <= _NEVER)).all()) and bool((held <= _NEVER).any())


def is_floating(fact: object) -> bool:
    """Is this a floating-point tensor, or a tuple or dict that holds one?"""
    if isinstance(fact, dict):
        return is_floating(tuple(fact.values()))
    if isinstance(fact, tuple):
        return any(is_floating(item) for item in fact)
    return isinstance(fact, TensorType) and fact.dtype.startswith(("float", "bfloat"))


def _has_parameters(node: fx.Node, model: nn.Module) -> bool:
    if node.op != "call_module":
        return False
    return next(attribute(model, str(node.target)).parameters(), None) is not None
