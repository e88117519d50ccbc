"""What a graph lacks as hardware: the rest is closed around it, with streams to outside where something is missing."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.hardware.design import Design, Operation, Unsupported
from mase_server.hardware.entries import is_given
from mase_server.hardware.held import Floating, Held, NoHardware, Unrounded, Whole
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


class FollowsGap(NoHardware):
    """A node that only lacks what another one would give; it is told there."""


class Gaps:
    """The nodes of a graph that have no hardware."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.told: list[Unsupported] = []
        self.missing: set[fx.Node] = set()
        #: Operations that a missing node reads.
        self.wanted: dict[str, None] = {}

    def lacks(self, node: fx.Node) -> bool:
        """Is a node missing?"""
        return node in self.missing

    def check(self, node: fx.Node) -> None:
        """FollowsGap for a node that reads what no stream from outside can stand for."""
        if node.op != "output" and any(each in self.missing and not self._held(each) for each in node.all_input_nodes):
            raise FollowsGap("what it reads has no hardware")

    def left_out(self, node: fx.Node, why: NoHardware) -> Held | None:
        """Note that a node is missing; what may stand for it, if its samples are where they usually are."""
        self.missing.add(node)
        if not isinstance(why, FollowsGap):
            computes = self._computes(node)
            self.told.append(Unsupported(computes.name, operator_of(computes, self.lowering.model), str(why)))
        for source in node.all_input_nodes:
            if isinstance(held := self._held(source), Whole):
                self.wanted[held.operation] = None
        return Floating(node) if node.op != "output" and self._is_usual(node) else None

    def closed(self, outputs: tuple[str, ...]) -> Design:
        """The design: what leads to a result, or to a missing node."""
        operations = self.lowering.operations
        cut = [name for name in self.wanted if operations[name].kind != "input" and name not in outputs]
        found = _leading(operations.values(), {*outputs, *cut})
        from_outside = {self.lowering.inputs[node] for node in self.missing if node in self.lowering.inputs}
        kept = {name: each for name, each in operations.items() if name in found}
        return Design(kept, (*outputs, *cut), tuple(self.told), frozenset(cut) | (from_outside & found))

    def _computes(self, node: fx.Node) -> fx.Node:
        """The node, or of a rounding the node that computes what it rounds: people know that one."""
        held = self._held(node.all_input_nodes[0]) if format_text(node) is not None else None
        return held.node if isinstance(held, Unrounded) else node

    def _held(self, node: fx.Node) -> Held | None:
        return self.lowering.held.get(node)

    def _is_usual(self, node: fx.Node) -> bool:
        """Has a node samples in its first dimension, as many as the inputs?"""
        facts, layouts = self.lowering.facts, self.lowering.layouts
        inputs = (facts.get(each) for each in self.lowering.graph.nodes if is_given(each, facts))
        counts = {each.shape[0] for each in inputs if isinstance(each, TensorType) and each.shape}
        fact = facts.get(node)
        if not isinstance(fact, TensorType) or not fact.shape or counts != {fact.shape[0]}:
            return False
        return not any(each in layouts for each in (node, *node.all_input_nodes))


def holds_tensors(fact: Any) -> bool:
    """Is there a tensor in a fact?"""
    if isinstance(fact, dict):
        return holds_tensors(tuple(fact.values()))
    return isinstance(fact, TensorType) or (isinstance(fact, tuple) and any(map(holds_tensors, fact)))


def _leading(operations: Iterable[Operation], names: Container[str]) -> set[str]:
    """The operations that these need, and they themselves."""
    found: set[str] = set()
    for operation in reversed(list(operations)):
        if operation.name in names or operation.name in found:
            found |= {operation.name, *operation.inputs}
    return found
