"""Lines of output in parts that have a style."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mase_server.cli.styles import styled
from mase_server.cli.terminal import is_coloured
from mase_server.visible import reveal_lines

#: The style of each severity.
SEVERITY = {"error": "bold red", "warning": "yellow", "information": "blue", "hint": "dim"}


def from_here(path: str) -> str:
    """A path as a person reads it: relative to where they are, if it is below."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output as (text, style) parts. number: of the line of a source that it shows, 0 for none."""

    parts: tuple[tuple[str, str], ...] = ()
    number: int = 0

    @property
    def plain(self) -> str:
        """The text alone."""
        return reveal_lines("".join(text for text, _ in self.parts))

    @property
    def coloured(self) -> str:
        """For a terminal."""
        return "".join(styled(*part) for part in self.parts)


def print_lines(lines: Iterable[Line], *, error: bool = False) -> None:
    """On standard output, or on standard error, with colours where they are welcome."""
    stream = sys.stderr if error else sys.stdout
    coloured = is_coloured(stream)
    stream.write("".join(f"{line.coloured if coloured else line.plain}\n" for line in lines))


def print_styled(text: str, style: str = "", *, error: bool = False) -> None:
    """One line in one style, "" for none."""
    print_lines([Line(((text, style),))], error=error)
