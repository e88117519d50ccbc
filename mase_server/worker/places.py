"""Files and positions of a payload: paths as indices, columns in code points."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping

from mase_server.tracing.positions import Position


class Places:
    """Knows the files that a payload speaks of; file 0 is the model file itself."""

    def __init__(self, path: str, tree: ast.Module | None) -> None:
        self.files: list[str] = [path]
        self._indices = {path: 0}
        self._tree = tree
        self._lines: dict[str, list[str]] = {}
        self._models: Mapping[str, tuple[int, int, int, int]] | None = None

    def file(self, path: str) -> int:
        """The index of a file."""
        found = self._indices.get(path)
        if found is None:
            found = self._indices[path] = len(self.files)
            self.files.append(path)
        return found

    def row(self, position: Position) -> tuple[int, int, int, int, int]:
        """(file, line, column, end line, end column) with columns in code points."""
        return (
            self.file(position.file), position.line, self.column(position.file, position.line, position.column),
            position.end_line, self.column(position.file, position.end_line, position.end_column),
        )  # fmt: skip

    def column(self, path: str, line: int, column: int) -> int:
        """A column in UTF-8 bytes as one in code points; an unknown one is 0."""
        if column <= 0:
            return 0
        lines = self._lines.get(path)
        if lines is None:
            lines = self._lines[path] = linecache.getlines(path)
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))

    def model(self, name: str) -> tuple[int, int, int, int]:
        """Where a model stands in the file: its class, else the first place that names it, else the first line."""
        if self._models is None:
            self._models = _model_places(self._tree)
        line, column, end_line, end_column = self._models.get(name, (1, 0, 1, 0))
        path = self.files[0]
        return line, self.column(path, line, column), end_line, self.column(path, end_line, end_column)

    def above(self, name: str) -> dict[str, int]:
        """{"line", "column"} of the statement that makes a model: what is written above it goes there."""
        nodes = ast.walk(self._tree) if self._tree is not None else ()
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name == name:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return {"line": first, "column": node.col_offset}
        line, *_ = self.model(name)
        return {"line": line, "column": 0}


def _model_places(tree: ast.Module | None) -> dict[str, tuple[int, int, int, int]]:
    """name -> (line, column, end line, end column), columns in UTF-8 bytes."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            place = (function.lineno, function.col_offset, function.end_lineno or 0, function.end_col_offset or 0)
            found.setdefault(name, place)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ClassDef):
            start = node.col_offset + len("class ")
            found[node.name] = (node.lineno, start, node.lineno, start + len(node.name.encode()))
    return found
