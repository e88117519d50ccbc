"""Names of layers that torch.fx can write as code: it puts them there as they are, so some would be other code."""

from __future__ import annotations

import keyword
import unicodedata

from torch import fx


class UnwritableName(ValueError):
    """A layer or parameter has a name that torch.fx cannot write. The text tells the name and what to do."""


def is_writable(path: str) -> bool:
    """Does the code that torch.fx writes for a dotted path read what is there, and nothing else?"""
    return all(map(_is_plain, path.split(".")))


def require_writable(graph: fx.Graph) -> None:
    """Raise UnwritableName for a graph of which code cannot be made, or would be other code."""
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr") and not is_writable(str(node.target)):
            name = f"{str(node.target)!r:.120}"
            raise UnwritableName(
                f"the name {name} cannot be written in Python code as torch.fx does it, so the graph cannot be run; "
                "give that layer or parameter a name of letters, digits and _ that is no word of Python's"
            )


def _is_plain(part: str) -> bool:
    if part.isidentifier():  # written as an attribute, which Python normalises
        return not keyword.iskeyword(part) and unicodedata.normalize("NFKC", part) == part
    return part.isprintable() and not set(part) & {'"', "\\"}  # written between double quotes
