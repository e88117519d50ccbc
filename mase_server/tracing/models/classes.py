"""The model classes of a file, by its syntax tree and its namespace: roots and parts."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Container, Mapping
from types import FunctionType, MethodType
from typing import Any, TypeGuard

from torch import nn

from mase_server.tracing.importing.source import list_nodes, remember
from mase_server.tracing.models.constructions import get_class_origin

# The method by which a model runs: its forward, a `__call__` of its own, or the training step of a Lightning
# module.
#
# The method that is run stands in for the instance's forward, so that all other code knows forwards only.

FORWARD, CALL, STEP = "forward", "__call__", "training_step"


def entry_of(kind: type[nn.Module]) -> str | None:
    """The method by which a class runs; None for a class that leaves it to others, such as an abstract base."""
    if inspect.isabstract(kind):
        return None
    for name in (FORWARD, CALL, STEP):
        method = _find_own_method(kind, name)
        if method is not None:
            return None if is_left_open(method) else name
    return None


def further_entry(kind: type[nn.Module]) -> str | None:
    """The training step of a class that has a forward too."""
    method = _find_own_method(kind, STEP) if entry_of(kind) == FORWARD else None
    return STEP if method is not None and not is_left_open(method) else None


def forward_owner(kind: type[nn.Module]) -> type:
    """The class that a class has its forward from."""
    return next(base for base in kind.__mro__ if FORWARD in vars(base))


def run_by(model: nn.Module, entry: str) -> nn.Module:
    """The same model, which now runs this method when it is called."""
    if entry != FORWARD:
        # Patching its class would do for `__call__`, but code that asks for a model's parameters reads its forward.
        model.forward = MethodType(_wrap_entry(getattr(type(model), entry)), model)
    return model


def _wrap_entry(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method in place of forward; inside it forward is the class's own again, because a step calls `self(batch)`."""

    @functools.wraps(method)
    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        mine = vars(self).pop(FORWARD)
        try:
            return method(self, *args, **kwargs)
        finally:
            vars(self)[FORWARD] = mine

    return forward


def make_constructor(construct: Callable[[], nn.Module] | None, entry: str) -> Callable[[], nn.Module] | None:
    """A constructor of models that run this method."""
    if construct is None or entry == FORWARD:
        return construct
    return lambda: run_by(construct(), entry)


def _find_own_method(kind: type[nn.Module], name: str) -> Any:
    """A method written for this class, not one that nn.Module or a Lightning module has for all classes."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), None)
    if owner is None or owner is nn.Module or owner.__name__ in ("LightningModule", "Protocol", "object"):
        return None
    return vars(owner)[name] if callable(vars(owner)[name]) else None


def is_left_open(method: Any) -> bool:
    """Does a method do nothing but raise NotImplementedError, or nothing at all?"""
    if not isinstance(method, FunctionType):
        return False
    if "NotImplementedError" not in method.__code__.co_names and len(method.__code__.co_names) > 0:
        return False
    try:
        [function] = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    except (OSError, SyntaxError, ValueError):
        return False
    return isinstance(function, ast.FunctionDef) and all(map(_says_nothing, function.body))


def _says_nothing(statement: ast.stmt) -> bool:
    """A docstring, `pass`, `...`, or a raised NotImplementedError."""
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
            return True
    return False


#: Arguments that hold the classes of which a model is made.
_PART = re.compile(r"block|layer|norm|act|cell|attn|mlp|embed|head|stem|conv|pool")


def model_classes(namespace: Mapping[str, Any], tree: ast.Module) -> dict[str, type[nn.Module]]:
    """The nn.Module classes that the file itself defines, outside of functions, and that can be run, in order."""
    found = ((path.rpartition(".")[2], _resolve_class_path(namespace, path)) for path in _class_paths(tree))
    return {name: kind for name, kind in found if _can_run(kind)}


def explain_no_class(namespace: Mapping[str, Any], tree: ast.Module) -> str:
    """Why a file has no class that can be run, as a sentence without its full stop."""
    found = [_resolve_class_path(namespace, path) for path in _class_paths(tree)]
    kinds = [kind for kind in found if inspect.isclass(kind) and issubclass(kind, nn.Module)]
    for kind in kinds:
        if (reason := explain_no_function(kind.__name__, inspect.getattr_static(kind, FORWARD))) is not None:
            return reason
    if kinds:
        return "No class of this file has a forward that can be run"
    return "No class of this file extends torch.nn.Module"


def explain_no_function(owner: str, forward: Any) -> str | None:
    """Why a forward cannot be called, as a sentence without its full stop; None if it can."""
    if callable(forward):
        return None
    return f"The forward of {owner} is no function: it is of type {type(forward).__name__}"


def library_classes(namespace: Mapping[str, Any], tree: ast.Module, folder: str) -> dict[str, type[nn.Module]]:
    """Model classes of libraries that the file imports and calls by name."""
    found = ((name, kind) for name, kind in namespace.items() if _can_run(kind) and calls_of(tree, name))
    return {name: kind for name, kind in found if get_class_origin(kind, folder) == "library"}


def _can_run(kind: Any) -> TypeGuard[type[nn.Module]]:
    return inspect.isclass(kind) and issubclass(kind, nn.Module) and entry_of(kind) is not None


def _resolve_class_path(namespace: Mapping[str, Any], path: str) -> Any:
    """The object at the path `Outer.Inner`, None if there is none."""
    first, *names = path.split(".")
    held = namespace.get(first)
    for name in names:
        held = vars(held).get(name) if inspect.isclass(held) else None
    return held


def class_nodes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Every class statement outside of functions by the class's own name."""
    return {node.name: node for node in reversed(_class_paths(tree).values())}


@remember(8)
def _class_paths(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Class statements by their path, `Outer.Inner`; also those under `if` and `try`."""
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


def find_root_classes(
    classes: Mapping[str, type[nn.Module]], tree: ast.Module, is_built: Callable[[str], bool] = lambda name: False
) -> list[str]:
    """Classes that no other class of the file uses or extends; the last one if they all use each other.

    is_built: does other code make instances of the class? Then it is a model of its own if others only extend it.
    """
    used, extended = set[str](), set[str]()
    owners = {*class_nodes(tree), "self", "cls"}
    for name, node in class_nodes(tree).items():
        if name in classes:
            extended |= {base.id for base in node.bases if isinstance(base, ast.Name)}
            used |= {each for part in node.body for each in _collect_names(part, owners)} - {name}
    used |= _used_by_helpers(classes, tree) | _handed_over(classes, tree)
    found = [name for name in classes if name not in used and not (name in extended and not is_built(name))]
    return found or list(classes)[-1:]


def _collect_names(node: ast.AST, owners: Container[str]) -> set[str]:
    """The names in some code, and those that are read from `owners`, as in `Outer.Inner`."""
    found = set()
    for inner in list_nodes(node):
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
        if name in classes and helpers
        for inner in list_nodes(node)
        if isinstance(inner, ast.Name) and inner.id in helpers
    }
    return {inner.id for name in called for inner in ast.walk(helpers[name]) if isinstance(inner, ast.Name)}


def _handed_over(classes: Mapping[str, type[nn.Module]], tree: ast.Module) -> set[str]:
    """Classes that are arguments of another one's constructor: `ResNet(BasicBlock, [2, 2])`, `dict(block_fn=Block)`."""
    parts = {
        keyword.value.id
        for node in list_nodes(tree)
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
    return _index_calls(tree).get(name, [])


@remember(64)
def _index_calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    """Every call by a plain name; cached, because a file of many classes asks for each of them."""
    found: dict[str, list[ast.Call]] = {}
    for node in list_nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.setdefault(node.func.id, []).append(node)
    return found


def find_builders(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    """Functions at the top of the file that mention a class, then functions that call those: they may build it."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    mentioned = {node.name: {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} for node in functions}
    direct = [node for node in functions if name in mentioned[node.name]]
    names = {node.name for node in direct}
    return direct + [node for node in functions if node not in direct and names & mentioned[node.name]]


def find_compared_words(tree: ast.AST, name: str) -> list[str]:
    """The texts that code compares an entry of this name with: `mode == "train"`, `self.mode.lower() in (...)`."""
    compared, _ = _index_words(tree)
    return list(dict.fromkeys(word for each in list_aliases(tree, name) for word in compared.get(each, ())))


def list_aliases(tree: ast.AST, name: str) -> list[str]:
    """The name of an entry, and those of variables and attributes to which code assigns it: `self.kind = cfg.mode`."""
    _, assigned = _index_words(tree)
    names = [name]
    for each in names:
        names += [other for other in assigned.get(each, ()) if other not in names]
    return names


@remember(64)
def _index_words(tree: ast.AST) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The texts that each entry is compared with, and the names that each is assigned to."""
    compared: dict[str, list[str]] = {}
    assigned: dict[str, list[str]] = {}
    for node in list_nodes(tree):
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()], comparators=[right]):
                parts = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
                values = [part.value for part in parts if isinstance(part, ast.Constant)]
                compared.setdefault(get_entry_name(left), []).extend(each for each in values if isinstance(each, str))
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value):
                assigned.setdefault(get_entry_name(value), []).append(get_entry_name(target))
    return compared, assigned


def get_entry_name(node: ast.expr) -> str:
    """`mode`, `config.mode`, `config["mode"]` and `mode.lower()` read the entry `mode`; "" for another expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Attribute(value=held, attr="lower" | "upper" | "strip")):
            return get_entry_name(held)
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""


def read_definition(thing: Any) -> ast.Module:
    """The syntax tree of a function, or of a class with the bases whose constructors its own calls; an empty one if
    its source cannot be read."""
    read = ast.Module([], [])
    home = _find_search_path(thing)
    for each in inspect.getmro(thing) if inspect.isclass(thing) else (thing,):
        if each is not thing and (not home or _find_search_path(each) != home):
            break  # a class of a library
        try:
            read.body += ast.parse(textwrap.dedent(inspect.getsource(each))).body
            if "__init__" in vars(each) and "super(" not in inspect.getsource(vars(each)["__init__"]):
                break
        except (OSError, TypeError, SyntaxError):
            break
    return read


def _find_search_path(thing: Any) -> str:
    """The folder of the search path from which the module of a class or function comes; "" if none."""
    file = str(getattr(sys.modules.get(getattr(thing, "__module__", "")), "__file__", None) or "")
    return max((each for each in sys.path if each and file.startswith(each + os.sep)), key=len, default="")
