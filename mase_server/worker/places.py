"""Files and positions of a payload: paths as indices, columns in code points."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Container, Mapping
from typing import Any

from mase_server.snapshot import CLASS_KEYS
from mase_server.tracing.positions import Position

_CLASS = re.compile(r"[ \t]*class[ \t]+(?P<name>\w+)")


class Places:
    """Knows the files that a payload speaks of; file 0 is the model file itself."""

    def __init__(self, path: str, tree: ast.Module | None) -> None:
        self.files: list[str] = [path]
        self._indices = {path: 0}
        self._tree = tree
        self._lines: dict[str, list[str]] = {}
        self._models: Mapping[str, _Place] | None = None

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
        """Where a model stands in the file: its class, function or variable, else the first place that names it."""
        places = self._places()
        whole = name.partition("[")[0]
        line, column, end_line, end_column, _ = places.get(whole) or places.get(whole.partition(".")[0], _TOP)
        path = self.files[0]
        return line, self.column(path, line, column), end_line, self.column(path, end_line, end_column)

    def above(self, name: str) -> dict[str, int]:
        """{"line", "column"} of the statement that makes a model: what is written above it goes there."""
        *_, statement = self._places().get(name.partition("[")[0].partition(".")[0], _TOP)
        if statement is None:
            return {"line": self.model(name)[0], "column": 0}
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
        return {"line": first, "column": statement.col_offset}

    def classes(self, names: Container[str], folder: str) -> list[dict[str, Any]]:
        """The statements of the classes with these names in the workspace's files, as `snapshot.CLASS_KEYS` says."""
        found = []
        for index, path in enumerate(self.files):
            if not path.startswith(folder.rstrip("/") + "/") or "/site-packages/" in path:
                continue
            for number, line in enumerate(linecache.getlines(path), 1):
                if (match := _CLASS.match(line)) and match["name"] in names:
                    place = (match["name"], index, number, match.start("name"), number, match.end("name"))
                    found.append(dict(zip(CLASS_KEYS, place, strict=True)))
        return found

    def _places(self) -> Mapping[str, _Place]:
        if self._models is None:
            self._models = _model_places(self._tree)
        return self._models


#: line, column, end line, end column, columns in UTF-8 bytes; and the statement, if one makes what is named.
_Place = tuple[int, int, int, int, ast.stmt | None]
_TOP: _Place = (1, 0, 1, 0, None)


def _model_places(tree: ast.Module | None) -> dict[str, _Place]:
    """Where each name is called, kept in a variable, or defined: what comes last counts, the first place of it."""
    found: dict[str, _Place] = {}
    if tree is None:
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            found.setdefault(name, _around(function, None))
    for statement in reversed(tree.body):
        for target in _targets(statement):
            found[target.id] = _around(target, statement)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _named(node, "def ")
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found[node.name] = _named(node, "class ")
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = _named(inner, "def ")
    return found


def _targets(statement: ast.stmt) -> list[ast.Name]:
    """The names that a statement of the module gives a value."""
    match statement:
        case ast.Assign(targets=targets):
            return [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        case ast.AnnAssign(target=ast.Name() as name):
            return [name]
    return []


def _named(node: ast.ClassDef | ast.FunctionDef, keyword: str) -> _Place:
    start = node.col_offset + len(keyword)
    return node.lineno, start, node.lineno, start + len(node.name.encode()), node


def _around(node: ast.expr, statement: ast.stmt | None) -> _Place:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, statement
