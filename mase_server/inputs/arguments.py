"""Making an instance of a model class when nobody said how."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mase_server.inputs.classes import builders, calls_of, class_nodes
from mase_server.inputs.constructions import Constructions
from mase_server.inputs.names import usual_argument, usual_list
from mase_server.inputs.usage import evaluate
from mase_server.tracing.failure import RAISED
from mase_server.tracing.problems import describe
from mase_server.tracing.shadow import MetaMode, Shadows

_CONFIG_CLASS = re.compile(r"(Config|Args|Arguments|Params|HParams|Cfg|Options|Settings)$")
_CONFIG_NAME = re.compile(r"conf|cfg|args|params|^hp|^opt|settings", re.IGNORECASE)
#: Names that mean a list, and those that may mean one when a number did not do.
_LIST_NAME = re.compile(r"sizes$|dims$")
_PLURAL = re.compile(r"s$")
_FUNCTION_NAME = re.compile(r"fn|func|function|net|network|module|layer|wrapped")
_BLOCK_NAME = re.compile(r"block|layer|module|cell", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Built:
    """A model with the arguments it was made with, where they came from, and how to make it again."""

    model: nn.Module
    arguments: dict[str, Any]
    source: str
    construct: Callable[[], nn.Module] | None


class NoArgumentsError(Exception):
    """Nobody can say what to construct a class with, or the guess failed."""


class AnyConfig(dict[str, Any]):
    """A configuration whose entries can be read as attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"the configuration guessed here has no {name!r}")


@dataclass(frozen=True, slots=True)
class _Plan:
    source: str
    make: Callable[[], Any]
    guessed: bool = False


def build(
    kind: type[nn.Module],
    namespace: dict[str, Any],
    tree: ast.Module,
    asked: str | None,
    shadows: Shadows,
    errors: list[BaseException],
    on_trial: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Built | None:
    """An instance on meta: as `asked`, else by call sites of the file, builders, defaults, then the usual names.

    Each try runs in `on_trial()`, which sees the exception of one that fails. What each way raised is added to
    `errors`, the person's own errors first.
    """
    guesses: list[BaseException] = []
    for plan in _plans(kind, namespace, tree, asked):
        constructions = Constructions()
        try:
            with on_trial(), constructions.recording(), MetaMode(shadows):
                model = plan.make()
        except RAISED as error:  # the border to the person's constructors
            (guesses if plan.guessed or (plan.source == "default" and _unasked(kind, error)) else errors).append(error)
            continue
        made = constructions.of(model) if isinstance(model, kind) else None
        if made is not None:
            return Built(model, made.bound(), plan.source, made.rebuild())
    errors += [each if isinstance(each, NoArgumentsError) else NoArgumentsError(describe(each)) for each in guesses]
    return None


def _plans(kind: type[nn.Module], namespace: dict[str, Any], tree: ast.Module, asked: str | None) -> Iterator[_Plan]:
    if asked is not None:
        yield _Plan("comment", lambda: eval(asked, namespace))
        return
    for call in calls_of(tree, kind.__name__):
        yield _Plan("usage", partial(evaluate, call, namespace, tree), guessed=True)
    if not _required(kind):
        yield _Plan("default", kind)
    for node in builders(tree, kind.__name__):
        function = namespace.get(node.name)
        if callable(function) and not _required(function):
            yield _Plan("usage", function, guessed=True)
    yield _Plan("search", lambda: kind(**usual_arguments(kind, namespace, tree)), guessed=True)
    yield _Plan("search", lambda: kind(**usual_arguments(kind, namespace, tree, _PLURAL)), guessed=True)


def _unasked(kind: type[nn.Module], error: BaseException) -> bool:
    """Does a class fail without arguments because it has to be given some, or because of what surrounds it?"""
    if isinstance(error, OSError):
        return True
    parameters = inspect.signature(kind).parameters.values()
    if isinstance(error, TypeError) and any(each.kind is each.VAR_KEYWORD for each in parameters):
        return "required positional argument" in str(error) or "required keyword-only" in str(error)
    if all(each.default is not None for each in parameters):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "NoneType" in str(error) or (last.line or "").startswith(("assert ", "raise ", "assert("))


def _required(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters that have to be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in parameters if each.default is each.empty and each.kind not in variable]


def usual_arguments(
    function: Callable[..., Any], namespace: Mapping[str, Any], tree: ast.Module, lists: re.Pattern[str] = _LIST_NAME
) -> dict[str, Any]:
    """A value for every parameter that has to be given; NoArgumentsError names the first that nobody can say.

    lists: names that mean a list where no annotation says otherwise.
    """
    hints = _hints(function)
    return {
        each.name: usual_list(each.name)
        if lists.search(each.name) and each.name not in hints
        else _value(each.name, hints.get(each.name, each.annotation), namespace, tree)
        for each in _required(function)
    }


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return inspect.get_annotations(target, eval_str=True)
    except Exception:  # noqa: BLE001 - evaluates the person's annotations
        return {}


def _value(name: str, annotation: Any, namespace: Mapping[str, Any], tree: ast.Module) -> Any:
    if inspect.isclass(annotation) and _is_config(annotation):
        return annotation(**usual_arguments(annotation, namespace, tree))
    if inspect.isclass(annotation) and issubclass(annotation, nn.Module):
        return annotation(**usual_arguments(annotation, namespace, tree))
    if _CONFIG_NAME.search(name) and annotation not in (int, float, str, bool):
        return _configuration(name, namespace, tree)
    if annotation is bool:
        return False
    if "list" in str(annotation).lower() or "sequence" in str(annotation).lower():
        return usual_list(name)
    usual = usual_argument(name)
    if usual is not None and annotation is not str:
        return annotation(usual) if annotation in (int, float) and not isinstance(usual, bool) else usual
    if _BLOCK_NAME.search(name) and (block := _block(name, namespace, tree)) is not None:
        return block
    if annotation is not str and _FUNCTION_NAME.fullmatch(name):
        return nn.Identity()
    if annotation in (int, float):
        return annotation(16)
    if annotation is inspect.Parameter.empty:
        return 16
    raise NoArgumentsError(f"no value is usual for the argument {name!r}")


def _is_config(kind: type) -> bool:
    return not issubclass(kind, nn.Module) and (
        dataclasses.is_dataclass(kind) or bool(_CONFIG_CLASS.search(kind.__name__))
    )


def _configuration(name: str, namespace: Mapping[str, Any], tree: ast.Module) -> Any:
    """The file's own configuration class, else one with an entry for everything that is read from `name`."""
    own = [namespace[key] for key in class_nodes(tree) if inspect.isclass(namespace.get(key))]
    imported = [kind for kind in namespace.values() if inspect.isclass(kind) and _CONFIG_CLASS.search(kind.__name__)]
    kinds = [kind for kind in (*own, *imported) if _is_config(kind)]
    # What extends another configuration is the more complete of the two.
    for kind in sorted(kinds, key=lambda kind: any(kind in other.__mro__[1:] for other in kinds)):
        return kind(**usual_arguments(kind, namespace, tree))
    read: dict[str, Any] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=key) if owner == name:
                read[key] = usual_argument(key)
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key))) if owner == name:
                read[key] = usual_argument(key)
    return AnyConfig({key: 16 if value is None else value for key, value in read.items() if key != "get"})


def _block(name: str, namespace: Mapping[str, Any], tree: ast.Module) -> Any:
    """A class of the file that is meant by an argument such as `block`."""
    word = _BLOCK_NAME.search(name)
    modules = [namespace[key] for key in class_nodes(tree) if inspect.isclass(namespace.get(key))]
    blocks = [
        kind for kind in modules if issubclass(kind, nn.Module) and re.search(r"block|bottleneck", kind.__name__, re.I)
    ]
    return blocks[0] if word and blocks else None
