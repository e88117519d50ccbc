"""Lines of output in parts that have a style. rich is loaded by those who print with it alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.cli.styles import styled
from mase_server.cli.terminal import is_coloured

if TYPE_CHECKING:
    from rich.text import Text as Styled

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
        return "".join(text for text, _ in self.parts)

    @property
    def coloured(self) -> str:
        """For a terminal."""
        return "".join(styled(*part) for part in self.parts)

    @property
    def styled(self) -> Styled:
        """For rich."""
        from rich.text import Text as Styled

        return Styled.assemble(*self.parts)


def print_lines(lines: Iterable[Line]) -> None:
    """On standard output, with colours where they are welcome."""
    if not is_coloured(sys.stdout):
        return print_plain(list(lines))
    sys.stdout.write("".join(f"{line.coloured}\n" for line in lines))


def print_plain(lines: Sequence[Line]) -> None:
    """Without any style."""
    sys.stdout.write("".join(f"{line.plain}\n" for line in lines))
