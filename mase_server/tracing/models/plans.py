"""Written ways to make a model: calls, defaults and builders, in the file and elsewhere in the workspace.

Files that use a class are only read and never run; their calls are evaluated piece by piece (`evaluation`). If a call
is known in part, the rest is guessed and said to be.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.importing.source import Namespace
from mase_server.tracing.models.classes import calls_of, find_builders, read_definition
from mase_server.tracing.models.constructions import Surroundings, list_parameters, list_required_parameters
from mase_server.tracing.models.evaluation import evaluate_call, evaluate_partly
from mase_server.tracing.models.expressions import NAMES
from mase_server.tracing.models.guesses import Arguments, Made, list_calls, make_arguments
from mase_server.tracing.models.settings import ARGUMENTS, NAMING
from mase_server.tracing.models.workspace import Call, commented_calls, examples_of

#: The most calls elsewhere in the workspace that are tried.
MAX_CALLS = 12
#: The most functions of the file that are called because they may make it.
MAX_BUILDERS = 6
#: The most calls of such a function elsewhere in the workspace.
MAX_CALLS_OF_BUILDER = 3
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

    def how_with(self, guessed: Collection[str]) -> str:
        """The same, and which arguments are guessed beside these."""
        return f"{self.how}, with {', '.join(guessed)} guessed" if guessed else self.how


def iterate_plans(kind: type[nn.Module], around: Surroundings, asked: str | None) -> Iterator[Plan]:
    """Instances that can be made directly: as `asked` and no other; else calls of the file, defaults, builders,
    elsewhere."""
    namespace, tree = around.namespace, around.tree
    if asked is not None:
        yield Plan("comment", lambda: eval(asked, {**NAMES, **namespace}))
        return
    for call in filter(_says_something, calls_of(tree, kind.__name__)):
        yield Plan("usage", partial(evaluate_call, call, namespace, tree, around=around), guessed=True)
    if not list_required_parameters(kind):
        yield Plan("default", kind, function=kind, arguments={})
    for function in itertools.islice(_find_class_builders(kind, around), MAX_BUILDERS):
        if not list_required_parameters(function):
            given = _choose_offline_arguments(function)
            yield Plan("usage", partial(function, **given), guessed=True, function=function, arguments=given)
    for found in itertools.islice(filter(_is_telling, _iterate_calls_elsewhere(kind, around)), MAX_CALLS):
        make = partial(
            evaluate_call, found.node, _collect_call_names(kind, found, around), found.tree, found.file, around
        )
        yield Plan("usage", make, guessed=True, how=f"built as {_describe_call_place(found, around)} builds it")


def iterate_builder_starts(function: Callable[..., Any], around: Surroundings) -> Iterator[Start]:
    """The known arguments of a function of the file, as other files of the workspace call it; none if it needs none."""
    names = {**around.namespace, function.__name__: function}
    calls = around.workspace.calls(function.__name__) if list_required_parameters(function) else iter(())
    for found in itertools.islice(calls, MAX_CALLS_OF_BUILDER):
        given, _ = evaluate_partly(found.node, names, found.tree, function, found.file, around)
        if given:
            yield Start(function, given, f"built as {_describe_call_place(found, around)} builds it")


def iterate_starts(kind: type[nn.Module], around: Surroundings) -> Iterator[Start]:
    """Calls whose arguments are known, or some of them, the file's own first."""
    own = (Call(call, around.tree, "") for call in calls_of(around.tree, kind.__name__))
    for found in itertools.islice(
        filter(_is_telling, itertools.chain(own, _iterate_calls_elsewhere(kind, around))), MAX_CALLS
    ):
        if isinstance(found.node.func, ast.Name) and found.node.func.id == kind.__name__:
            given, _ = evaluate_partly(
                found.node, _collect_call_names(kind, found, around), found.tree, kind, found.file, around
            )
            if given:  # all of them, if the call failed as it is written
                where = _describe_call_place(found, around) if found.file else "its file"
                yield Start(kind, given, f"built as {where} builds it")
    yield from _from_settings(kind, around)
    for function in itertools.islice(_find_class_builders(kind, around), MAX_BUILDERS):
        if inspect.isfunction(function):
            yield from iterate_builder_starts(function, around)
        yield Start(function, _choose_offline_arguments(function), f"built by {function.__name__}()")


def _from_settings(kind: type[nn.Module], around: Surroundings) -> Iterator[Start]:
    """Settings of the workspace that name the class, or that have all of its required arguments."""
    names = [each.name for each in list_required_parameters(kind)]
    known = {each.name for each in list_parameters(kind)}
    settings = around.settings()
    for mapping in (settings.naming(kind.__name__), settings.closest(set(names)) if len(names) > 1 else {}):
        given = {name: _make_described(name, value, kind) for name, value in mapping.items() if name in known}
        if given and (len(given) > 1 or len(names) == 1):
            yield Start(kind, given, "made as settings of the workspace say, where they do")


def _make_described(name: str, value: Any, kind: type[nn.Module]) -> Any:
    """The module that an entry describes by its class and arguments, if the argument is one; else the entry."""
    if not isinstance(value, Mapping):
        return value
    wanted = inspect.get_annotations(kind.__init__).get(name)
    called = list_calls(name, read_definition(kind))
    if called or (inspect.isclass(wanted) and issubclass(wanted, nn.Module)):
        return _find_described(value) or value
    return value


def _find_described(entry: Mapping[str, Any]) -> Made | None:
    """`{"target": "nets.Encoder", "params": {"width": 8}}`, or the arguments beside the class."""
    path = next((str(value) for key, value in entry.items() if key in NAMING and "." in str(value)), "")
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except RAISED:  # the border to the user's modules
        return None
    if not (inspect.isclass(kind) and issubclass(kind, nn.Module)):
        return None
    beside = {key: value for key, value in entry.items() if key not in NAMING and not key.startswith("_")}
    given = next((entry[key] for key in ARGUMENTS if isinstance(entry.get(key), Mapping)), beside)
    known = {each.name for each in list_parameters(kind)}  # another version of the class takes others
    made = {key: _make_described(key, value, kind) for key, value in given.items() if key in known}
    return Made(lambda: kind(**make_arguments(made)), f"{name}(...)")


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
    yield from commented_calls(around.tree, around.workspace.but, kind.__name__)
    known = {each.name for each in list_parameters(kind)}
    required = {each.name for each in list_required_parameters(kind)}
    yield from around.workspace.calls_by_keywords(kind.__name__, known, required)


def _collect_call_names(kind: type[nn.Module], found: Call, around: Surroundings) -> Namespace:
    return {**around.namespace, kind.__name__: kind}


def _describe_call_place(found: Call, around: Surroundings) -> str:
    return os.path.relpath(found.file, around.workspace.folder) if found.file else "its file's docstring"
