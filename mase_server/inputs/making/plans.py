"""Ways to make a model that somebody wrote down: calls, defaults, builders, here and elsewhere in the workspace."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mase_server.inputs.classes import builders, calls_of
from mase_server.inputs.making.expressions import NAMES
from mase_server.inputs.making.guesses import required
from mase_server.inputs.making.surroundings import Surroundings
from mase_server.inputs.making.usage import evaluate, evaluate_partly
from mase_server.inputs.making.workspace import Call, examples_of

#: Calls elsewhere in the workspace that are tried.
MAX_CALLS = 12
#: Functions of the file that are called because they may make it.
MAX_BUILDERS = 6
#: Values of parameters of builders that keep them from reaching for files.
_OFFLINE = {"pretrained": False, "download": False}


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to make an instance.

    function: what is called with `arguments`, where these are known, so that an error of it can be followed.
    guessed: its error says nothing of the person's code.  how: what was assumed.
    """

    source: str
    make: Callable[[], Any]
    guessed: bool = False
    function: Callable[..., Any] | None = None
    arguments: dict[str, Any] | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Arguments that somebody wrote, as far as they can be told. function: what they are the arguments of."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    how: str


def plans(kind: type[nn.Module], around: Surroundings, asked: str | None) -> Iterator[Plan]:
    """What can be made as it stands: as `asked` and no other; else calls of the file, defaults, builders, elsewhere."""
    namespace, tree = around.namespace, around.tree
    if asked is not None:
        yield Plan("comment", lambda: eval(asked, {**NAMES, **namespace}))
        return
    for call in filter(_says_something, calls_of(tree, kind.__name__)):
        yield Plan("usage", partial(evaluate, call, namespace, tree), guessed=True)
    if not required(kind):
        yield Plan("default", kind, function=kind, arguments={})
    for function in itertools.islice(_builders(kind, around), MAX_BUILDERS):
        if not required(function):
            given = _offline(function)
            yield Plan("usage", partial(function, **given), guessed=True, function=function, arguments=given)
    for found in itertools.islice(filter(_is_telling, _elsewhere(kind, around)), MAX_CALLS):
        make = partial(evaluate, found.node, _names(kind, found, around), found.tree)
        yield Plan("usage", make, guessed=True, how=f"made as {_where(found, around)} makes it")


def starts(kind: type[nn.Module], around: Surroundings) -> Iterator[Start]:
    """Calls whose arguments can be told in part, the file's own first."""
    wanted = {each.name for each in required(kind)}
    own = (Call(call, around.tree, {}, "") for call in calls_of(around.tree, kind.__name__))
    for found in itertools.islice(filter(_is_telling, itertools.chain(own, _elsewhere(kind, around))), MAX_CALLS):
        if isinstance(found.node.func, ast.Name) and found.node.func.id == kind.__name__:
            given, lacking = evaluate_partly(found.node, _names(kind, found, around), found.tree, kind)
            if given and (lacking or not wanted <= given.keys()):
                where = _where(found, around) if found.file else "its file"
                yield Start(kind, given, f"made as {where} makes it")
    yield from _from_settings(kind, around)
    for function in itertools.islice(_builders(kind, around), MAX_BUILDERS):
        yield Start(function, _offline(function), f"made by {function.__name__}()")


def _from_settings(kind: type[nn.Module], around: Surroundings) -> Iterator[Start]:
    """Settings of the workspace that name the class, or that have all the arguments that it has to be given."""
    names = [each.name for each in required(kind)]
    try:
        known = set(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        return
    settings = around.settings()
    for mapping in (settings.naming(kind.__name__), settings.closest(set(names)) if len(names) > 1 else {}):
        given = {name: value for name, value in mapping.items() if name in known}
        if given and (len(given) > 1 or len(names) == 1):
            yield Start(kind, given, "made as settings of the workspace say, where they do")


def _builders(kind: type[nn.Module], around: Surroundings) -> Iterator[Callable[..., Any]]:
    """The class's own static and class methods that give an instance, then functions of the file."""
    source = {node.name: node for node in ast.walk(around.tree) if isinstance(node, ast.ClassDef)}.get(kind.__name__)
    for node in source.body if source else ():
        if isinstance(node, ast.FunctionDef) and _is_maker(node, kind.__name__):
            yield getattr(kind, node.name)
    for node in builders(around.tree, kind.__name__):
        function = around.namespace.get(node.name)
        if callable(function) and _gives(node):
            yield function


def _gives(node: ast.FunctionDef) -> bool:
    """Does a function return anything? A program's `main` makes models too, and goes on to train them."""
    return any(isinstance(inner, ast.Return) and inner.value is not None for inner in ast.walk(node))


def _is_maker(node: ast.FunctionDef, name: str) -> bool:
    """Does a static or class method give back what it makes of its class, or what another such method does?"""
    decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
    if not decorators & {"staticmethod", "classmethod"}:
        return False
    own = {name, "cls"}
    called = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    roots = (func.value if isinstance(func, ast.Attribute) else func for func in called)
    return any(isinstance(root, ast.Name) and root.id in own for root in roots)


def _offline(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: value for name, value in _OFFLINE.items() if name in names and names[name].default is True}


def _is_telling(found: Call) -> bool:
    return _says_something(found.node)


def _says_something(call: ast.Call) -> bool:
    """Is this more than a call that only hands on what it was given?"""
    handed = [isinstance(each, ast.Starred) for each in call.args] + [each.arg is None for each in call.keywords]
    return not handed or not all(handed)


def _elsewhere(kind: type[nn.Module], around: Surroundings) -> Iterator[Call]:
    yield from examples_of(around.tree, kind.__name__)
    yield from around.workspace.calls(kind.__name__)


def _names(kind: type[nn.Module], found: Call, around: Surroundings) -> dict[str, Any]:
    return {**around.namespace, **found.names, kind.__name__: kind}


def _where(found: Call, around: Surroundings) -> str:
    return os.path.relpath(found.file, around.workspace.folder) if found.file else "its file's docstring"
