"""Evaluating a constructor call that stands somewhere in a file, with the simple assignments that it builds on."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mase_server.inputs.making.configs import AnyConfig
from mase_server.inputs.making.settings import parsed_options
from mase_server.tracing.loading.placeholders import Placeholder

UNKNOWN = object()
#: Assignments that build on each other are followed so far.
MAX_DEPTH = 5


class UnknownNameError(LookupError):
    """A call uses a name whose value cannot be told without running the code around it."""


def evaluate(call: ast.expr, namespace: dict[str, Any], tree: ast.Module) -> Any:
    """The value of an expression of the file; UnknownNameError before anything runs if a name cannot be resolved."""
    local = _Resolver(namespace, tree).names_of(call, 0)
    return _value(call, namespace, local)


def evaluate_partly(
    call: ast.Call, namespace: dict[str, Any], tree: ast.Module, function: Callable[..., Any]
) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a call of `function` by name, as far as they can be told; and the names of those that cannot."""
    given: dict[str, Any] = {}
    lacking: list[str] = []
    resolver = _Resolver(namespace, tree)
    for name, node in _bound_nodes(call, function):
        try:
            value = _value(node, namespace, resolver.names_of(node, 0))
        except Exception:  # noqa: BLE001 - evaluates a piece of the person's code out of its place
            value = UNKNOWN
        if value is UNKNOWN or isinstance(value, Placeholder):
            lacking.append(name)
        else:
            given[name] = value
    return given, lacking


def _bound_nodes(call: ast.Call, function: Callable[..., Any]) -> Iterator[tuple[str, ast.expr]]:
    try:
        signature = inspect.signature(function)
        nodes = [each for each in call.args if not isinstance(each, ast.Starred)]
        bound = signature.bind_partial(*nodes, **{each.arg: each.value for each in call.keywords if each.arg})
    except (TypeError, ValueError):
        return
    for name, node in bound.arguments.items():
        if isinstance(node, ast.expr):
            yield name, node


def _value(node: ast.expr, namespace: dict[str, Any], local: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<call>", "eval"), {**namespace, **local})


@functools.lru_cache(maxsize=64)
def _read(tree: ast.Module) -> tuple[list[ast.FunctionDef], dict[str, list[ast.Assign]]]:
    """The functions of a file and its plain assignments by name; read once for all calls in it."""
    functions: list[ast.FunctionDef] = []
    assignments: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                functions.append(node)
            case ast.Assign(targets=[ast.Name(id=name)]):
                assignments.setdefault(name, []).append(node)
    # The innermost function around a line is the last that begins before it.
    return sorted(functions, key=lambda node: -node.lineno), assignments


class _Resolver:
    def __init__(self, namespace: dict[str, Any], tree: ast.Module) -> None:
        self.namespace, self.tree = namespace, tree
        self.functions, self.assignments = _read(tree)

    def names_of(self, node: ast.expr, depth: int) -> dict[str, Any]:
        """Values for the names of an expression that the module does not have."""
        found: dict[str, Any] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and not self._has(inner.id) and inner.id not in _bound(node):
                found[inner.id] = self._known(node, inner.id, depth)
        return found

    def _known(self, node: ast.expr, name: str, depth: int) -> Any:
        """The value of a name; for one that only chooses from a table, the table's first key."""
        try:
            return self._assigned(name, node.lineno, depth)
        except UnknownNameError:
            for inner in ast.walk(node):
                match inner:
                    case ast.Subscript(value=ast.Name(id=table), slice=ast.Name(id=key)) if key == name:
                        held = self.namespace.get(table)
                        if isinstance(held, dict) and held:
                            return next(iter(held))
            raise

    def _has(self, name: str) -> bool:
        return name in self.namespace or hasattr(builtins, name)

    def _assigned(self, name: str, line: int, depth: int) -> Any:
        earlier = [node for node in self.assignments.get(name, ()) if node.lineno < line]
        value = max(earlier, key=lambda node: node.lineno).value if earlier else self._given(name, line)
        if _is_parsing(value) and (options := parsed_options(self.tree)):
            return AnyConfig(options).at((name,))
        if value is None or depth >= MAX_DEPTH:
            raise UnknownNameError(f"{name!r} has no simple assignment before line {line}")
        return _value(value, self.namespace, self.names_of(value, depth + 1))

    def _given(self, name: str, line: int) -> ast.expr | None:
        """What the parameter `name` of the function around a line is: its default, a test's parameter, some call's."""
        around = (each for each in self.functions if each.lineno <= line <= (each.end_lineno or line))
        for function in around:
            held = {**self._called(function), **_defaults(function.args), **_parametrized(function)}
            if name in held:
                return held[name]
        return None

    def _called(self, function: ast.FunctionDef) -> dict[str, ast.expr]:
        """What the first call of a function in its file gives it."""
        names = [each.arg for each in function.args.args]
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Name(id=called), args=args, keywords=keywords) if called == function.name:
                    positional = dict(zip(names, args, strict=False))
                    return {**positional, **{each.arg: each.value for each in keywords if each.arg}}
        return {}


def _is_parsing(node: ast.expr | None) -> bool:
    """Is this `parser.parse_args()`?"""
    match node:
        case ast.Call(func=ast.Attribute(attr="parse_args")):
            return True
    return False


def _parametrized(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The first values that `pytest.mark.parametrize` gives a test's parameters."""
    found: dict[str, ast.expr] = {}
    for node in function.decorator_list:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[names, ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]), *_],
            ):
                words = _words(names)
                match first:
                    case ast.Call(func=ast.Attribute(attr="param"), args=values):
                        found |= zip(words, values, strict=False)
                    case ast.Tuple(elts=values) | ast.List(elts=values) if len(words) > 1:
                        found |= zip(words, values, strict=False)
                    case _:
                        found[words[0]] = first
    return found


def _words(names: ast.expr) -> list[str]:
    match names:
        case ast.Constant(value=str(text)):
            return [word.strip() for word in text.split(",")]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [str(part.value) for part in parts if isinstance(part, ast.Constant)] or [""]
    return [""]


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
