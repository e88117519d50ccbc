"""Kinds of arguments: how a value, or a text of a command line that means one, is read. Standard library only."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: integer, number, boolean, text: as in JSON.  choice: one of `choices`.  format: a number format's text, e.g.
#: "fixed(8,4)", or a map as MASE's configurations have it; "none" for none.  texts: a list of texts.  map: a map whose
#: entries the pass reads itself.  file: a path.  value: any plain value; a text means the Python literal that it is.
Kind = Literal["integer", "number", "boolean", "text", "choice", "format", "texts", "map", "file", "value"]

#: The words of a command line for true and false.
TRUE, FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})

#: What reading raises for what cannot be read.
UNREADABLE = (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError)


def _integer(given: Any) -> int:
    if isinstance(given, str):
        return int(given)
    if isinstance(given, bool) or int(given) != given:
        raise ValueError
    return int(given)


def _number(given: Any) -> float:
    value = float(given) if isinstance(given, str) else given
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return value


def _boolean(given: Any) -> bool:
    if isinstance(given, str) and given.lower() in TRUE | FALSE:
        return given.lower() in TRUE
    if not isinstance(given, bool):
        raise ValueError
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError
    return given


def _texts(given: Any) -> list[str]:
    """A list, or one text with commas between; commas in brackets do not count."""
    if isinstance(given, str):
        literal = given.strip().startswith("[")
        given = ast.literal_eval(given.strip()) if literal else split_texts(given)
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ValueError
    return list(given)


def split_texts(text: str) -> list[str]:
    """The parts of a text between commas that stand outside of brackets, without blanks around them."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _map(given: Any) -> dict[str, Any]:
    value = ast.literal_eval(given) if isinstance(given, str) else given
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return dict(value)


def as_map(given: Any) -> dict[str, Any] | None:
    """A map, or what a text means by one; None for anything else."""
    try:
        return _map(given)
    except UNREADABLE:
        return None


def _value(given: Any) -> Any:
    """Any value; a text that is a literal, as `4` or `[1, 2]` is, means that."""
    try:
        return ast.literal_eval(given.strip()) if isinstance(given, str) else given
    except UNREADABLE:
        return given


def _format(given: Any) -> str | dict[str, Any]:
    return _map(given) if not isinstance(given, str) or given.lstrip().startswith("{") else given


@dataclass(frozen=True, slots=True)
class Reader:
    """words: what is taken.  read: its value, of one or of a text that means one; UNREADABLE for what is none."""

    words: str
    read: Callable[[Any], Any]


READERS: Mapping[str, Reader] = {
    "integer": Reader("a whole number", _integer),
    "number": Reader("a number", _number),
    "boolean": Reader("true or false", _boolean),
    "text": Reader("a text", _text),
    "choice": Reader("a choice", _text),
    "format": Reader("a number format such as fixed(8,4)", _format),
    "texts": Reader("texts with commas between", _texts),
    "map": Reader("a map such as {'name': 1}", _map),
    "file": Reader("the path of a file", _text),
    "value": Reader("a value", _value),
}
