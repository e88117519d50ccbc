"""The text of a Python file, and where its syntax nodes are in it: code points, not the bytes that `ast` counts."""

from __future__ import annotations

import ast
import importlib.util
import io
import linecache
import re

from mase_server import notebooks

_IDENTIFIER = re.compile(r"\w+")
_LAST_IDENTIFIER = re.compile(r"\w+$")
_MAPPING_REST = re.compile(r"\*\*\s*(\w+)[\s,]*\}$")

#: line, column, end_line, end_column: lines from 1, columns from 0 in code points, ends exclusive.
Span = tuple[int, int, int, int]


#: Texts of files that are not (yet) on disk, by path: what a process that tries an edit sees instead.
EDITED: dict[str, bytes] = {}


def read_source(path: str) -> bytes:
    """A file's Python, or that of its edited text. Raises OSError as `open` does."""
    return python_of(path, read_saved(path)) if path not in EDITED else EDITED[path]


def read_saved(path: str) -> bytes:
    """A file's bytes, or the script of a notebook's cells: that by which a trace is known."""
    return notebooks.read(path)


def python_of(path: str, saved: bytes) -> bytes:
    """What is run of a saved file: for a notebook, its script without what is not Python."""
    if path in EDITED:
        return EDITED[path]
    return notebooks.runnable(saved.decode()).encode() if notebooks.is_notebook(path) else saved


def show_lines(path: str, text: str) -> None:
    """Have tracebacks and `inspect` see this text of a file."""
    # Without a time of change an entry is never compared with the disk.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def decode(source: bytes | str) -> str:
    """The text of a source file as the compiler reads it: cookie or BOM obeyed, every line end a plain newline.

    Raises SyntaxError for an unknown encoding and UnicodeDecodeError for bytes that are not of it.
    """
    if isinstance(source, bytes):
        # The cookie is looked for line by line, and a lone carriage return ends a line too.
        return importlib.util.decode_source(source.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    return io.IncrementalNewlineDecoder(None, translate=True).decode(source.removeprefix("\ufeff"), final=True)


class Places:
    """Turns the byte columns of syntax nodes of one text into columns in code points."""

    def __init__(self, text: str) -> None:
        # Not str.splitlines: a form feed or a line separator inside a string ends no line for the compiler.
        self._lines = text.split("\n")
        self._ascii = text.isascii()

    def column(self, line: int, byte: int) -> int:
        """The code-point column of a UTF-8 byte offset in a line (from 1)."""
        text = self._lines[line - 1]
        if self._ascii or text.isascii():
            return byte
        return len(text.encode()[:byte].decode(errors="replace"))

    def span(self, node: ast.expr | ast.pattern | ast.arg | ast.stmt) -> Span:
        """Where a node is; a node that was given no end ends where it starts."""
        line, end_line = node.lineno, node.end_lineno or node.lineno
        end = node.col_offset if node.end_col_offset is None else node.end_col_offset
        return line, self.column(line, node.col_offset), end_line, self.column(end_line, end)

    def argument(self, node: ast.arg) -> Span:
        """Where a parameter's name is, without its annotation."""
        line, column, _, _ = self.span(node)
        found = _IDENTIFIER.match(self._lines[line - 1], column)
        return line, column, line, found.end() if found else column + len(node.arg)

    def capture(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> Span:
        """Where the name that a pattern binds is: always its last word."""
        line, column, end_line, end_column = self.span(node)
        tail = self._lines[end_line - 1][column if line == end_line else 0 : end_column]
        pattern = _MAPPING_REST if isinstance(node, ast.MatchMapping) else _LAST_IDENTIFIER
        found = pattern.search(tail)
        if found is None:
            return line, column, end_line, end_column
        group = found.lastindex or 0
        shift = end_column - len(tail)
        return end_line, shift + found.start(group), end_line, shift + found.end(group)
