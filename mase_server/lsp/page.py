"""One open file as a request sees it: its traced view, its present text, and positions between the two."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lsprotocol import types as lsp

from mase_server import notebooks
from mase_server.lsp.documents import Alignment, Document
from mase_server.lsp.text import Encoding, Text, from_units, to_units

if TYPE_CHECKING:
    from mase_server.daemon.store import FileView, SiteView
    from mase_server.protocol.records import Extent, UnrunCode


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
        """The column behind the last one."""


@dataclass(frozen=True, slots=True)
class Page:
    """The view of one file. The positions that it returns are those of the present text.

    traced: sha256 of the text that the view's positions refer to, "" if unknown.  edited_elsewhere: does the unsaved
    text of another file that was traced differ from the traced one?  busy: do keys follow each other, so that a trace
    of the present text is likely to come?
    """

    document: Document
    view: FileView
    traced: str
    alignment: Alignment
    encoding: Encoding
    edited_elsewhere: bool = False
    busy: bool = False

    def is_fresh(self, site: SiteView) -> bool:
        """Is what was seen at a site sure to be the same with the present text, saved or not?

        It is if no code has changed, or only code further down in the same function, which ran once. Any other change
        may matter: code is run from everywhere. Between two keys there is no doubt yet: marks would flicker.
        """
        if self.busy:
            return True
        changes = self.alignment.changes()
        if self.edited_elsewhere or not changes:
            return not self.edited_elsewhere
        around = self.function_at(site.line)
        last = max(last for _, last in changes)
        if around is None or around.name == "__init__" or any(value.count != 1 for value in site.values):
            return False
        return len(site.values) == 1 and site.line <= changes[0][0] and last < (around.end_lineno or 0)

    @property
    def python(self) -> str:
        """The traced text as Python, with the same lines."""
        text = self.alignment.traced_text
        return notebooks.runnable_python(text) if notebooks.is_notebook(self.document.path) else text

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

    def unrun(self, position: lsp.Position) -> UnrunCode | None:
        """The code around a position that did not run."""
        traced = self.alignment.traced_line(position.line)
        if traced is None:
            return None
        column = from_units(self.document.text.line(position.line), position.character, self.encoding)
        at = traced + 1, column
        found = (each for each in self.view.unrun() if (each["line"], each["column"]) <= at < (each["end_line"], 0))
        return next(found, None)

    def definition(self, position: lsp.Position) -> tuple[Definition, lsp.Range] | None:
        """The class or function whose name is at a position, as the traced text has it, with the present place."""
        traced = self.alignment.traced_line(position.line)
        if traced is None:
            return None
        line = self.document.text.line(position.line)
        column = from_units(line, position.character, self.encoding)
        for node in _list_definitions(self.python):
            start = line.find(node.name, node.col_offset + len("def ")) if node.lineno == traced + 1 else -1
            if 0 <= start <= column <= start + len(node.name):
                place = self.place(node.lineno, start, node.lineno, start + len(node.name))
                return None if place is None else (node, place)
        return None

    def classes(self) -> list[ast.ClassDef]:
        """The classes of the traced text."""
        return [each for each in _list_definitions(self.python) if isinstance(each, ast.ClassDef)]

    def function_at(self, line: int) -> ast.FunctionDef | None:
        """The innermost function around a line of the traced text."""
        return _find_function(self.python, line)

    def decider(self, unrun: UnrunCode) -> int | None:
        """The present number of the line that decides on code, 0 if none does; None if it was edited."""
        line = self.alignment.current_line(unrun["decider"] - 1) if unrun["decider"] else -1
        return None if line is None else line + 1

    def range(self, span: Span) -> lsp.Range | None:
        """The present place of a traced one; None if any of its lines was edited."""
        return self.place(span.line, span.column, span.end_line, span.end_column)

    def place(self, line: int, column: int, end_line: int, end_column: int) -> lsp.Range | None:
        """`range` for plain numbers."""
        if end_column == 0 and end_line > line:
            # A place of whole lines ends where the next line begins, which may be edited or missing.
            end_line, end_column = end_line - 1, sys.maxsize
        start = self.alignment.current_span(line - 1, end_line - 1)
        if start is None:
            return None
        now: Extent = {
            "line": start + 1,
            "column": column,
            "end_line": start + 1 + end_line - line,
            "end_column": end_column,
        }
        return range_of(self.document.text, now, self.encoding)

    def place_of(self, place: Extent) -> lsp.Range | None:
        """`range` for a place in the form of a problem's related places and edits."""
        return self.place(place["line"], place["column"], place["end_line"], place["end_column"])


#: Longer texts are not parsed for each request about them.
_PARSED = 64 << 10

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _find_function(text: str, line: int) -> ast.FunctionDef | None:
    """The innermost function around a line of a text; None if there is none, or if the text is very long."""
    functions = (each for each in _list_definitions(text) if isinstance(each, ast.FunctionDef))
    around = (each for each in functions if each.lineno <= line <= (each.end_lineno or 0))
    return max(around, key=lambda each: each.lineno, default=None)


@functools.lru_cache(maxsize=8)
def _list_definitions(text: str) -> list[Definition]:
    """The classes and functions of a text; none if it does not parse, or is very long."""
    try:
        tree = ast.parse(text) if len(text) <= _PARSED else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, Definition)]


def range_of(text: Text, place: Extent, encoding: Encoding) -> lsp.Range:
    """The protocol's range of a place `{line, column, end_line, end_column}` of `text`."""

    def position(line: int, column: int) -> lsp.Position:
        return lsp.Position(line - 1, to_units(text.line(line - 1), column, encoding))

    return lsp.Range(position(place["line"], place["column"]), position(place["end_line"], place["end_column"]))
