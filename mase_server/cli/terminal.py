"""Terminal output: text, colours, tables. Only this package prints, and it makes all characters visible.

Without rich, except for progress bars: a command that asks a running daemon must not wait for its import, and it fits
tables and texts to the width of a terminal, while this output is the same in a pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mase_server.visible import dump_json, reveal_lines


def say(text: str = "", *, error: bool = False) -> None:
    """Print a line on standard output, or on standard error if it is not part of the answer."""
    print(reveal_lines(text), file=sys.stderr if error else sys.stdout, flush=True)


def say_json(value: Any, *, indent: int | None = None, default: Any = None, error: bool = False) -> None:
    """Print plain data for programs. Escapes keep it visible for people, and parsing it gives the same data."""
    print(dump_json(value, indent, default), file=sys.stderr if error else sys.stdout, flush=True)


def is_coloured(stream: TextIO) -> bool:
    """Should output be coloured? On a terminal, unless NO_COLOR is set or it is dumb; and always with FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


# Terminal styles by name, e.g. "bold red".

#: The numbers of ECMA-48's Select Graphic Rendition; the bright colours are not in it, but all terminals know them.
_NUMBERS = {"bold": 1, "dim": 2, "italic": 3, "underline": 4} | {
    f"{prefix}{colour}": first + index
    for prefix, first in (("", 30), ("bright_", 90))
    for index, colour in enumerate(("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"))
}


def apply_style(text: str, style: str) -> str:
    """The text, made visible, with the codes of a style around each of its lines; without codes for ""."""
    text = reveal_lines(text)
    if not style or not text:
        return text
    codes = ";".join(str(_NUMBERS[word]) for word in style.split())
    return "\n".join(f"\x1b[{codes}m{line}\x1b[0m" if line else "" for line in text.split("\n"))


# Tables for pipes and terminals alike: never cut, never wrapped, each cell visible on one line.


# Output lines made of styled parts.

#: The style of each severity.
SEVERITY = {"error": "bold red", "warning": "yellow", "information": "blue", "hint": "dim"}


def from_here(path: str) -> str:
    """The path for people: relative to the current folder if it is below it."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output as (text, style) parts. number: the source line that it shows, 0 for none."""

    parts: tuple[tuple[str, str], ...] = ()
    number: int = 0

    @property
    def plain(self) -> str:
        """The text without styles."""
        return reveal_lines("".join(text for text, _ in self.parts))

    @property
    def coloured(self) -> str:
        """The text with codes for a terminal."""
        return "".join(apply_style(*part) for part in self.parts)


def print_lines(lines: Iterable[Line], *, error: bool = False) -> None:
    """Print on standard output or standard error, with colours where they are wanted."""
    stream = sys.stderr if error else sys.stdout
    coloured = is_coloured(stream)
    stream.write("".join(f"{line.coloured if coloured else line.plain}\n" for line in lines))


def print_styled(text: str, style: str = "", *, error: bool = False) -> None:
    """Print one line in one style, "" for none."""
    print_lines([Line(((text, style),))], error=error)
