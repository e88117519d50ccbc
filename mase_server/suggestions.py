"""What messages say of an unknown name: the nearest known one, and those there are. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: More names than this are not listed beside the nearest one: the reader would not find it among them.
_FEW = 12
#: A list of names ends here.
_MOST = 20


def suggest(word: object, known: Iterable[object], label: str = "there are", elsewhere: str = "") -> str:
    """The end of a message, after the unknown word: "; did you mean 'rank'? It takes rank, alpha".

    known: in the order in which they are listed.  label: what stands before the list.  elsewhere: what to say in
    place of a list that would be too long here.

    >>> suggest("ranks", ["rank", "alpha"], "it takes"), suggest("size", [], "it takes")
    ("; did you mean 'rank'? It takes rank, alpha", '; it takes none')
    """
    names = [str(name) for name in dict.fromkeys(known)]
    listed = elsewhere or f"{label} {list_names(names)}"
    if not (near := get_close_matches(str(word)[:80], names, 1)):
        return f"; {listed}"
    meant = f"; did you mean {near[0]!r}?"
    return meant if elsewhere or len(names) > _FEW else f"{meant} {listed[0].upper()}{listed[1:]}"


def list_names(names: list[str]) -> str:
    """Names with commas between, "none" for none, the last ones as a number where there are many."""
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "") or "none"
