"""Columns of text for pipes and terminals alike: never cut, never wrapped, each cell visible on its line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mase_server.visible import reveal


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """The lines of a table; each column is as wide as its widest cell. right: columns that are set flush right."""
    cells = [[reveal(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        padded = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(padded).rstrip()
