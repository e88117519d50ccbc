"""One open file as a request sees it: its traced view, its present text, and the protocol's positions between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lsprotocol import types as lsp

from mase_server import notebooks
from mase_server.lsp.alignment import Alignment
from mase_server.lsp.documents import Document
from mase_server.lsp.encoding import Encoding, from_units, to_units
from mase_server.lsp.text import Text

if TYPE_CHECKING:
    from mase_server.daemon.store import FileView, SiteView


class Span(Protocol):
    """Anything with a place in the traced text: lines from 1, columns in code points."""

    @property
    def line(self) -> int:
        """First line."""

    @property
    def column(self) -> int:
        """First column."""

    @property
    def end_line(self) -> int:
        """Last line."""

    @property
    def end_column(self) -> int:
        """The column behind the last."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is known about one file. Positions that it gives are those of the present text.

    traced: sha256 of the text that the view's positions speak of, "" where nobody knows it.
    """

    document: Document
    view: FileView
    traced: str
    alignment: Alignment
    encoding: Encoding

    @property
    def python(self) -> str:
        """The traced text as Python, with the same lines."""
        text = self.alignment.traced_text
        return notebooks.runnable(text) if notebooks.is_notebook(self.document.path) else text

    def sites(self, lines: range, kinds: frozenset[str]) -> Iterator[tuple[SiteView, lsp.Range]]:
        """The sites of these kinds on the present `lines` (from 0), with their places."""
        traced = [line for line in map(self.alignment.traced_line, lines) if line is not None]
        if not traced:
            return
        for site in self.view.sites(traced[0] + 1, traced[-1] + 1, kinds):
            place = self.range(site)
            if place is not None:
                yield site, place

    def at(self, position: lsp.Position) -> tuple[SiteView, lsp.Range] | None:
        """The smallest site at `position`, with its place."""
        traced = self.alignment.traced_line(position.line)
        if traced is None:
            return None
        column = from_units(self.document.text.line(position.line), position.character, self.encoding)
        site = self.view.at(traced + 1, column)
        place = None if site is None else self.range(site)
        return None if site is None or place is None else (site, place)

    def range(self, span: Span) -> lsp.Range | None:
        """Where a place of the traced text is now; None where any of its lines was edited."""
        return self.place(span.line, span.column, span.end_line, span.end_column)

    def place(self, line: int, column: int, end_line: int, end_column: int) -> lsp.Range | None:
        """`range` for bare numbers."""
        if end_column == 0 and end_line > line:
            # Whole lines end where the next one begins: that may be edited, or not exist.
            end_line, end_column = end_line - 1, sys.maxsize
        start = self.alignment.current_span(line - 1, end_line - 1)
        if start is None:
            return None
        now = {"line": start + 1, "column": column, "end_line": start + 1 + end_line - line, "end_column": end_column}
        return range_of(self.document.text, now, self.encoding)

    def place_of(self, place: dict[str, Any]) -> lsp.Range | None:
        """`range` for a place as a problem's related places and edits hold it."""
        return self.place(place["line"], place["column"], place["end_line"], place["end_column"])


def range_of(text: Text, place: dict[str, Any], encoding: Encoding) -> lsp.Range:
    """The protocol's range of a place `{line, column, end_line, end_column}` of `text`."""

    def position(line: int, column: int) -> lsp.Position:
        return lsp.Position(line - 1, to_units(text.line(line - 1), column, encoding))

    return lsp.Range(position(place["line"], place["column"]), position(place["end_line"], place["end_column"]))
