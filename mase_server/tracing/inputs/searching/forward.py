"""Reading a forward's source: the first use of each parameter."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import FunctionType
from typing import Any

import torch
from torch import nn

from mase_server.tracing.importing.source import remember
from mase_server.tracing.inputs.spec import TensorSpec
from mase_server.tracing.models.classes import forward_owner

# Layers that rearrange by a written pattern, such as `"b c (h p1) (w p2) -> b (h w) (p1 p2 c)"`, and their inputs.

_GROUP = re.compile(r"\(([^)]*)\)|(\S+)")
#: Names of the variable dimensions after batch and channels, by their number.
_SPACE = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


@dataclass(frozen=True, slots=True)
class Rearranged:
    """A layer with a pattern, and the number of features that its successor takes: 0 if unknown."""

    layer: Any
    features: int


def has_pattern(layer: Any) -> bool:
    """Does a pattern describe this layer's input?"""
    return isinstance(getattr(layer, "pattern", None), str) and isinstance(
        getattr(layer, "axes_lengths", None), Mapping
    )


def wanted_by(rearranged: Rearranged) -> list[TensorSpec]:
    """The input that a pattern describes; empty if it leaves too much open."""
    left, _, right = rearranged.layer.pattern.partition("->")
    given, results = _parse_groups(left), _parse_groups(right)
    if "..." in (name for group in given for name in group) or not results:
        return []
    sizes = dict(rearranged.layer.axes_lengths)
    made = [group for group in results if any(name in sizes for name in group)]
    sizes |= _solve_group([*made, results[-1]][0], sizes, rearranged.features)
    varying = [index for index, group in enumerate(given) if index and any(name not in sizes for name in group)]
    names = dict(zip(varying, _SPACE.get(len(varying), ()), strict=False))
    if len(names) != len(varying):
        return []
    dims = (_choose_dimension(index, group, names, sizes) for index, group in enumerate(given))
    return [TensorSpec("f32", tuple(dims))]


def _parse_groups(side: str) -> list[tuple[str, ...]]:
    return [tuple((match[1] or match[2] or "").split()) for match in _GROUP.finditer(side)]


def _solve_group(group: Sequence[str], sizes: Mapping[str, int], features: int) -> dict[str, int]:
    """The one unknown size of the group that becomes the features, which is the group with given sizes."""
    unknown = [name for name in group if name not in sizes]
    known = prod(sizes[name] for name in group if name in sizes)
    return {unknown[0]: features // known} if len(unknown) == 1 and features and features % known == 0 else {}


def _choose_dimension(
    index: int, group: Sequence[str], names: Mapping[int, str], sizes: Mapping[str, int]
) -> int | str:
    if index == 0:
        return "B"
    return names[index] if index in names else prod(sizes[name] for name in group)


#: Deeper nesting of modules than this is not followed.
MAX_DEPTH = 8
#: The most kinds of layers of one list into which a value is followed.
MAX_KINDS = 8
#: Layers of torch that people extend, for their own precision or their own weights.
_LAYERS = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.LayerNorm)
#: Methods whose arguments are sizes.
_SHAPING = frozenset(("view", "reshape", "expand", "repeat", "unflatten", "new_zeros", "new_ones", "narrow"))
#: Methods after which an image is a row of its values.
_FLATTENING = frozenset(("view", "reshape", "flatten"))
#: Functions whose second argument is a weight that tells of the first.
_WEIGHED = frozenset(("linear", "conv2d", "conv1d", "embedding", "embedding_bag", "matmul", "mm"))
_JOINS = ("cat", "concat", "concatenate", "hstack")


@dataclass(frozen=True, slots=True)
class Use:
    """The first layer that sees a parameter, or a weight that it is multiplied with; path: as in the source.

    dims: the number of dimensions that the source unpacks from the parameter's shape, 0 if it does not.  joined: the
    number of parts that were joined to the layer's input, and the dimension.  flat: is the input flattened before?
    added: dimensions of one element that are put into it before.  is_vector: is it viewed as a map of one element?
    """

    layer: Any
    path: str
    dims: int = 0
    joined: tuple[int, int] | None = None
    flat: bool = False
    added: tuple[int, ...] = ()
    is_vector: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of a parameter: the whole, or `name["key"]`, `name[0]`, `name.key`."""

    name: str
    key: str | int | None = None
    attribute: bool = False


def read_function(function: Any) -> tuple[str, ast.FunctionDef | None]:
    """The text of a function or method, and its syntax tree: None if there is none to read. Nobody may change it.

    function: a `forward` may be anything that a class or a module can hold.
    """
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)
    return _parse_once(plain) if isinstance(plain, FunctionType) else ("", None)


@remember(1024)
def _parse_once(function: Callable[..., Any]) -> tuple[str, ast.FunctionDef | None]:
    try:
        text = textwrap.dedent(inspect.getsource(function))
        node = next(iter(ast.parse(text).body), None)
    except (OSError, TypeError, SyntaxError):
        return "", None
    return text, node if isinstance(node, ast.FunctionDef) else None


@dataclass(slots=True)
class Source:
    """The syntax tree of a forward (or another method) of a module."""

    owner: Any
    node: ast.FunctionDef
    environment: dict[str, object] = field(default_factory=dict)
    globals: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, owner: Any, function: Callable[..., Any]) -> Source | None:
        """The source; None if there is none to read."""
        _, node = read_function(function)
        return None if node is None else cls(owner, node, globals=getattr(inspect.unwrap(function), "__globals__", {}))

    def parameters(self, *, bound: bool = True) -> list[str]:
        """Names of the positional parameters. bound: after self."""
        return [argument.arg for argument in [*self.node.args.posonlyargs, *self.node.args.args]][int(bound) :]

    def resolve(self, node: ast.AST) -> Any:
        """The object that an expression such as `self.layers[0]` refers to; None for any other expression."""
        match node:
            case ast.Name(id="self"):
                return self.owner
            case ast.Name(id=name):
                return self.environment.get(name)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                kinds = type(self.owner).__mro__
                own = [read_function(vars(kind).get(self.node.name))[1] is self.node for kind in kinds]
                return getattr(super(kinds[own.index(True) if True in own else 0], self.owner), name, None)
            case ast.Attribute(value=value, attr=name):
                held = self.resolve(value)
                return None if held is None else _read_attribute(held, name)
            case ast.Subscript(value=value, slice=index):
                held = self.resolve(value)
                if isinstance(held, nn.ModuleList | nn.Sequential | nn.ModuleDict) and len(held):
                    return _read_member(held, self.find_index(index))
        return None

    def find_index(self, node: ast.expr) -> int | str | None:
        """The number or key that an index is; None for one that is not known."""
        value: object = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            value = self.environment.get(node.id)
        return value if isinstance(value, int | str) else None


def _read_attribute(held: Any, name: str) -> Any:
    try:
        return getattr(held, name, None)
    except Exception:  # noqa: BLE001 - a property is the person's code
        return None


def _read_member(held: Any, index: int | str | None) -> Any:
    """A member of a container of layers, the first if the index is not known."""
    if index is None:
        return next(iter(held.values() if isinstance(held, nn.ModuleDict) else held))
    try:
        return held[index]
    except (KeyError, IndexError, TypeError):
        return None


def has_function(module: nn.Module) -> bool:
    """Is the forward of a part a function? If not, its call says so."""
    return callable(inspect.getattr_static(module, "forward"))


def forward_of(module: nn.Module) -> Callable[..., Any]:
    """The forward of a part; if that is no function, what nn.Module has for all."""
    return module.forward if has_function(module) else nn.Module.forward


def first_use(model: nn.Module, wanted: Wanted) -> Use | None:
    """The first layer that a parameter of a model's forward reaches."""
    source = Source.of(model, model.forward)
    return None if source is None else _Follower(source, wanted, 0).run()


def walked_uses(model: nn.Module, name: str) -> dict[int | str, Use]:
    """The first layer that each member of a parameter reaches in a loop, by the member's number or key.

    The loop walks over layers and over the parameter (`for layer, x in zip(self.layers, xs)`), or reads its members by
    the number of a layer (`xs[i]`). Empty if there is no such loop, or if a member reaches no layer.
    """
    source = Source.of(model, model.forward)
    for walk in _iterate_walks(source) if source is not None else ():
        uses = {key: _follow_member(walk, name, key) for key in walk.find_keys(name)}
        found = {key: use for key, use in uses.items() if use is not None}
        if found and len(found) == len(uses):
            return found
    return {}


#: Layers of which an input without a batch is unusual.
_OF_MAPS = (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.Conv3d)


@dataclass(frozen=True, slots=True)
class _Walk:
    """A loop of a forward, or a comprehension: what it walks over, into which names, and what it does with each."""

    source: Source
    #: Each name of the target with what it walks over.
    pairs: list[tuple[ast.expr, ast.expr]]
    body: list[ast.stmt]

    def find_keys(self, name: str) -> list[int | str]:
        """The numbers or keys of the layers that are walked over with a parameter, those of its members if each is a
        map; empty for any other loop."""
        numbers = {each.id for each, over in self.pairs if isinstance(each, ast.Name) and _counts(over)}
        reads = [each for statement in self.body for each in ast.walk(statement) if isinstance(each, ast.Subscript)]
        members = [
            each for each in reads if isinstance(each.value, ast.Name) and each.value.id == name
            and not isinstance(each.slice, ast.Tuple) and numbers & _names_in(each.slice)
        ]  # fmt: skip
        walked = [over for _, over in self.pairs if name in _names_in(over)]
        if not members and not any(isinstance(over, ast.Name) or _gives_items(over) for over in walked):
            return []
        keyed = any(map(_gives_items, walked))
        indices = numbers | {each.id for each, over in self.pairs if isinstance(each, ast.Name) and _gives_items(over)}
        holders = [self.source.resolve(over) for _, over in self.pairs]
        holders += [self.source.resolve(each.value) for each in reads if indices & _names_in(each.slice)]
        if keyed:
            holders += list(self.source.owner.children())
            return next((list(held.keys()) for held in holders if isinstance(held, nn.ModuleDict)), [])
        layers = next((held for held in holders if isinstance(held, nn.ModuleList | nn.Sequential)), None)
        if layers is not None:
            return list(range(len(layers)))
        # Only maps are not walked over as the steps of one tensor are.
        use = _follow_member(self, name, 0) if walked else None
        told = [len(held) for held in holders if isinstance(held, list | tuple)]
        return list(range(min(told, default=2))) if use is not None and isinstance(use.layer, _OF_MAPS) else []


def _pair_targets(target: ast.expr, over: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each name of a loop's target with what it walks over: a number over `enumerate`, a key over `items()`."""
    match target, over:
        case ast.Tuple(elts=[number, rest]), ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            yield number, over
            yield from _pair_targets(rest, inner)
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=parts):
            for each, part in zip(targets, parts, strict=False):
                yield from _pair_targets(each, part)
        case ast.Tuple(elts=[key, value]), ast.Call(func=ast.Attribute(value=mapping, attr="items")):
            yield key, over
            yield value, mapping
        case _:
            yield target, over


def _counts(over: ast.expr) -> bool:
    return isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("enumerate", "range")


def _gives_items(over: ast.expr) -> bool:
    return isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items"


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _iterate_walks(source: Source) -> Iterator[_Walk]:
    for node in ast.walk(source.node):
        match node:
            case ast.For(target=target, iter=over, body=body):
                yield _Walk(source, list(_pair_targets(target, over)), body)
            case ast.ListComp(elt=element, generators=[only]) | ast.GeneratorExp(elt=element, generators=[only]):
                yield _Walk(source, list(_pair_targets(only.target, only.iter)), [ast.Expr(element)])
            case ast.DictComp(key=key, value=value, generators=[only]):
                yield _Walk(source, list(_pair_targets(only.target, only.iter)), [ast.Expr(key), ast.Expr(value)])


def _follow_member(walk: _Walk, name: str, key: int | str) -> Use | None:
    """The first layer that one member of a parameter reaches in the body of a loop."""
    environment = dict(walk.source.environment)
    aliases: set[str] = set()
    for target, over in walk.pairs:
        if not isinstance(target, ast.Name):
            continue
        if isinstance(over, ast.Name) and over.id == name:
            aliases.add(target.id)
        elif _counts(over) or _gives_items(over):
            environment[target.id] = key
        elif isinstance(held := walk.source.resolve(over), nn.ModuleList | nn.Sequential | nn.ModuleDict):
            environment[target.id] = _read_member(held, key)
    function = copy.copy(walk.source.node)
    function.body = walk.body
    follower = _Follower(Source(walk.source.owner, function, environment), Wanted(name, key), 0)
    follower.aliases |= aliases
    return follower.run()


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes in approximate order of evaluation: inner before outer, line by line."""
    for child in ast.iter_child_nodes(node):
        yield from in_order(child)
    yield node


class _Follower:
    """Follows one value through a method until a layer takes it."""

    def __init__(self, source: Source, wanted: Wanted, depth: int) -> None:
        self.source, self.wanted, self.depth = source, wanted, depth
        self.aliases = {wanted.name} if wanted.key is None else set[str]()
        self.dims, self.flat, self.added, self.is_vector = 0, False, list[int](), False
        #: The names of tensors that it was joined with, and the first layer that took such a one.
        self.mixed: dict[str, tuple[int, int]] = {}
        self.joined: Use | None = None

    def run(self) -> Use | None:
        for statement in self.source.node.body:
            found = self.statement(statement)
            if found is not None:
                added = (*self.added, *found.added)
                dims, flat, vector = found.dims or self.dims, found.flat or self.flat, found.is_vector or self.is_vector
                return replace(found, dims=dims, flat=flat, added=added, is_vector=vector)
        return self.joined

    def statement(self, node: ast.AST) -> Use | None:
        if isinstance(node, ast.For | ast.With | ast.If | ast.While | ast.Try):
            return self._follow_block(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.comprehension) and self._is_wanted(inner.iter):
                self.aliases |= {each.id for each in ast.walk(inner.target) if isinstance(each, ast.Name)}
        for inner in in_order(node):
            self.flat = self.flat or self._flattens(inner)
            self.is_vector = self.is_vector or self._views_vector(inner)
            if (at := self._find_added(inner)) is not None:
                self.added.append(at)
            found = self._follow_expression(inner)
            if found is not None:
                return found
        match node:
            case ast.Assign():
                self._follow_assignment(node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="append"), args=[added])):
                self.aliases |= {held} if self._is_wanted(added) else set()
        return None

    def _flattens(self, node: ast.AST) -> bool:
        """`x.view(len(x), -1)`, `torch.flatten(x, 1)`; a view of more dimensions flattens nothing."""
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in _FLATTENING:
                return len(args) < 4 and (self._is_wanted(value) or any(map(self._is_wanted, args[:1])))
        return False

    def _views_vector(self, node: ast.AST) -> bool:
        """`z.view(-1, self.width, 1, 1)`: rows of features as maps of one element."""
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="view" | "reshape"), args=[_, _, *sides]):
                ones = all(isinstance(each, ast.Constant) and each.value == 1 for each in sides)
                return len(sides) > 1 and ones and self._is_wanted(value)
        return False

    def _find_added(self, node: ast.AST) -> int | None:
        """The place of the dimension in `x.unsqueeze(1)` and `torch.unsqueeze(x, 1)`."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="unsqueeze"), args=[value, at]):
                pass
            case ast.Call(func=ast.Attribute(value=value, attr="unsqueeze"), args=[at]):
                pass
            case _:
                return None
        held = isinstance(value, ast.Name) and self._is_wanted(value)
        return at.value if held and isinstance(at, ast.Constant) and isinstance(at.value, int) else None

    def _follow_block(self, node: Any) -> Use | None:
        head = [getattr(node, name) for name in ("test", "iter") if hasattr(node, name)]
        before = list(self.added)
        for _ in self._bind_loop(node) if isinstance(node, ast.For) else (None,):
            self.added = list(before)
            for statement in (*head, *node.body, *getattr(node, "orelse", ())):
                found = self.statement(statement)
                if found is not None:
                    return found
        return None

    def _bind_loop(self, node: ast.For) -> Iterator[None]:
        """`for layer in self.layers`, also with enumerate or zip: the names refer to the first members of each kind."""
        names = [inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name)]
        holders = [self.source.resolve(inner) for inner in ast.walk(node.iter)]
        lists = [held for held in holders if isinstance(held, nn.ModuleList | nn.Sequential) and len(held)]
        if not lists and self._is_wanted(node.iter):
            self.aliases |= set(names[-1:])
        rows = list(zip(*lists, strict=False)) if lists else [()]
        kinds = {tuple(map(type, row)): row for row in reversed(rows)}
        for row in itertools.islice(reversed(kinds.values()), MAX_KINDS):
            self.source.environment |= zip(names[-len(lists) :] if lists else (), row, strict=False)
            yield

    def _follow_assignment(self, node: ast.Assign) -> None:
        target = node.targets[0]
        resolved = self.source.resolve(node.value)
        if isinstance(target, ast.Name) and isinstance(resolved, nn.Module):
            self.source.environment[target.id] = resolved
        elif self._is_wanted(node.value):
            names = [target] if isinstance(target, ast.Name) else list(getattr(target, "elts", ()))
            picked = self.wanted.key if isinstance(node.value, ast.Name) and node.value.id == self.wanted.name else None
            if isinstance(target, ast.Tuple) and isinstance(picked, int):
                names = names[picked : picked + 1]
            given = {name.id for name in names if isinstance(name, ast.Name)}
            if isinstance(node.value, ast.Call) and isinstance(target, ast.Tuple):
                # Of `x, context = block(x, context)`, each is what it was before.
                passed = {each.id for each in node.value.args if isinstance(each, ast.Name)}
                given = given & self.aliases if given <= passed else given
            self.aliases |= given
            join = self._find_join(node.value)
            self.mixed = {name: how for name, how in self.mixed.items() if name not in given}
            self.mixed |= dict.fromkeys(given, join) if join is not None else {}
        elif isinstance(target, ast.Tuple) and _reads_size(node.value) and self._holds_followed_name(node.value):
            whole = not isinstance(node.value, ast.Subscript)
            self.dims = self.dims or (len(target.elts) if whole else 0)

    def _is_wanted(self, node: ast.AST) -> bool:
        """Does this expression hold the followed value, and not only its size or its device?"""
        if self._is_another_member(node) or _reads_size(node):
            return False
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in _SHAPING:
                # The sizes that a tensor is given do not become the tensor.
                return self._is_wanted(value) or (ast.unparse(value) == "torch" and any(map(self._is_wanted, args[:1])))
        return self._is_followed_name(node) or any(self._is_wanted(inner) for inner in ast.iter_child_nodes(node))

    def _holds_followed_name(self, node: ast.AST) -> bool:
        return any(map(self._is_followed_name, ast.walk(node)))

    def _is_another_member(self, node: ast.AST) -> bool:
        """`pair[1]` where `pair[0]` is followed."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))):
                return isinstance(self.wanted.key, int) and name == self.wanted.name and index != self.wanted.key
        return False

    def _is_followed_name(self, node: ast.AST) -> bool:
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

    def _follow_expression(self, node: ast.AST) -> Use | None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and self._is_wanted(node.left):
            weight = self.source.resolve(node.right)
            return Use(weight, ast.unparse(node.right)) if hasattr(weight, "shape") else None
        if not isinstance(node, ast.Call):
            return None
        called = self.source.resolve(node.func)
        if isinstance(called, nn.Module):
            return self._follow_into(called, node, forward_of(called))
        if inspect.ismethod(called) and isinstance(called.__self__, nn.Module):
            return self._follow_into(called.__self__, node, called)
        return self._follow_functional(node)

    def _follow_functional(self, node: ast.Call) -> Use | None:
        """`F.linear(x, self.weight)`: the weight determines x; `torch.stft(x, ...)`: it is a signal."""
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="stft"), args=args):
                signal = args[0] if args and ast.unparse(value) == "torch" else value
                return Use(torch.stft, "stft") if self._is_wanted(signal) else None
        if len(node.args) < 2 or not self._is_wanted(node.args[0]):
            return None
        weight = self.source.resolve(node.args[1])
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(weight, nn.Parameter) and name in _WEIGHED:
            return Use((name, weight), ast.unparse(node.args[1]))
        return None

    def _follow_into(self, module: nn.Module, node: ast.Call, function: Callable[..., Any]) -> Use | None:
        path = ast.unparse(node.func).removeprefix("self.")
        for position, argument in enumerate(node.args):
            if self.wanted.attribute and isinstance(argument, ast.Name) and argument.id == self.wanted.name:
                return self._enter_module(module, function, position, None, path, whole=True)
            if self._is_wanted(argument):
                # Of `self.inner(*args)`, the followed member has its own place.
                key = self.wanted.key if isinstance(argument, ast.Starred) else 0
                found = self._enter_module(
                    module, function, position + (key if isinstance(key, int) else 0), None, path
                )
                join = self._find_join(argument)
                if join is None or found is None:
                    return found
                # A layer that takes the value alone is better evidence.
                self.joined = self.joined or replace(found, joined=join)
        for keyword in node.keywords:
            if keyword.arg and self._is_wanted(keyword.value):
                return self._enter_module(module, function, None, keyword.arg, path)
        return None

    def _find_join(self, node: ast.expr) -> tuple[int, int] | None:
        """The number of parts, and the dimension, of the join that the followed value is a part of; None if it is the
        whole."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id in self.mixed:
                return self.mixed[each.id]
            if isinstance(each, ast.Call) and getattr(each.func, "attr", getattr(each.func, "id", "")) in _JOINS:
                return _parts_joined(each)
        return None

    def _enter_module(
        self, module: nn.Module, function: Callable[..., Any], position: int | None, name: str | None, path: str,
        *, whole: bool = False,
    ) -> Use | None:  # fmt: skip
        """whole: is the module given the object of which an attribute is followed?"""
        inner = find_innermost(module)
        if isinstance(inner, Rearranged):
            return Use(inner, path)
        if forward_owner(type(inner)).__module__.startswith("torch."):
            # A layer without weights takes anything: the value is followed through it.
            telling = isinstance(inner, _LAYERS) or next(inner.parameters(), None) is not None
            self.flat = self.flat or isinstance(inner, nn.Flatten)
            return Use(inner, path, flat=has_flatten(module)) if telling else None
        if inner is not module:
            function, position, name = forward_of(inner), 0, None
        source = Source.of(inner, function)
        if source is None or self.depth > MAX_DEPTH:
            return None
        names, rest, key = source.parameters(), source.node.args.vararg, None
        if name is None and position is not None and position < len(names):
            name = names[position]
        elif name is None and position is not None and rest is not None:
            name, key = rest.arg, position - len(names)
        wanted = replace(self.wanted, name=name or "") if whole else Wanted(name or "", key)
        found = _Follower(source, wanted, self.depth + 1).run() if name else None
        if found is None and isinstance(inner, _LAYERS):
            return Use(inner, path)  # a layer of torch whose forward was changed takes what it took
        if found is None or inner is self.source.owner:
            return found
        return replace(found, path=f"{path}.{found.path}", joined=None)


def _parts_joined(call: ast.Call) -> tuple[int, int]:
    """For `torch.cat([a, b], dim=1)`: 2 and 1; 1 part if the number is unknown."""
    parts = call.args[0] if call.args else None
    count = len(parts.elts) if isinstance(parts, ast.List | ast.Tuple) else 1
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("dim", "axis")]
    try:
        return count, int(ast.literal_eval([*call.args[1:], *named][0]))
    except (ValueError, TypeError, IndexError):
        return count, 0


def has_flatten(module: nn.Module) -> bool:
    """Does a sequence of layers flatten its input?"""
    return isinstance(module, nn.Sequential) and any(isinstance(part, nn.Flatten) for part in module.modules())


def find_innermost(module: nn.Module) -> Any:
    """The first layer of nested nn.Sequentials; activations and dropouts are skipped."""
    while isinstance(module, nn.Sequential) and len(module):
        weighty = [part for part in module if next(part.parameters(), None) is not None]
        before = list(module)[: list(module).index(weighty[0])] if weighty else []
        if before and not type(before[0]).__module__.startswith("torch.") and not has_pattern(before[0]):
            return before[0]  # its effect on its input is unknown
        if has_pattern(module[0]):
            return Rearranged(module[0], _get_input_width(weighty[0]) if weighty else 0)
        module = weighty[0] if weighty else module[0]
    return module


def _get_input_width(layer: nn.Module) -> int:
    """The number of features that a layer takes, by its first weight: the second dimension of a kernel, else the
    last."""
    shape = next(layer.parameters()).shape
    return int(shape[1] if len(shape) > 2 else shape[-1]) if len(shape) else 0


def _reads_size(node: ast.AST) -> bool:
    """`x.shape`, `x.size(0)`, `len(x)`, `x.device`: a property of the tensor, not the tensor."""
    match node:
        case ast.Attribute(attr="shape" | "device" | "dtype" | "ndim"):
            return True
        case ast.Subscript(value=value):
            return _reads_size(value)
        case ast.Call(func=ast.Attribute(attr="size" | "dim")) | ast.Call(func=ast.Name(id="len")):
            return True
    return False
