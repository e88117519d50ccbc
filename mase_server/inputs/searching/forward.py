"""Reading a forward's source: what happens to a parameter first."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from mase_server.inputs.searching.patterns import Rearranged, has_pattern

#: Deeper nesting of modules than this is not followed.
MAX_DEPTH = 8
#: Methods whose arguments are sizes.
_SHAPING = frozenset(("view", "reshape", "expand", "repeat", "unflatten", "new_zeros", "new_ones", "narrow"))
_JOINS = ("cat", "concat", "concatenate", "hstack")


@dataclass(frozen=True, slots=True)
class Use:
    """The first layer that sees a parameter, or a weight that it is multiplied with; path: as the source writes it.

    dims: how many dimensions the source unpacks from the parameter's shape, 0 where it says nothing.  joined: how
    many parts were joined to what the layer was given, and in which dimension.
    """

    layer: Any
    path: str
    dims: int = 0
    joined: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of a parameter: the whole, or `name["key"]`, `name[0]`, `name.key`."""

    name: str
    key: str | int | None = None
    attribute: bool = False


@dataclass(slots=True)
class Source:
    """The syntax tree of a forward (or another method) of a module."""

    owner: Any
    node: ast.FunctionDef
    environment: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, owner: Any, function: Callable[..., Any]) -> Source | None:
        """None where there is no source to read."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
        except (OSError, TypeError, SyntaxError):
            return None
        node = tree.body[0] if tree.body else None
        return cls(owner, node) if isinstance(node, ast.FunctionDef) else None

    def parameters(self) -> list[str]:
        """Names of the positional parameters after self."""
        return [argument.arg for argument in [*self.node.args.posonlyargs, *self.node.args.args]][1:]

    def resolve(self, node: ast.AST) -> Any:
        """The object that an expression such as `self.layers[0]` stands for; None where it is no such expression."""
        match node:
            case ast.Name(id="self"):
                return self.owner
            case ast.Name(id=name):
                return self.environment.get(name)
            case ast.Attribute(value=value, attr=name):
                held = self.resolve(value)
                return None if held is None else _attribute(held, name)
            case ast.Subscript(value=value, slice=index):
                held = self.resolve(value)
                if isinstance(held, nn.ModuleList | nn.Sequential | nn.ModuleDict) and len(held):
                    return _member(held, index)
        return None


def _attribute(held: Any, name: str) -> Any:
    try:
        return getattr(held, name, None)
    except Exception:  # noqa: BLE001 - a property is the person's code
        return None


def _member(held: Any, index: ast.expr) -> Any:
    if isinstance(index, ast.Constant):
        try:
            return held[index.value]
        except (KeyError, IndexError, TypeError):
            return None
    return next(iter(held.values() if isinstance(held, nn.ModuleDict) else held))


def first_use(model: nn.Module, wanted: Wanted) -> Use | None:
    """The first layer that a parameter of a model's forward reaches."""
    source = Source.of(model, model.forward)
    return None if source is None else _Follower(source, wanted, 0).run()


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes in the order in which they are evaluated, near enough: inner before outer, line by line."""
    for child in ast.iter_child_nodes(node):
        yield from in_order(child)
    yield node


class _Follower:
    """Follows one value through a method until a layer takes it."""

    def __init__(self, source: Source, wanted: Wanted, depth: int) -> None:
        self.source, self.wanted, self.depth = source, wanted, depth
        self.aliases = {wanted.name} if wanted.key is None else set[str]()
        self.dims = 0
        #: Names of what it was joined with others to, and the first layer that took such a thing.
        self.mixed: dict[str, tuple[int, int]] = {}
        self.joined: Use | None = None

    def run(self) -> Use | None:
        for statement in self.source.node.body:
            found = self.statement(statement)
            if found is not None:
                return Use(found.layer, found.path, found.dims or self.dims)
        return self.joined

    def statement(self, node: ast.AST) -> Use | None:
        if isinstance(node, ast.For | ast.With | ast.If | ast.While | ast.Try):
            return self._block(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.comprehension) and self._is_wanted(inner.iter):
                self.aliases |= {each.id for each in ast.walk(inner.target) if isinstance(each, ast.Name)}
        for inner in in_order(node):
            found = self._expression(inner)
            if found is not None:
                return found
        if isinstance(node, ast.Assign):
            self._assign(node)
        return None

    def _block(self, node: Any) -> Use | None:
        if isinstance(node, ast.For):
            self._loop(node)
        head = [getattr(node, name) for name in ("test", "iter") if hasattr(node, name)]
        for statement in (*head, *node.body, *getattr(node, "orelse", ())):
            found = self.statement(statement)
            if found is not None:
                return found
        return None

    def _loop(self, node: ast.For) -> None:
        """`for layer in self.layers`, also with enumerate or zip: the names stand for the first members."""
        names = [inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name)]
        holders = [self.source.resolve(inner) for inner in ast.walk(node.iter)]
        lists = [held for held in holders if isinstance(held, nn.ModuleList | nn.Sequential) and len(held)]
        for name, held in zip(names[-len(lists) :] if lists else (), lists, strict=False):
            self.source.environment[name] = held[0]
        if not lists and self._is_wanted(node.iter):
            self.aliases |= set(names[-1:])

    def _assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        resolved = self.source.resolve(node.value)
        if isinstance(target, ast.Name) and isinstance(resolved, nn.Module):
            self.source.environment[target.id] = resolved
        elif self._is_wanted(node.value) and not _reads_size(node.value):
            names = [target] if isinstance(target, ast.Name) else list(getattr(target, "elts", ()))
            picked = self.wanted.key if isinstance(node.value, ast.Name) and node.value.id == self.wanted.name else None
            if isinstance(target, ast.Tuple) and isinstance(picked, int):
                names = names[picked : picked + 1]
            given = {name.id for name in names if isinstance(name, ast.Name)}
            self.aliases |= given
            join = self._join(node.value)
            self.mixed = {name: how for name, how in self.mixed.items() if name not in given}
            self.mixed |= dict.fromkeys(given, join) if join is not None else {}
        if isinstance(target, ast.Tuple) and _reads_size(node.value) and self._is_wanted(node.value):
            whole = not isinstance(node.value, ast.Subscript)
            self.dims = self.dims or (len(target.elts) if whole else 0)

    def _is_wanted(self, node: ast.AST) -> bool:
        """Does this expression hold the value that is followed?"""
        if self._is_another_member(node):
            return False
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in _SHAPING:
                # The sizes that a tensor is given do not become the tensor.
                return self._is_wanted(value) or (ast.unparse(value) == "torch" and any(map(self._is_wanted, args[:1])))
        return self._names(node) or any(self._is_wanted(inner) for inner in ast.iter_child_nodes(node))

    def _is_another_member(self, node: ast.AST) -> bool:
        """`pair[1]` where `pair[0]` is followed."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))):
                return isinstance(self.wanted.key, int) and name == self.wanted.name and index != self.wanted.key
        return False

    def _names(self, node: ast.AST) -> bool:
        wanted = self.wanted
        match node:
            case ast.Name(id=name):
                whole = name == wanted.name and isinstance(wanted.key, int)
                return name in self.aliases or whole
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
                return name == wanted.name and key == wanted.key and not wanted.attribute
            case ast.Attribute(value=ast.Name(id=name), attr=key):
                return name == wanted.name and key == wanted.key and wanted.attribute
        return False

    def _expression(self, node: ast.AST) -> Use | None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and self._is_wanted(node.left):
            weight = self.source.resolve(node.right)
            return Use(weight, ast.unparse(node.right)) if hasattr(weight, "shape") else None
        if not isinstance(node, ast.Call):
            return None
        called = self.source.resolve(node.func)
        if isinstance(called, nn.Module):
            return self._into(called, node, called.forward)
        if inspect.ismethod(called) and isinstance(called.__self__, nn.Module):
            return self._into(called.__self__, node, called)
        return self._functional(node)

    def _functional(self, node: ast.Call) -> Use | None:
        """`F.linear(x, self.weight)`: the weight says what x is."""
        if len(node.args) < 2 or not self._is_wanted(node.args[0]):
            return None
        weight = self.source.resolve(node.args[1])
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(weight, nn.Parameter) and name in ("linear", "conv2d", "conv1d", "embedding", "matmul", "mm"):
            return Use((name, weight), ast.unparse(node.args[1]))
        return None

    def _into(self, module: nn.Module, node: ast.Call, function: Callable[..., Any]) -> Use | None:
        path = ast.unparse(node.func).removeprefix("self.")
        for position, argument in enumerate(node.args):
            if self._is_wanted(argument) and not _reads_size(argument):
                found = self._enter(module, function, position, None, path)
                join = self._join(argument)
                if join is None or found is None:
                    return found
                # A layer that takes it alone says more.
                self.joined = self.joined or replace(found, joined=join)
        for keyword in node.keywords:
            if keyword.arg and self._is_wanted(keyword.value) and not _reads_size(keyword.value):
                return self._enter(module, function, None, keyword.arg, path)
        return None

    def _join(self, node: ast.expr) -> tuple[int, int] | None:
        """Of how many parts, joined in which dimension, the value that is followed is one; None where it is all."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id in self.mixed:
                return self.mixed[each.id]
            if isinstance(each, ast.Call) and getattr(each.func, "attr", getattr(each.func, "id", "")) in _JOINS:
                return _parts_joined(each)
        return None

    def _enter(
        self, module: nn.Module, function: Callable[..., Any], position: int | None, name: str | None, path: str
    ) -> Use | None:
        inner = innermost(module)
        if isinstance(inner, Rearranged):
            return Use(inner, path)
        if type(inner).__module__.startswith("torch."):
            # What has no weights takes anything: the value is followed through it.
            return Use(inner, path) if next(inner.parameters(), None) is not None else None
        if inner is not module:
            function, position, name = inner.forward, 0, None
        source = Source.of(inner, function)
        if source is None or self.depth > MAX_DEPTH:
            return None
        names = source.parameters()
        if name is None and position is not None and position < len(names):
            name = names[position]
        found = _Follower(source, Wanted(name), self.depth + 1).run() if name else None
        if found is None or inner is self.source.owner:
            return found
        return Use(found.layer, f"{path}.{found.path}", found.dims)


def _parts_joined(call: ast.Call) -> tuple[int, int]:
    """Of `torch.cat([a, b], dim=1)`: 2 and 1; 1 part where nobody can say how many."""
    parts = call.args[0] if call.args else None
    count = len(parts.elts) if isinstance(parts, ast.List | ast.Tuple) else 1
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("dim", "axis")]
    try:
        return count, int(ast.literal_eval([*call.args[1:], *named][0]))
    except (ValueError, TypeError, IndexError):
        return count, 0


def innermost(module: nn.Module) -> Any:
    """The first layer of nested nn.Sequentials; activations and dropouts are passed over."""
    while isinstance(module, nn.Sequential) and len(module):
        weighty = [part for part in module if next(part.parameters(), None) is not None]
        before = list(module)[: list(module).index(weighty[0])] if weighty else []
        if before and not type(before[0]).__module__.startswith("torch.") and not has_pattern(before[0]):
            return before[0]  # nobody knows what it makes of its input
        if has_pattern(module[0]):
            return Rearranged(module[0], _width(weighty[0]) if weighty else 0)
        module = weighty[0] if weighty else module[0]
    return module


def _width(layer: nn.Module) -> int:
    """How many features a layer takes, by its first weight: in the second dimension of a kernel, else in the last."""
    shape = next(layer.parameters()).shape
    return int(shape[1] if len(shape) > 2 else shape[-1]) if len(shape) else 0


def _reads_size(node: ast.AST) -> bool:
    """`x.shape`, `x.size(0)`, `len(x)`, `x.device`: about the tensor, not the tensor."""
    match node:
        case ast.Attribute(attr="shape" | "device" | "dtype" | "ndim"):
            return True
        case ast.Subscript(value=value):
            return _reads_size(value)
        case ast.Call(func=ast.Attribute(attr="size" | "dim")) | ast.Call(func=ast.Name(id="len")):
            return True
    return False
