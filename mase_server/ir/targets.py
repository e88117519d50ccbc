"""Graphs from outside whose names of layers torch.fx cannot write as code: it puts them there as they are."""

from __future__ import annotations

from torch import fx

from mase_server.ops.paths import is_writable

#: Numbers in a path are calls of getattr inside of each other, of which Python's parser takes 200 at most.
_MOST_CALLS = 190


class UnwritableName(ValueError):
    """A layer or parameter has a name that torch.fx cannot write. The text tells the name and what to do."""


def require_writable(graph: fx.Graph) -> None:
    """Raise UnwritableName for a graph of which code cannot be made, or would be other code."""
    for node in graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        names = str(node.target).split(".")
        name = f"{str(node.target)!r:.120}"
        if sum(not name.isidentifier() for name in names) > _MOST_CALLS:
            raise UnwritableName(
                f"the layer {name} is {len(names)} deep in containers, and Python takes no code nested so deep, so "
                f"the graph cannot be run; nest at most {_MOST_CALLS} of them, e.g. put all into one nn.Sequential"
            )
        if not all(map(is_writable, names)):
            raise UnwritableName(
                f"the name {name} cannot be written in Python code as torch.fx does it, so the graph cannot be run; "
                "give that layer or parameter a name of letters, digits and _ that is no word of Python's"
            )
