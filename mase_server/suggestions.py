"""Texts about an unknown name for messages: the nearest known name, and a list of the known ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: With more names than this, the nearest one is suggested without a list, which would be too long to search.
_FEW = 12
#: Maximum length of a list of names.
_MOST = 20


def suggest(word: object, known: Iterable[object], label: str = "there are", elsewhere: str = "") -> str:
    """The end of a message, after the unknown word: "; did you mean 'rank'? It takes rank, alpha".

    known: in the order of the list.  label: the words before the list.  elsewhere: the text in place of a list that
    would be too long.

    >>> suggest("ranks", ["rank", "alpha"], "it takes"), suggest("size", [], "it takes")
    ("; did you mean 'rank'? It takes rank, alpha", '; it takes none')
    """
    names = [str(name) for name in dict.fromkeys(known)]
    listed = elsewhere or f"{label} {list_names(names)}"
    if not (near := get_close_matches(str(word)[:80], names, 1)):
        return f"; {listed}"
    meant = f"; did you mean {near[0]!r}?"
    return meant if elsewhere or len(names) > _FEW else f"{meant} {listed[0].upper()}{listed[1:]}"


def describe_unreadable(error: Exception) -> str:
    """Why Python could not read a text, after a colon; "" if its reason names only Python's own parts."""
    why = error.msg if isinstance(error, SyntaxError) else str(error)
    return "" if not why or "malformed node" in why or "invalid syntax" in why else f": {why}"


def list_names(names: list[str]) -> str:
    """Names with commas in between, "none" for none; a long list ends with the number of the others."""
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "") or "none"
