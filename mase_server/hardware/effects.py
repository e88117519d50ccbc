"""Which nodes matter to hardware: what is needed for a result, what depends on sizes alone, what changes things."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from mase_server.hardware.held import NoHardware
from mase_server.ir.build import underlying

#: Operators whose results depend on the size of their operand, not on its values.
OF_SIZES = frozenset(
    {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor"}
)  # fmt: skip

#: Operators whose second operand matters by its size and type alone.
LIKE_ANOTHER = frozenset({"view_as", "reshape_as", "expand_as", "type_as"})

#: Operators that give another view of the same memory.
_VIEWS = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "getitem", "chunk",
        "split", "unbind", "expand", "select", "narrow", "t", "detach", "swapaxes", "movedim", "view_as", "expand_as",
    }
)  # fmt: skip


def needed(graph: fx.Graph) -> set[fx.Node]:
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
    """The nodes in an output object that a node makes; not what it keeps in a cache for another call."""
    given: Any = node.args[0]
    tensors = list(given)
    made = underlying(node.target)(list(range(len(tensors))))
    return [tensors[place] for place in _places(made) if isinstance(tensors[place], fx.Node)]


def _places(value: Any) -> Iterator[int]:
    """The numbers in an output object, which stand for tensors."""
    if type(value) is int:
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _places(item)


def changes_in_place(node: fx.Node) -> bool:
    """Does a call change what it is given?"""
    name = str(getattr(node.target, "__name__", node.target))
    return node.op.startswith("call_") and (node.target is operator.setitem or name[-1:] == "_" != name[-2:-1])


def check_alone(node: fx.Node) -> None:
    """NoHardware where somebody else would see what a call changes in place: through a view, or by another name."""
    changed = node.args[0]
    if not isinstance(changed, fx.Node):
        return
    others = [user for user in changed.users if user is not node]
    if _is_view(changed) or any(_is_view(user) or node < user for user in others):
        raise NoHardware(f"it changes {changed.name} in place, which is also read elsewhere; make a new tensor")


def _is_view(node: fx.Node) -> bool:
    name = str(getattr(node.target, "__name__", node.target))
    return node.op.startswith("call_") and name in _VIEWS
