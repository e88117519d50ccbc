"""The source that a cell needs from the cells that ran before it, so that a separate process can trace the cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

#: Statements that make names and are not run for what else they do.
_MAKES = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign,
    ast.AugAssign, ast.If, ast.Try,
)  # fmt: skip
#: IPython's own statements, as it writes them in Python.
_SHELL = "get_ipython"


def context_of(cell: str, earlier: Sequence[str]) -> str:
    """The statements of earlier cells, in their order, that make the names that a cell uses; "" for none.

    earlier: the sources of the cells that ran, the oldest first, as Python. One that does not parse makes nothing; nor
    does a cell that does not.
    """
    wanted = _used(_parsed(cell))
    kept: list[str] = []
    for source in reversed(earlier):
        for statement in reversed(_parsed(source).body):
            made = set(_made(statement))
            if made & wanted and isinstance(statement, _MAKES) and _SHELL not in _used(statement):
                wanted |= _used(statement)
                kept.append(_text(source, statement))
    return "".join(f"{text}\n" for text in reversed(kept))


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _text(source: str, statement: ast.stmt) -> str:
    """A statement with its decorators and indentation, as it was written."""
    decorators = getattr(statement, "decorator_list", ())
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    lines = source.splitlines()[first - 1 : statement.end_lineno]
    whole = "\n".join(lines)
    # Several statements on one line: the tree says which of them is meant.
    return whole if len(_parsed(whole).body) == 1 else ast.unparse(statement)


def _used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _made(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds at the top of a cell."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
