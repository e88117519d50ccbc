"""Graphs from outside whose names of layers torch.fx cannot write as code: it puts them there as they are."""

from __future__ import annotations

from torch import fx

from mase_server.ops.paths import is_writable


class UnwritableName(ValueError):
    """A layer or parameter has a name that torch.fx cannot write. The text tells the name and what to do."""


def require_writable(graph: fx.Graph) -> None:
    """Raise UnwritableName for a graph of which code cannot be made, or would be other code."""
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr") and not all(map(is_writable, str(node.target).split("."))):
            name = f"{str(node.target)!r:.120}"
            raise UnwritableName(
                f"the name {name} cannot be written in Python code as torch.fx does it, so the graph cannot be run; "
                "give that layer or parameter a name of letters, digits and _ that is no word of Python's"
            )
