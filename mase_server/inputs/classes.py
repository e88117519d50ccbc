"""The model classes of a file, by its syntax tree and its namespace: which are roots, which are parts."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Container, Mapping
from typing import Any, TypeGuard

from torch import nn

from mase_server.inputs.entries import entry_of
from mase_server.inputs.making.constructions import origin

#: Arguments by which a model is told what it is made of.
_PART = re.compile(r"block|layer|norm|act|cell|attn|mlp|embed|head|stem|conv|pool")


def model_classes(namespace: Mapping[str, Any], tree: ast.Module) -> dict[str, type[nn.Module]]:
    """The nn.Module classes that the file itself defines, outside of functions, and that can be run, in order."""
    found = ((path.rpartition(".")[2], _held(namespace, path)) for path in _class_paths(tree))
    return {name: kind for name, kind in found if _can_run(kind)}


def library_classes(namespace: Mapping[str, Any], tree: ast.Module, folder: str) -> dict[str, type[nn.Module]]:
    """Model classes of libraries that the file imports and calls by name."""
    found = ((name, kind) for name, kind in namespace.items() if _can_run(kind) and calls_of(tree, name))
    return {name: kind for name, kind in found if origin(kind, folder) == "library"}


def _can_run(kind: Any) -> TypeGuard[type[nn.Module]]:
    return inspect.isclass(kind) and issubclass(kind, nn.Module) and entry_of(kind) is not None


def _held(namespace: Mapping[str, Any], path: str) -> Any:
    """What `Outer.Inner` stands for, None where there is nothing."""
    first, *names = path.split(".")
    held = namespace.get(first)
    for name in names:
        held = vars(held).get(name) if inspect.isclass(held) else None
    return held


def class_nodes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Every class statement outside of functions by the class's own name."""
    return {node.name: node for node in reversed(_class_paths(tree).values())}


def _class_paths(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Class statements by how the class is reached, `Outer.Inner`; those under `if` and `try` too."""
    found: dict[str, ast.ClassDef] = {}

    def walk(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found.setdefault(f"{path}{child.name}", child)
                walk(child, f"{path}{child.name}.")
            elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
                walk(child, path)

    walk(tree, "")
    return found


def roots(classes: Mapping[str, type[nn.Module]], tree: ast.Module) -> list[str]:
    """Classes that no other class of the file uses or extends; the last one where they all use each other."""
    used: set[str] = set()
    owners = {*class_nodes(tree), "self", "cls"}
    for name, node in class_nodes(tree).items():
        if name in classes:
            used |= _names(node, owners) - {name}
    used |= _used_by_helpers(classes, tree) | _handed_over(classes, tree)
    found = [name for name in classes if name not in used]
    return found or list(classes)[-1:]


def _names(node: ast.AST, owners: Container[str]) -> set[str]:
    """The names that stand in some code, and those that are read from `owners`, as in `Outer.Inner`."""
    found = set()
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in owners:
                found.add(name)
    return found


def _used_by_helpers(classes: Mapping[str, type[nn.Module]], tree: ast.Module) -> set[str]:
    """Classes that a class uses through a function of the file, as in `self.layer = make_layer(...)`."""
    helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    called = {
        inner.id
        for name, node in class_nodes(tree).items()
        if name in classes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and inner.id in helpers
    }
    return {inner.id for name in called for inner in ast.walk(helpers[name]) if isinstance(inner, ast.Name)}


def _handed_over(classes: Mapping[str, type[nn.Module]], tree: ast.Module) -> set[str]:
    """Classes that are arguments of another one's constructor: `ResNet(BasicBlock, [2, 2])`, `dict(block_fn=Block)`."""
    parts = {
        keyword.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if isinstance(keyword.value, ast.Name) and _PART.search(keyword.arg or "")
    }
    calls = [(name, call) for name in classes for call in calls_of(tree, name)]
    arguments = (
        (name, value) for name, call in calls for value in (*call.args, *(each.value for each in call.keywords))
    )
    return parts | {
        inner.id
        for name, value in arguments
        for inner in ast.walk(value)
        if isinstance(inner, ast.Name) and inner.id != name
    }


def calls_of(tree: ast.Module, name: str) -> list[ast.Call]:
    """Calls of a class or function by its plain name, anywhere in the file."""
    return _calls(tree).get(name, [])


@functools.lru_cache(maxsize=64)
def _calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    """Every call by a plain name; a file of many classes is asked for each of them."""
    found: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.setdefault(node.func.id, []).append(node)
    return found


def builders(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    """Functions at the top of the file that mention a class, then those that call such functions: they may build it."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    mentioned = {node.name: {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} for node in functions}
    direct = [node for node in functions if name in mentioned[node.name]]
    names = {node.name for node in direct}
    return direct + [node for node in functions if node not in direct and names & mentioned[node.name]]
