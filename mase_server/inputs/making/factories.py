"""Functions of a file that build models: `def build_model(width): return nn.Sequential(...)`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mase_server.inputs.classes import class_nodes
from mase_server.inputs.instances import Instance, held
from mase_server.inputs.making.arguments import Built, Surroundings
from mase_server.inputs.making.constructions import Constructions
from mase_server.inputs.making.expressions import NAMES
from mase_server.inputs.making.guesses import NoArgumentsError, made, usual_arguments
from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.shadow import MetaMode

#: Libraries whose functions may build models; torch's own compute, but for its hub.
_BUILDERS = frozenset({"torchvision", "timm", "transformers", "segmentation_models_pytorch", "monai", "open_clip"})
_HUB = "torch.hub"


@dataclass(frozen=True, slots=True)
class Factory:
    """A function that gives a model. names: what it mentions, and what the functions of the file that it calls do."""

    name: str
    node: ast.FunctionDef
    names: frozenset[str]


def factories(namespace: Mapping[str, Any], tree: ast.Module) -> list[Factory]:
    """The functions at the top of a file whose result may be a model, in order; not those that others call."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reader = _Reader(namespace, functions)
    found = [
        Factory(name, node, frozenset(_reached(node, functions)))
        for name, node in functions.items()
        if inspect.isfunction(namespace.get(name)) and reader.gives_model(node)
    ]
    others = [*((node.name, node) for node in class_nodes(tree).values()), *functions.items()]
    used = {name for owner, node in others for name in _mentioned(node) - {owner}}
    return [factory for factory in found if factory.name not in used]


def _reached(node: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    found, waiting = set[str](), [node]
    while waiting:
        new = _mentioned(waiting.pop()) - found
        found |= new
        waiting += [functions[name] for name in new & set(functions)]
    return found


def _mentioned(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def called(factory: Factory, around: Surroundings, asked: str | None) -> Iterator[tuple[Instance, Built]]:
    """The models that a function gives, and how; nothing where it fails. asked: the text of the call, if one is."""
    arguments: dict[str, Any] = {}
    function = around.namespace[factory.name]

    def make() -> Any:
        return function(**made(arguments)) if asked is None else eval(asked, {**NAMES, **around.namespace})

    try:
        if asked is None:
            arguments = usual_arguments(function, around)
        with around.on_trial(), Constructions().recording(), MetaMode(around.shadows):
            result = make()
    except (*RAISED, NoArgumentsError):  # the border to the person's functions
        return
    source = "comment" if asked is not None else "search" if arguments else "default"
    how = "its builder's arguments are guessed from their names" if source == "search" else ""
    for instance in held(factory.name, result):
        yield instance, Built(instance.model, arguments, source, partial(_again, make, instance.name), how)


def _again(make: Callable[[], Any], name: str) -> nn.Module:
    """The model of this name among those that a function gives when it is called once more."""
    return {each.name: each.model for each in held(name.partition("[")[0], make())}[name]


class _Reader:
    """Reads from the syntax tree whether a function may return a model; nothing runs."""

    def __init__(self, namespace: Mapping[str, Any], functions: Mapping[str, ast.FunctionDef]) -> None:
        self.namespace, self.functions = namespace, functions
        self._known: dict[str, bool] = {}
        owners = (inner for node in functions.values() for inner in _statements(node))
        self.local = {inner.name for inner in owners if isinstance(inner, ast.ClassDef)}

    def gives_model(self, node: ast.FunctionDef) -> bool:
        """May this function return a model, or several?"""
        if node.name not in self._known:
            self._known[node.name] = False  # where it calls itself
            assigned = _assignments(node)
            results = (inner.value for inner in _statements(node) if isinstance(inner, ast.Return) and inner.value)
            self._known[node.name] = any(self._is_model(value, assigned, 0) for value in results)
        return self._known[node.name]

    def _is_model(self, value: ast.expr, assigned: Mapping[str, list[ast.expr]], depth: int) -> bool:
        if depth > 8:
            return False
        match value:
            case ast.Name(id=name):
                return any(self._is_model(each, assigned, depth + 1) for each in assigned.get(name, ()))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(self._is_model(part, assigned, depth + 1) for part in parts)
            case ast.Dict(values=parts):
                return any(self._is_model(part, assigned, depth + 1) for part in parts)
            case ast.IfExp(body=one, orelse=other):
                return any(self._is_model(part, assigned, depth + 1) for part in (one, other))
            case ast.Call(func=ast.Attribute(value=ast.Call() | ast.Name() as owner, attr=attribute)) if hasattr(
                nn.Module, attribute
            ) and self._is_model(owner, assigned, depth + 1):
                return True  # `.to(device)`, `.eval()`
            case ast.Call(func=function):
                return self._makes_model(function, assigned)
        return False

    def _makes_model(self, function: ast.expr, assigned: Mapping[str, list[ast.expr]]) -> bool:
        if isinstance(function, ast.Name):
            if function.id in assigned:
                return False
            if function.id in self.local:
                return True
            if function.id in self.functions:
                return self.gives_model(self.functions[function.id])
        held = self._held(function)
        if inspect.isclass(held):
            return issubclass(held, nn.Module)
        module = getattr(held, "__module__", None) or ""
        return callable(held) and (module.partition(".")[0] in _BUILDERS or module == _HUB)

    def _held(self, expression: ast.expr) -> Any:
        match expression:
            case ast.Name(id=name):
                return self.namespace.get(name)
            case ast.Attribute(value=owner, attr=name):
                return getattr(self._held(owner), name, None)
        return None


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function but what stands in functions and classes inside of it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _statements(child)


def _assignments(node: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """The values that a function's names are given, one name at a time."""
    found: dict[str, list[ast.expr]] = {}
    for inner in _statements(node):
        match inner:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
    return found
