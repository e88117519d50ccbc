"""Plain numbers made of sizes, as `int(T)` and `T / 2` give: may the code go another way because of one?

Python lets nobody follow such a number, so the code that gets it is read instead.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cache

from mase_server.tracing.positions import Mark, Position, resolve

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
#: Builtins that give another plain number; a call of another name leads to code that is not read.
_NUMBERS = ("int", "float", "round", "abs", "bool", "pow", "divmod")
#: Names before a dot whose calls take numbers as they are; the methods of tensors do, too.
_MATHS = ("math", "np", "numpy")


@cache
def may_decide(mark: Mark) -> bool:
    """May the number that the marked instruction makes decide what the code does, as far as its function tells?

    True also where it leaves the function, or where there is no source to read.
    """
    position = resolve(mark)
    tree = _tree(position.file)
    found = None if tree is None else _find(tree, position)
    if tree is None or found is None:
        return True
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    function = found
    while not isinstance(function, _FUNCTIONS):
        function = parents[function]
    pending, known = [found], set[str]()
    while pending:
        names = _uses(pending.pop(), parents)
        if names is None:
            return True
        for name in names - known:
            known.add(name)
            pending += [node for node in ast.walk(function) if _reads(node, name)]
    return False


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file))) if linecache.getlines(file) else None
    except SyntaxError:
        return None


def _find(tree: ast.Module, position: Position) -> ast.AST | None:
    """The expression that stands exactly there."""
    place = position.line, position.column, position.end_line, position.end_column
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and place == (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset):
            return node
    return None


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _uses(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> set[str] | None:
    """The variables that an expression's value goes to; None where it decides something or is lost sight of."""
    while True:
        child, node = node, parents[node]
        match node:
            case ast.Compare() | ast.BoolOp() | ast.Return() | ast.Yield() | ast.Lambda() | ast.Match():
                return None
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert() if child is node.test:
                return None
            case ast.UnaryOp(op=ast.Not()):
                return None
            case ast.Call(func=ast.Name(id=name)) if name not in _NUMBERS and name != "range":
                return None
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "cls"))):
                return None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _MATHS:
                continue
            case ast.Call(func=ast.Name(id=name)) if name in _NUMBERS:
                continue
            case ast.Call() | ast.Subscript() | ast.stmt() if not isinstance(node, _BINDINGS):
                return set()
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
                targets = list(_targets(node))
                return None if None in targets else {name for name in targets if name is not None}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.comprehension():
                return None


_BINDINGS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def _targets(node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) -> Iterator[str | None]:
    """The variables that are bound; None for what is no variable, such as an attribute."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            yield part.id if isinstance(part, ast.Name) else None
