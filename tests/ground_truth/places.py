"""Where a source file binds names, takes parameters and returns: by walking its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file: lines from 1, columns from 0 in code points, ends exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    kind: str
    name: str
    function: str


@dataclass(frozen=True, slots=True)
class Places:
    """The places of one file.

    stores: by the position Python's own bytecode gives to a store (line, UTF-8 column).
    parameters: by the function's first line and name, then by parameter.
    returns: by the same key, in source order, each with the (start, end) of its expression in UTF-8 columns.
    """

    stores: dict[tuple[int, int], Place]
    parameters: dict[tuple[int, str], dict[str, Place]]
    returns: dict[tuple[int, str], list[tuple[tuple[int, int], tuple[int, int], Place]]]


Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def places(source: str) -> Places:
    """Every place of `source`."""
    walk = _Walk(source)
    walk.visit(ast.parse(source))
    return Places(walk.stores, walk.parameters, walk.returns)


class _Walk(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.lines = [line.encode() for line in source.split("\n")]
        self.path: list[str] = []
        self.functions: list[tuple[int, str]] = []
        self.stores: dict[tuple[int, int], Place] = {}
        self.parameters: dict[tuple[int, str], dict[str, Place]] = {}
        self.returns: dict[tuple[int, str], list[tuple[tuple[int, int], tuple[int, int], Place]]] = {}

    def column(self, line: int, utf8: int) -> int:
        return len(self.lines[line - 1][:utf8].decode())

    def place(self, node: ast.expr | ast.arg, kind: str, name: str) -> Place:
        end_line, end = node.end_lineno, node.end_col_offset
        assert end_line is not None
        assert end is not None
        if isinstance(node, ast.arg):  # the name alone, without its annotation
            end_line, end = node.lineno, node.col_offset + len(name.encode())
        function = ".".join(self.path[:-1]) if self.path and self.path[-1] == "<locals>" else ""
        return Place(
            node.lineno, self.column(node.lineno, node.col_offset), end_line, self.column(end_line, end),
            kind, name, function,
        )  # fmt: skip

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.stores[node.lineno, node.col_offset] = self.place(node, "binding", node.id)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.path.append(node.name)
        self.generic_visit(node)
        self.path.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.function(node, node.name, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.function(node, node.name, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.function(node, "<lambda>", [])

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.returned(node.value)
            self.visit(node.value)

    def function(self, node: Function, name: str, body: list[ast.stmt]) -> None:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        for outer in [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", [])]:
            self.visit(outer)
        self.path += [name, "<locals>"]
        self.functions.append((first, name))
        for arg in arguments(node):
            self.parameters.setdefault((first, name), {})[arg.arg] = self.place(arg, "parameter", arg.arg)
        if isinstance(node, ast.Lambda):
            self.returned(node.body)
            self.visit(node.body)
        for statement in body:
            self.visit(statement)
        self.functions.pop()
        del self.path[-2:]
        # Where decorators are left out because they fail, the function begins at a later line.
        for line in {node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))} - {first}:
            for found in (self.parameters, self.returns):
                if (first, name) in found:
                    found.setdefault((line, name), found[first, name])

    def returned(self, value: ast.expr) -> None:
        assert value.end_lineno is not None
        assert value.end_col_offset is not None
        span = (value.lineno, value.col_offset), (value.end_lineno, value.end_col_offset)
        self.returns.setdefault(self.functions[-1], []).append((*span, self.place(value, "return", "")))


def arguments(node: Function) -> Iterator[ast.arg]:
    """Every parameter, `*args` and `**kwargs` included."""
    args = node.args
    yield from [*args.posonlyargs, *args.args, *args.kwonlyargs]
    yield from (extra for extra in (args.vararg, args.kwarg) if extra is not None)
