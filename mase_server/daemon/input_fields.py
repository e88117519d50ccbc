"""The fields of a form for inputs as the one text of a comment, and which field a column of that text is of."""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80


@dataclass(frozen=True, slots=True)
class Said:
    """The text behind `mase:`. spans: (start, end, field) of what each field holds; fields as "inputs.x"."""

    text: str
    spans: tuple[tuple[int, int, str], ...]

    def field_at(self, column: int) -> str:
        """The field that a column is in or right behind, "" for none."""
        return next((field for start, end, field in self.spans if start <= column <= end), "")


def compose(call: str, arguments: Mapping[str, str] | None, inputs: Mapping[str, str]) -> Said:
    """`Net(width=3); x: f32[B=2, 3]` of texts by name; one that is empty is left out. arguments: None for no call."""
    written = _Written()
    if arguments is not None and call:
        written.add(f"{call}(")
        written.fields("arguments", arguments, "=", ", ")
        written.add(")")
    if written.text and any(map(str.strip, inputs.values())):
        written.add("; ")
    written.fields("inputs", inputs, ": ", "; ")
    return Said(written.text, tuple(written.spans))


def one_line(text: str) -> str:
    """A text without its line breaks; blanks inside a line stay, for they may be a string's."""
    return " ".join(line.strip() for line in text.splitlines()).strip()


class _Written:
    def __init__(self) -> None:
        self.text = ""
        self.spans: list[tuple[int, int, str]] = []

    def add(self, text: str) -> None:
        self.text += text

    def fields(self, group: str, texts: Mapping[str, str], sign: str, between: str) -> None:
        given = [(name, one_line(text)) for name, text in texts.items() if text.strip()]
        for number, (name, text) in enumerate(given):
            self.add(between if number else "")
            start = len(self.text)
            self.add(f"{name}{sign}{text}")
            self.spans.append((start, len(self.text), f"{group}.{name}"))


def unreadable(arguments: Mapping[str, str], *, literal: bool) -> Iterator[tuple[str, str]]:
    """(field, why) for each argument that is no expression of Python, or, with `literal`, no plain value."""
    for name, text in arguments.items():
        whole = one_line(text)
        if not whole:
            continue
        try:
            node = ast.parse(whole, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            what = getattr(error, "msg", None) or str(error)
            yield f"arguments.{name}", f"{_SHORT.repr(whole)} is no Python expression: {what}"
            continue
        if literal and not _is_literal(node):
            yield (
                f"arguments.{name}",
                f"{_SHORT.repr(whole)} is no plain value: what is given over this connection is not run",
            )


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
