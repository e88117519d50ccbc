"""Quick fixes: which characters of a file to replace. Found in its syntax tree; no fix where the tree is unsure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any

from mase_server.tracing.complaints import Misfit
from mase_server.tracing.source import Places

Fix = dict[str, Any]
#: line, end_line, column, end_column as `co_positions` gives them: columns in UTF-8 bytes.
Raw = tuple[int, int, int, int]

_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class File:
    """The text and tree of one file, with what a fix has to find in it. `tree` is empty if it cannot be parsed."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.places = Places(text)
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            self.tree = ast.Module([], [])

    def at(self, raw: Raw) -> ast.expr | None:
        """The outermost expression that is exactly there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and _raw(node) == raw:
                return node
        return None

    def edit(self, node: ast.expr, new_text: str) -> dict[str, Any]:
        """Replace an expression."""
        line, column, end_line, end_column = self.places.span(node)
        span = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        return {"file": self.path, **span, "new_text": new_text}


def refit(file: File, made_at: Raw, kind: str, misfit: Misfit) -> Fix | None:
    """Give a layer's constructor the argument that fits, where it is written out as a number (or a name for one)."""
    call = file.at(made_at)
    if not isinstance(call, ast.Call) or _last_name(call.func) != kind:
        return None
    argument = _argument(call, misfit)
    if isinstance(argument, ast.Name):
        argument = _only_value(file.tree, call, argument.id)
    if argument is None or not _same(_constant(argument), misfit.was):
        return None
    new = _written(misfit.should, argument)
    title = f"{misfit.parameter}={_short(misfit.was)} -> {_short(misfit.should)}"
    return {"title": title, "preferred": True, "edits": [file.edit(argument, new)]}


def rename(file: File, raw: Raw, old: str, new: str) -> Fix | None:
    """Change the attribute `old` in the expression at `raw` to `new`."""
    found = [node for node in _attributes(file.tree, raw) if node.attr == old]
    if len(found) != 1:
        return None
    line, end = found[0].end_lineno or 1, found[0].end_col_offset or 0
    # An attribute's name, without what stands before the dot, has no node of its own.
    name = ast.Name(old, lineno=line, end_lineno=line, col_offset=end - len(old.encode()), end_col_offset=end)
    return {"title": f"{old} -> {new}", "preferred": True, "edits": [file.edit(name, new)]}


def _attributes(tree: ast.Module, raw: Raw) -> Iterator[ast.Attribute]:
    line, end_line, column, end_column = raw
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            start_line, stop_line, start, stop = _raw(node)
            if (line, column) <= (start_line, start) and (stop_line, stop) <= (end_line, end_column):
                yield node


def _raw(node: ast.expr) -> Raw:
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _argument(call: ast.Call, misfit: Misfit) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == misfit.parameter:
            return keyword.value
    before = call.args[: misfit.index + 1]
    if len(before) <= misfit.index or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[misfit.index]


def _only_value(tree: ast.Module, call: ast.Call, name: str) -> ast.expr | None:
    """What a local name was assigned, if that happens once in the function around the call and it is used nowhere else.

    Elsewhere the same number may be right.
    """
    around = [node for node in ast.walk(tree) if isinstance(node, _Function) and call in ast.walk(node)]
    if not around:
        return None
    nodes = list(ast.walk(around[-1]))
    mentions = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    values = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _last_name(node.targets[0]) == name
    ]
    return values[0] if len(values) == 1 and len(mentions) == 2 else None


def _constant(node: ast.expr) -> Any:
    """The value of a number, a tuple of numbers or arithmetic on numbers; None for anything else."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_constant(part) for part in parts)
        case ast.BinOp(left=left, op=op, right=right):
            a, b, compute = _constant(left), _constant(right), _ARITHMETIC.get(type(op))
            sound = isinstance(a, int) and isinstance(b, int) and (b != 0 or not isinstance(op, ast.FloorDiv))
            return compute(a, b) if compute is not None and sound else None
    return None


def _same(written: Any, value: Any) -> bool:
    return bool(written == value or (isinstance(value, tuple) and (written,) == value))


def _written(value: Any, like: ast.expr) -> str:
    if not isinstance(value, tuple):
        return str(value)
    if not isinstance(like, ast.Tuple | ast.List):
        return str(value[0]) if len(value) == 1 else str(value)
    return str(list(value)) if isinstance(like, ast.List) else str(value)


def _short(value: Any) -> str:
    return str(value[0]) if isinstance(value, tuple) and len(value) == 1 else str(value)
