"""What the names of a file stand for, as far as its text alone tells: which of them can never be tensors."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

#: Packages that compile the bodies of decorated functions themselves and would choke on a rewritten one.
COMPILERS = frozenset({"numba", "triton", "taichi", "warp", "cupy", "tilelang"})

#: Builtins whose result is never a tensor nor holds one.
_SCALAR_BUILTINS = frozenset({
    "all", "any", "ascii", "bin", "bool", "bytes", "callable", "chr", "classmethod", "compile", "delattr", "dir",
    "float", "format", "frozenset", "globals", "hasattr", "hash", "hex", "id", "input", "int", "isinstance",
    "issubclass", "len", "locals", "memoryview", "object", "oct", "open", "ord", "print", "property", "range", "repr",
    "setattr", "slice", "staticmethod", "str", "super", "type", "vars",
})  # fmt: skip
_ALWAYS_BOOL = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one file.

    fixed: names that are never tensors: modules, functions, classes, builtins, nothing else bound to them.
    imported: names that only `from ... import` binds; whatever is called or looked up on them is no tensor.
    packages: imported name -> top-level package it came from.  scalars: builtins that never return a tensor.
    """

    fixed: frozenset[str]
    imported: frozenset[str]
    packages: dict[str, str]
    scalars: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module) -> Names:
        """Read off a syntax tree."""
        collector = _Collector()
        for node in ast.walk(tree):
            collector.take(node)
        variables = collector.variables
        return cls(
            fixed=frozenset((collector.defined | set(dir(builtins))) - variables - collector.imported),
            imported=frozenset(collector.imported - variables - collector.defined),
            packages=collector.packages,
            scalars=_SCALAR_BUILTINS - variables - collector.defined - collector.imported,
        )

    def rooted_outside(self, node: ast.expr) -> bool:
        """Is this `torch`, `nn.functional`, `F` ...: a module, class or function, or a dotted name under one?"""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and (node.id in self.fixed or node.id in self.imported)

    def compiled_elsewhere(self, node: _Function) -> bool:
        """Is the function decorated by a package that compiles Python code itself?"""
        return any(self._package(decorator) in COMPILERS for decorator in node.decorator_list)

    def _package(self, node: ast.expr) -> str:
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Call):
                node = node.func
            elif isinstance(node, ast.Attribute):
                node = node.value
            else:
                return ""
        return self.packages.get(node.id, "")

    def may_be_tensor(self, node: ast.expr) -> bool:
        """Could this Load expression give a tensor, as far as its own form tells?"""
        match node:
            case ast.Name(id=name):
                return name not in self.fixed and not (name.startswith("__") and name.endswith("__"))
            case ast.Call(func=ast.Name(id=name)):
                return name not in self.scalars
            case ast.Compare(ops=ops):
                return not all(isinstance(op, _ALWAYS_BOOL) for op in ops) and not _compares_text(node)
            case ast.UnaryOp(op=ast.Not()):
                return False
        return not is_plain(node)


class _Collector:
    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.defined: set[str] = set()
        self.imported: set[str] = set()
        self.packages: dict[str, str] = {}

    def take(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                self.variables.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self.variables.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.defined.add(name)
            case ast.Import(names=aliases):
                self._take_modules(aliases)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                for alias in aliases:
                    bound = alias.asname or alias.name
                    self.imported.add(bound)
                    self.packages[bound] = "" if level or module is None else module.partition(".")[0]

    def _take_modules(self, aliases: list[ast.alias]) -> None:
        for alias in aliases:
            top = alias.name.partition(".")[0]
            self.defined.add(alias.asname or top)
            self.packages[alias.asname or top] = top


def is_plain(node: ast.expr) -> bool:
    """Is the value made of constants only, so that it holds no tensor?"""
    match node:
        case ast.Constant() | ast.JoinedStr():
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(map(is_plain, parts))
        case ast.UnaryOp(operand=operand):
            return is_plain(operand)
        case ast.BinOp(left=left, right=right):
            return is_plain(left) and is_plain(right)
    return False


def _compares_text(node: ast.Compare) -> bool:
    parts = (node.left, *node.comparators)
    return any(isinstance(part, ast.Constant) and (part.value is None or isinstance(part.value, str)) for part in parts)
