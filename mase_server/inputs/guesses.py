"""Values for constructor arguments that nobody gave: by annotation, by usual name, by what the file defines."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.inputs.classes import class_nodes
from mase_server.inputs.names import usual_argument, usual_list

_CONFIG_CLASS = re.compile(r"(Config|Args|Arguments|Params|HParams|Cfg|Options|Settings)$")
_CONFIG_NAME = re.compile(r"conf|cfg|args|params|^hp|^opt|settings", re.IGNORECASE)
#: Names that mean a list, and those that may mean one when a number did not do.
_LIST_NAME = re.compile(r"sizes$|dims$")
PLURAL = re.compile(r"s$")
_FUNCTION_NAME = re.compile(r"fn|func|function|net|network|module|layer|wrapped")
_BLOCK_NAME = re.compile(r"block|layer|module|cell", re.IGNORECASE)


class NoArgumentsError(Exception):
    """Nobody can say what to construct a class with, or the guess failed."""


@dataclass(frozen=True, slots=True)
class Made:
    """An argument that is made anew for each instance, such as a module."""

    make: Callable[[], Any]
    text: str

    def __repr__(self) -> str:
        return self.text


def made(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a call takes them."""
    return {name: _made(value) for name, value in arguments.items()}


def _made(value: Any) -> Any:
    if isinstance(value, Made):
        return value.make()
    # What a constructor changes is not what the next one gets.
    return list(value) if type(value) is list else value


#: Pattern of an argument's name -> classes and functions that it may stand for.
PARTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"norm", (nn.LayerNorm, nn.BatchNorm2d, nn.BatchNorm1d, Made(nn.Identity, "Identity()"))),
    (r"act|non_?lin", (nn.ReLU, Made(nn.ReLU, "ReLU()"))),
    (r"conv", (nn.Conv2d, nn.Conv1d)),
    (r"cell|rnn", (nn.GRU, nn.LSTM)),
    (r"pool", (nn.MaxPool2d,)),
    (r"attn|attention", (nn.Identity, Made(nn.Identity, "Identity()"))),
)


class AnyConfig(dict[str, Any]):
    """A configuration whose entries can be read as attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"the configuration guessed here has no {name!r}")


def required(function: Callable[..., Any]) -> list[inspect.Parameter]:
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
        for each in required(function)
    }


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return inspect.get_annotations(target, eval_str=True)
    except Exception:  # noqa: BLE001 - evaluates the person's annotations
        return {}


def _value(name: str, annotation: Any, namespace: Mapping[str, Any], tree: ast.Module) -> Any:
    if inspect.isclass(annotation) and _is_config(annotation):
        return annotation(**made(usual_arguments(annotation, namespace, tree)))
    if inspect.isclass(annotation) and issubclass(annotation, nn.Module):
        return _instance(annotation, namespace, tree)
    if _CONFIG_NAME.search(name) and annotation not in (int, float, str, bool):
        return _configuration(name, namespace, tree)
    if annotation is bool:
        return False
    if re.search(r"list|sequence|iterable|tuple", str(annotation).lower()):
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
    if annotation is not str and (part := next(parts_for(name, "", namespace, tree), None)) is not None:
        return part
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
        return kind(**made(usual_arguments(kind, namespace, tree)))
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


def _instance(kind: type[nn.Module], namespace: Mapping[str, Any], tree: ast.Module) -> Made:
    """A module for an argument, with its own usual arguments."""
    return Made(lambda: kind(**made(usual_arguments(kind, namespace, tree))), f"{kind.__name__}(...)")


def parts_for(name: str, attribute: str, around: Mapping[str, Any], tree: ast.Module) -> Iterator[Any]:
    """Classes, functions and modules that an argument of this name may be: usual ones, then the file's own.

    attribute: what was read from the argument and not there; empty where that was not the trouble.
    """
    lower = name.lower()
    yield from (part for pattern, parts in PARTS if re.search(pattern, lower) for part in parts)
    modules = {key: kind for key, kind in around.items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    alike = [kind for key, kind in modules.items() if lower in key.lower() or key.lower() in lower]
    yield from alike
    yield from (_instance(kind, around, tree) for kind in alike)
    if attribute:
        yield from (_instance(kind, vars(sys.modules[kind.__module__]), tree) for kind in _having(attribute, around))
    if _FUNCTION_NAME.search(lower):
        yield Made(nn.Identity, "Identity()")
        yield nn.Identity


def _having(attribute: str, around: Mapping[str, Any]) -> Iterator[type[nn.Module]]:
    """Model classes of the file's package whose constructor sets an attribute of this name."""
    package = str(around.get("__package__") or around.get("__name__", "")).partition(".")[0]
    spaces = [around, *(vars(module) for name, module in sys.modules.items() if name.partition(".")[0] == package)]
    written = re.compile(rf"self\.{re.escape(attribute)}\b[^=\n]*=[^=]")
    seen: dict[type, None] = {}
    for kind in (value for space in spaces for value in list(space.values()) if inspect.isclass(value)):
        if issubclass(kind, nn.Module) and kind not in seen and kind.__module__.partition(".")[0] != "torch":
            seen[kind] = None
            if written.search(_source(kind)):
                yield kind


@functools.lru_cache(maxsize=4096)
def _source(kind: type) -> str:
    """The text of a class; finding it parses its whole file, which a search does once for each class."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""
