"""Which nodes a pass works on: the argument `only` of passes that select."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from torch import fx

from mase_server.suggestions import suggest

#: Under this key a node that was the call of a layer keeps the layer's path, when it became the call of a function.
LAYER = "layer"


@dataclass(frozen=True, slots=True)
class Selection:
    """Nodes by texts: a node's name, a module's path, or a path above it. Without any text, and by "", everything."""

    only: tuple[str, ...] = ()

    @classmethod
    def of(cls, only: Iterable[str] | None) -> Self:
        """Of a pass's argument `only`; TypeError for what is no list of texts."""
        texts = (only,) if isinstance(only, str) else tuple(only or ())
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"only has {text!r}; it takes names of nodes and paths of modules, e.g. ['fc1']")
        return cls(texts)

    def covers(self, node: fx.Node) -> bool:
        """Is this node, the layer that it calls, or a module that it stands in, selected?"""
        return not self.only or any(_names(text, node) for text in self.only)

    def checked(self, graph: fx.Graph) -> Self:
        """Itself; ValueError for a text that names nothing in the graph."""
        for text in self.only:
            if not any(_names(text, node) for node in graph.nodes):
                known = {name for node in graph.nodes for name in (node.name, path_of(node)) if name}
                told = suggest(text, sorted(known))
                raise ValueError(f"only names {text!r}, which is no node and no module of this graph{told}")
        return self


def path_of(node: fx.Node) -> str:
    """The path of the layer that a node calls, of the parameter that it reads, else of the module it stands in."""
    if node.op in ("call_module", "get_attr"):
        return str(node.target)
    scope = node.meta.get("scope")
    return str(node.meta.get(LAYER) or ("" if scope is None else scope.module_path))


def _names(text: str, node: fx.Node) -> bool:
    path = path_of(node)
    return text in ("", node.name, path) or path.startswith(f"{text}.")
