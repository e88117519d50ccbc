"""The nodes that matter to hardware, those that depend only on sizes, those that change tensors in place, and those
that are missing."""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.hardware.design import Design, Operation, Unsupported
from mase_server.hardware.held import Floating, Held, NoHardware, Unrounded, Whole, is_given
from mase_server.ir.build import underlying_callable
from mase_server.ir.number_formats import format_text, operator_of
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


#: Operators whose results depend on the size of their operand, not on its values.
OF_SIZES = frozenset(
    {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor"}
)  # fmt: skip

#: Operators whose second operand matters only by its size and type.
LIKE_ANOTHER = frozenset({"view_as", "reshape_as", "expand_as", "type_as"})

#: Operators that give another view of the same memory.
_VIEWS = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "getitem", "chunk",
        "split", "unbind", "expand", "select", "narrow", "t", "detach", "swapaxes", "movedim", "view_as", "expand_as",
    }
)  # fmt: skip


def find_needed_nodes(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that a result depends on, and those that change something in place."""
    found = {node for node in graph.nodes if node.op in ("output", "placeholder")}
    found |= {node for node in graph.nodes if changes_in_place(node) and node not in found}
    waiting = list(found)
    while waiting:
        new = [each for each in waiting.pop().all_input_nodes if each not in found]
        found.update(new)
        waiting += new
    return found


def fields_of(node: fx.Node) -> list[fx.Node]:
    """The nodes in an output object that a node makes; without those that it caches for another call."""
    given: Any = node.args[0]
    tensors = list(given)
    made = underlying_callable(node.target)(list(range(len(tensors))))
    return [tensors[place] for place in _iterate_places(made) if isinstance(tensors[place], fx.Node)]


def _iterate_places(value: Any) -> Iterator[int]:
    """The numbers in an output object that represent tensors."""
    if type(value) is int:
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _iterate_places(item)


def changes_in_place(node: fx.Node) -> bool:
    """Does a call change its arguments?"""
    name = str(getattr(node.target, "__name__", node.target))
    return node.op.startswith("call_") and (node.target is operator.setitem or name[-1:] == "_" != name[-2:-1])


def check_alone(node: fx.Node) -> None:
    """Raise NoHardware if an in-place change could be seen elsewhere: through a view, or under another name."""
    changed = node.args[0]
    if not isinstance(changed, fx.Node):
        return
    others = [user for user in changed.users if user is not node]
    if _is_view(changed) or any(_is_view(user) or node < user for user in others):
        raise NoHardware(f"it changes {changed.name} in place, which is also read elsewhere; make a new tensor")


def _is_view(node: fx.Node) -> bool:
    name = str(getattr(node.target, "__name__", node.target))
    return node.op.startswith("call_") and name in _VIEWS


# The nodes without hardware: the rest of the graph is completed with streams from and to the outside in their places.


class FollowsGap(NoHardware):
    """A node has no hardware only because its input has none; that input reports the reason."""


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
        """Raise FollowsGap for a node whose missing input no stream from outside can replace."""
        if node.op != "output" and any(each in self.missing and not self._held(each) for each in node.all_input_nodes):
            raise FollowsGap("its input has no hardware")

    def left_out(self, node: fx.Node, why: NoHardware) -> Held | None:
        """Note that a node is missing; return a stream from outside in its place if its samples are in the first
        dimension."""
        self.missing.add(node)
        if not isinstance(why, FollowsGap):
            computes = self._computing_node(node)
            self.told.append(Unsupported(computes.name, operator_of(computes, self.lowering.model), str(why)))
        for source in node.all_input_nodes:
            if isinstance(held := self._held(source), Whole):
                self.wanted[held.operation] = None
        return Floating(node) if node.op != "output" and self._is_usual(node) else None

    def closed(self, outputs: tuple[str, ...]) -> Design:
        """The design of all operations that lead to a result or to a missing node."""
        operations = self.lowering.operations
        cut = [name for name in self.wanted if operations[name].kind != "input" and name not in outputs]
        found = _find_leading_operations(operations.values(), {*outputs, *cut})
        from_outside = {self.lowering.inputs[node] for node in self.missing if node in self.lowering.inputs}
        kept = {name: each for name, each in operations.items() if name in found}
        return Design(kept, (*outputs, *cut), tuple(self.told), frozenset(cut) | (from_outside & found))

    def _computing_node(self, node: fx.Node) -> fx.Node:
        """The node; for a rounding, the node whose result it rounds, because the user knows that one."""
        held = self._held(node.all_input_nodes[0]) if format_text(node) is not None else None
        return held.node if isinstance(held, Unrounded) else node

    def _held(self, node: fx.Node) -> Held | None:
        return self.lowering.held.get(node)

    def _is_usual(self, node: fx.Node) -> bool:
        """Has a node its samples in its first dimension, as many as the inputs?"""
        facts, layouts = self.lowering.facts, self.lowering.layouts
        inputs = (facts.get(each) for each in self.lowering.graph.nodes if is_given(each, facts))
        counts = {each.shape[0] for each in inputs if isinstance(each, TensorType) and each.shape}
        fact = facts.get(node)
        if not isinstance(fact, TensorType) or not fact.shape or counts != {fact.shape[0]}:
            return False
        return not any(each in layouts for each in (node, *node.all_input_nodes))


def holds_tensors(fact: Any) -> bool:
    """Does a fact contain a tensor?"""
    if isinstance(fact, dict):
        return holds_tensors(tuple(fact.values()))
    return isinstance(fact, TensorType) or (isinstance(fact, tuple) and any(map(holds_tensors, fact)))


def _find_leading_operations(operations: Iterable[Operation], names: Container[str]) -> set[str]:
    """The named operations and all that they need."""
    found: set[str] = set()
    for operation in reversed(list(operations)):
        if operation.name in names or operation.name in found:
            found |= {operation.name, *operation.inputs}
    return found
