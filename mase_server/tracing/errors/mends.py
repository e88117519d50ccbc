"""Quick fixes: which characters of a file to replace. Found in its syntax tree; no fix where the tree is unsure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from mase_server.tracing.loading.source import Places

Fix = dict[str, Any]
Edit = dict[str, Any]
#: line, end_line, column, end_column as `co_positions` gives them: columns in UTF-8 bytes.
Raw = tuple[int, int, int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Expressions to which `.method()` can be appended as they are.
_PRIMARIES = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


class File:
    """The text and tree of one file, with what a fix has to find in it. `tree` is empty if it cannot be parsed."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.places = Places(text)
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            self.tree = ast.Module([], [])

    def at(self, raw: Raw) -> ast.expr | None:
        """The outermost expression that is exactly there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and raw_of(node) == raw:
                return node
        return None

    def edit(self, node: ast.expr, new_text: str) -> Edit:
        """Replace an expression."""
        line, column, end_line, end_column = self.places.span(node)
        span = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        return {"file": self.path, **span, "new_text": new_text}

    def source(self, node: ast.expr) -> str:
        """An expression as it is written."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    def insert(self, line: int, column: int, new_text: str) -> Edit:
        """Put a text before a place."""
        span = {"line": line, "column": column, "end_line": line, "end_column": column}
        return {"file": self.path, **span, "new_text": new_text}


def fix(title: str, *edits: Edit, preferred: bool = True) -> Fix:
    """A quick fix as it crosses the wire."""
    return {"title": title, "preferred": preferred, "edits": list(edits)}


def rename(file: File, raw: Raw, old: str, new: str) -> Fix | None:
    """Change the attribute or keyword `old` in the expression at `raw` to `new`."""
    found = [node for node in nodes_in(file.tree, raw) if isinstance(node, ast.Attribute) and node.attr == old]
    if len(found) != 1:
        return None
    line, end = found[0].end_lineno or 1, found[0].end_col_offset or 0
    # An attribute's name, without what stands before the dot, has no node of its own.
    name = ast.Name(old, lineno=line, end_lineno=line, col_offset=end - len(old.encode()), end_col_offset=end)
    return fix(f"{old} -> {new}", file.edit(name, new))


def convert(file: File, operand: ast.expr, method: str) -> Fix:
    """Let an operand pass through a method."""
    text = file.source(operand)
    new = f"{text}.{method}" if isinstance(operand, _PRIMARIES) else f"({text}).{method}"
    return fix(f"{_short(text)} -> {_short(new)}", file.edit(operand, new))


def set_option(file: File, call: ast.expr | None, parameter: str, index: int, value: Any) -> Fix | None:
    """Give a call's argument another value; it has to be there. index: among the arguments as they are written."""
    argument = argument_of(call, parameter, index) if isinstance(call, ast.Call) else None
    if argument is None:
        return None
    return fix(f"{parameter}={ast.unparse(argument)} -> {value}", file.edit(argument, str(value)))


def swap(file: File, first: ast.expr, second: ast.expr) -> Fix:
    """Let two expressions change places."""
    a, b = file.source(first), file.source(second)
    return fix(f"swap {_short(a)} and {_short(b)}", file.edit(first, b), file.edit(second, a))


def nodes_in(tree: ast.Module, raw: Raw) -> Iterator[ast.expr]:
    """Every expression inside of a place."""
    line, end_line, column, end_column = raw
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            start_line, stop_line, start, stop = raw_of(node)
            if (line, column) <= (start_line, start) and (stop_line, stop) <= (end_line, end_column):
                yield node


def raw_of(node: ast.expr | ast.stmt) -> Raw:
    """A node's place as `co_positions` gives it."""
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


def last_name(node: ast.expr) -> str:
    """`Linear` of `nn.Linear`; "" for what has no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def argument_of(call: ast.Call, parameter: str, index: int) -> ast.expr | None:
    """The argument that a call gives to a parameter; None if it gives none, or behind a star."""
    for keyword in call.keywords:
        if keyword.arg == parameter:
            return keyword.value
    before = call.args[: index + 1]
    if len(before) <= index or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[index]


def function_at(tree: ast.Module, line: int) -> Function | None:
    """The innermost function that holds a line."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def assignments(scope: ast.AST, name: str, before: int) -> list[ast.Assign]:
    """The plain assignments of a name that stand before a line, in order."""
    return [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and node.lineno < before
        and [target.id for target in node.targets if isinstance(target, ast.Name)] == [name]
    ]


def _short(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:45]}..."
