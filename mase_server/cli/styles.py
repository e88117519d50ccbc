"""Styles of a terminal by their names, e.g. "bold red": for commands that must not wait for rich to be imported."""

from __future__ import annotations

from mase_server.visible import reveal_lines

#: The numbers of ECMA-48's Select Graphic Rendition; bright colours are terminals' own, and understood by all.
_NUMBERS = {"bold": 1, "dim": 2, "italic": 3, "underline": 4} | {
    f"{prefix}{colour}": first + index
    for prefix, first in (("", 30), ("bright_", 90))
    for index, colour in enumerate(("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"))
}


def styled(text: str, style: str) -> str:
    """The text, visible, with the codes of a style around each of its lines; without any for ""."""
    text = reveal_lines(text)
    if not style or not text:
        return text
    codes = ";".join(str(_NUMBERS[word]) for word in style.split())
    return "\n".join(f"\x1b[{codes}m{line}\x1b[0m" if line else "" for line in text.split("\n"))
