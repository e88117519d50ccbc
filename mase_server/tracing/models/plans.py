"""Written ways to make a model: calls, defaults and builders, in the file and elsewhere in the workspace.

Files that use a class are only read, and their calls are evaluated piece by piece; they are never imported or run. If a
call is known in part, the rest is guessed and said to be.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mase_server.tracing.importing.placeholders import Placeholder
from mase_server.tracing.importing.source import Namespace
from mase_server.tracing.models.classes import calls_of, find_builders
from mase_server.tracing.models.configs import AnyConfig
from mase_server.tracing.models.constructions import Surroundings, list_required_parameters
from mase_server.tracing.models.expressions import NAMES
from mase_server.tracing.models.guesses import Arguments
from mase_server.tracing.models.settings import parsed_options
from mase_server.tracing.models.workspace import Call, examples_of

#: The most calls elsewhere in the workspace that are tried.
MAX_CALLS = 12
#: The most functions of the file that are called because they may make it.
MAX_BUILDERS = 6
#: Values of builders' parameters that keep them from reading files.
_OFFLINE = {"pretrained": False, "download": False}


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to make an instance.

    function: the function called with `arguments`, if these are known, so that an error of it can be followed.
    guessed: its error is no evidence about the user's code.  how: the assumptions.  free: the arguments that are
    guessed from their names.
    """

    source: str
    make: Callable[[], Any]
    guessed: bool = False
    function: Callable[..., Any] | None = None
    arguments: Arguments | None = None
    how: str = ""
    free: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Start:
    """Written arguments, as far as they are known. function: the function that they are for."""

    function: Callable[..., Any]
    arguments: Arguments
    how: str


def iterate_plans(kind: type[nn.Module], around: Surroundings, asked: str | None) -> Iterator[Plan]:
    """Instances that can be made directly: as `asked` and no other; else calls of the file, defaults, builders,
    elsewhere."""
    namespace, tree = around.namespace, around.tree
    if asked is not None:
        yield Plan("comment", lambda: eval(asked, {**NAMES, **namespace}))
        return
    for call in filter(_says_something, calls_of(tree, kind.__name__)):
        yield Plan("usage", partial(evaluate_call, call, namespace, tree), guessed=True)
    if not list_required_parameters(kind):
        yield Plan("default", kind, function=kind, arguments={})
    for function in itertools.islice(_find_class_builders(kind, around), MAX_BUILDERS):
        if not list_required_parameters(function):
            given = _choose_offline_arguments(function)
            yield Plan("usage", partial(function, **given), guessed=True, function=function, arguments=given)
    for found in itertools.islice(filter(_is_telling, _iterate_calls_elsewhere(kind, around)), MAX_CALLS):
        make = partial(evaluate_call, found.node, _collect_call_names(kind, found, around), found.tree)
        yield Plan("usage", make, guessed=True, how=f"built as {_describe_call_place(found, around)} builds it")


def iterate_starts(kind: type[nn.Module], around: Surroundings) -> Iterator[Start]:
    """Calls whose arguments are partly known, the file's own first."""
    wanted = {each.name for each in list_required_parameters(kind)}
    own = (Call(call, around.tree, {}, "") for call in calls_of(around.tree, kind.__name__))
    for found in itertools.islice(
        filter(_is_telling, itertools.chain(own, _iterate_calls_elsewhere(kind, around))), MAX_CALLS
    ):
        if isinstance(found.node.func, ast.Name) and found.node.func.id == kind.__name__:
            given, lacking = evaluate_partly(found.node, _collect_call_names(kind, found, around), found.tree, kind)
            if given and (lacking or not wanted <= given.keys()):
                where = _describe_call_place(found, around) if found.file else "its file"
                yield Start(kind, given, f"built as {where} builds it")
    yield from _from_settings(kind, around)
    for function in itertools.islice(_find_class_builders(kind, around), MAX_BUILDERS):
        yield Start(function, _choose_offline_arguments(function), f"built by {function.__name__}()")


def _from_settings(kind: type[nn.Module], around: Surroundings) -> Iterator[Start]:
    """Settings of the workspace that name the class, or that have all of its required arguments."""
    names = [each.name for each in list_required_parameters(kind)]
    try:
        known = set(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        return
    settings = around.settings()
    for mapping in (settings.naming(kind.__name__), settings.closest(set(names)) if len(names) > 1 else {}):
        given = {name: value for name, value in mapping.items() if name in known}
        if given and (len(given) > 1 or len(names) == 1):
            yield Start(kind, given, "made as settings of the workspace say, where they do")


def _find_class_builders(kind: type[nn.Module], around: Surroundings) -> Iterator[Callable[..., Any]]:
    """The class's own static and class methods that return an instance, then functions of the file."""
    source = {node.name: node for node in ast.walk(around.tree) if isinstance(node, ast.ClassDef)}.get(kind.__name__)
    for node in source.body if source else ():
        if isinstance(node, ast.FunctionDef) and _is_maker(node, kind.__name__):
            yield getattr(kind, node.name)
    for node in find_builders(around.tree, kind.__name__):
        function = around.namespace.get(node.name)
        if callable(function) and _has_return_value(node):
            yield function


def _has_return_value(node: ast.FunctionDef) -> bool:
    """Does a function return anything? A program's `main` makes models too, and then trains them."""
    return any(isinstance(inner, ast.Return) and inner.value is not None for inner in ast.walk(node))


def _is_maker(node: ast.FunctionDef, name: str) -> bool:
    """Does a static or class method return an object of its class, or the result of another such method?"""
    decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
    if not decorators & {"staticmethod", "classmethod"}:
        return False
    own = {name, "cls"}
    called = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    roots = (func.value if isinstance(func, ast.Attribute) else func for func in called)
    return any(isinstance(root, ast.Name) and root.id in own for root in roots)


def _choose_offline_arguments(function: Callable[..., Any]) -> Arguments:
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: value for name, value in _OFFLINE.items() if name in names and names[name].default is True}


def _is_telling(found: Call) -> bool:
    return _says_something(found.node)


def _says_something(call: ast.Call) -> bool:
    """Does this do more than pass on its own arguments?"""
    handed = [isinstance(each, ast.Starred) for each in call.args] + [each.arg is None for each in call.keywords]
    return not handed or not all(handed)


def _iterate_calls_elsewhere(kind: type[nn.Module], around: Surroundings) -> Iterator[Call]:
    yield from examples_of(around.tree, kind.__name__)
    yield from around.workspace.calls(kind.__name__)


def _collect_call_names(kind: type[nn.Module], found: Call, around: Surroundings) -> Namespace:
    return {**around.namespace, **found.names, kind.__name__: kind}


def _describe_call_place(found: Call, around: Surroundings) -> str:
    return os.path.relpath(found.file, around.workspace.folder) if found.file else "its file's docstring"


# Evaluating a constructor call anywhere in a file, with the simple assignments that it depends on.

UNKNOWN = object()
#: The longest chain of assignments that is followed.
MAX_DEPTH = 5


class UnknownNameError(LookupError):
    """A call uses a name whose value depends on running the code around it."""


def evaluate_call(call: ast.expr, namespace: Namespace, tree: ast.Module) -> Any:
    """The value of an expression of the file; UnknownNameError before anything runs if a name cannot be resolved."""
    local = _Resolver(namespace, tree).names_of(call, 0)
    return _evaluate_expression(call, namespace, local)


def evaluate_partly(
    call: ast.Call, namespace: Namespace, tree: ast.Module, function: Callable[..., Any]
) -> tuple[Arguments, list[str]]:
    """The known arguments of a call of `function` by name; and the names of the unknown ones."""
    given: Arguments = {}
    lacking: list[str] = []
    resolver = _Resolver(namespace, tree)
    for name, node in _bound_nodes(call, function):
        try:
            value = _evaluate_expression(node, namespace, resolver.names_of(node, 0))
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


def _evaluate_expression(node: ast.expr, namespace: Namespace, local: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<call>", "eval"), {**namespace, **local})


@functools.lru_cache(maxsize=64)
def _index_tree(tree: ast.Module) -> tuple[list[ast.FunctionDef], dict[str, list[ast.Assign]]]:
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
    def __init__(self, namespace: Namespace, tree: ast.Module) -> None:
        self.namespace, self.tree = namespace, tree
        self.functions, self.assignments = _index_tree(tree)

    def names_of(self, node: ast.expr, depth: int) -> Namespace:
        """Values for the names of an expression that the module does not have."""
        found: Namespace = {}
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.Name)
                and not self._is_bound(inner.id)
                and inner.id not in _collect_bound_names(node)
            ):
                found[inner.id] = self._resolve_name(node, inner.id, depth)
        return found

    def _resolve_name(self, node: ast.expr, name: str, depth: int) -> Any:
        """The value of a name; for a key into a table, the table's first key."""
        try:
            return self._resolve_assigned(name, node.lineno, depth)
        except UnknownNameError:
            for inner in ast.walk(node):
                match inner:
                    case ast.Subscript(value=ast.Name(id=table), slice=ast.Name(id=key)) if key == name:
                        held = self.namespace.get(table)
                        if isinstance(held, dict) and held:
                            return next(iter(held))
            raise

    def _is_bound(self, name: str) -> bool:
        return name in self.namespace or hasattr(builtins, name)

    def _resolve_assigned(self, name: str, line: int, depth: int) -> Any:
        earlier = [node for node in self.assignments.get(name, ()) if node.lineno < line]
        value = max(earlier, key=lambda node: node.lineno).value if earlier else self._find_given(name, line)
        if _is_parsing(value) and (options := parsed_options(self.tree)):
            return AnyConfig(options).at((name,))
        if value is None or depth >= MAX_DEPTH:
            raise UnknownNameError(f"{name!r} has no simple assignment before line {line}")
        return _evaluate_expression(value, self.namespace, self.names_of(value, depth + 1))

    def _find_given(self, name: str, line: int) -> ast.expr | None:
        """The value of parameter `name` of the function around a line: its default, a test's parameter, or a call's
        argument."""
        around = (each for each in self.functions if each.lineno <= line <= (each.end_lineno or line))
        for function in around:
            held = {**self._read_first_call(function), **_list_defaults(function.args), **_read_parametrized(function)}
            if name in held:
                return held[name]
        return None

    def _read_first_call(self, function: ast.FunctionDef) -> dict[str, ast.expr]:
        """The arguments of a function's first call in its file."""
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


def _read_parametrized(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """The first values that `pytest.mark.parametrize` gives a test's parameters."""
    found: dict[str, ast.expr] = {}
    for node in function.decorator_list:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[names, ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]), *_],
            ):
                words = _split_parameter_names(names)
                match first:
                    case ast.Call(func=ast.Attribute(attr="param"), args=values):
                        found |= zip(words, values, strict=False)
                    case ast.Tuple(elts=values) | ast.List(elts=values) if len(words) > 1:
                        found |= zip(words, values, strict=False)
                    case _:
                        found[words[0]] = first
    return found


def _split_parameter_names(names: ast.expr) -> list[str]:
    match names:
        case ast.Constant(value=str(text)):
            return [word.strip() for word in text.split(",")]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [str(part.value) for part in parts if isinstance(part, ast.Constant)] or [""]
    return [""]


def _list_defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    given = {each.arg: value for each, value in (*pairs, *keywords) if value is not None}
    # A factory that passes on its arguments is assumed to get none.
    rest = {
        each.arg: ast.parse(text, mode="eval").body
        for each, text in ((arguments.kwarg, "{}"), (arguments.vararg, "()"))
        if each
    }
    return {**given, **rest}


def _collect_bound_names(node: ast.expr) -> set[str]:
    """Names that comprehensions and lambdas inside an expression bind."""
    stored = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    return stored | {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
