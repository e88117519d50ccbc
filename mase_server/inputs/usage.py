"""Evaluating a constructor call that stands somewhere in a file, with the simple assignments that it builds on."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from typing import Any

#: Assignments that build on each other are followed so far.
MAX_DEPTH = 5


class UnknownNameError(LookupError):
    """A call uses a name whose value cannot be told without running the code around it."""


def evaluate(call: ast.expr, namespace: dict[str, Any], tree: ast.Module) -> Any:
    """The value of an expression of the file; UnknownNameError before anything runs if a name cannot be resolved."""
    local = _Resolver(namespace, tree).names_of(call, 0)
    return _value(call, namespace, local)


def _value(node: ast.expr, namespace: dict[str, Any], local: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<call>", "eval"), {**namespace, **local})


class _Resolver:
    def __init__(self, namespace: dict[str, Any], tree: ast.Module) -> None:
        self.namespace = namespace
        self.assignments: dict[str, list[ast.Assign]] = {}
        # The innermost function around a line is the last that begins before it.
        found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.functions = sorted(found, key=lambda node: -node.lineno)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assignments.setdefault(node.targets[0].id, []).append(node)

    def names_of(self, node: ast.expr, depth: int) -> dict[str, Any]:
        """Values for the names of an expression that the module does not have."""
        found: dict[str, Any] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and not self._has(inner.id) and inner.id not in _bound(node):
                found[inner.id] = self._assigned(inner.id, node.lineno, depth)
        return found

    def _has(self, name: str) -> bool:
        return name in self.namespace or hasattr(builtins, name)

    def _assigned(self, name: str, line: int, depth: int) -> Any:
        earlier = [node for node in self.assignments.get(name, ()) if node.lineno < line]
        value = max(earlier, key=lambda node: node.lineno).value if earlier else self._default(name, line)
        if value is None or depth >= MAX_DEPTH:
            raise UnknownNameError(f"{name!r} has no simple assignment before line {line}")
        return _value(value, self.namespace, self.names_of(value, depth + 1))

    def _default(self, name: str, line: int) -> ast.expr | None:
        """The default of the parameter `name` of the function around a line."""
        for function in self.functions:
            if function.lineno <= line <= (function.end_lineno or line) and name in (held := _defaults(function.args)):
                return held[name]
        return None


def _defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    given = {each.arg: value for each, value in (*pairs, *keywords) if value is not None}
    # A factory that hands on what it is given is taken to be given nothing.
    rest = {
        each.arg: ast.parse(text, mode="eval").body
        for each, text in ((arguments.kwarg, "{}"), (arguments.vararg, "()"))
        if each
    }
    return {**given, **rest}


def _bound(node: ast.expr) -> set[str]:
    """Names that comprehensions and lambdas inside an expression bind."""
    stored = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    return stored | {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
