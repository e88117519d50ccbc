"""The state that a forward may change: of a model and its mode, and of the generators that it draws from."""

from __future__ import annotations

import ast
import inspect
import pickle
import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_not
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mase_server.ops.paths import identity, named_modules
from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.importing.placeholders import stands_in
from mase_server.tracing.importing.source import parse_file
from mase_server.tracing.recording.shadow import Shadows
from mase_server.tracing.recording.values import Attributes, tensors_in

# Models that torch's own walks (`to`, `eval`, `state_dict`) cannot traverse: a part contains itself, or has no
# name.


class UnwalkableError(ValueError):
    """torch cannot traverse a model. place: the file and line of the cause, None if it is not found."""

    def __init__(self, text: str, place: tuple[str, int] | None) -> None:
        super().__init__(text)
        self.place = place


class NotInitialisedError(UnwalkableError):
    """The constructor of a module does not call that of nn.Module."""


class HoldsItselfError(UnwalkableError):
    """A module contains itself."""


class KeyIsNoTextError(UnwalkableError):
    """A module keeps a part under a key that is no text."""


class NotHashableError(UnwalkableError):
    """A module's class cannot be hashed."""


class NestedTooDeepError(UnwalkableError):
    """Modules are nested deeper than Python's limit for nested calls."""


def require_tree(root: nn.Module) -> None:
    """Raise NotInitialisedError for a module that nn.Module's constructor has not made, HoldsItselfError for one below
    itself, NotHashableError for one that no set can hold, KeyIsNoTextError for a part whose key is no text, and
    NestedTooDeepError for parts too deep for any walk.

    Shared modules are fine.
    """
    done: set[int] = set()  # by identity: the user's modules may define any comparison
    above: dict[int, nn.Module] = {}
    todo: list[tuple[nn.Module | None, str]] = [(root, "")]
    while todo:
        module, path = todo.pop()
        if module is None:  # everything below the last one has been seen
            done.add(above.popitem()[0])
        elif identity(module) in above:
            text = (
                f"the part {path!r} of the model is the {type(module).__name__} that it is in, so torch's walks over "
                f"the model (to, eval, state_dict) do not end. Keep it in a list, `self.up = [module]`, which torch "
                f"does not look into."
            )
            raise HoldsItselfError(text, _find_attribute_assignment(list(above.values()), path.rpartition(".")[2]))
        elif identity(module) not in done:
            kind = type(module)
            where = f"the part {path!r} of the model" if path else "the model"
            if getattr(kind, "__hash__", None) is None:
                text = (
                    f"{where}, of class {kind.__name__}, cannot be hashed, because the class has an __eq__ of its own, "
                    "as a dataclass has, and no __hash__. So torch's walks over the model (to, eval, parameters) fail. "
                    "Write `@dataclass(eq=False)`, or `__hash__ = nn.Module.__hash__` in the class."
                )
                raise NotHashableError(text, _find_definition(kind))
            if "_modules" not in vars(module):
                text = (
                    f"{where}, of class {kind.__name__}, has neither parameters nor parts, because its __init__ does "
                    "not call super().__init__(). Call it there first."
                )
                raise NotInitialisedError(text, _find_constructor(kind))
            above[identity(module)] = module
            if len(above) > (limit := sys.getrecursionlimit()):
                text = (
                    f"the parts of the model are nested more than {limit} deep, Python's limit for calls inside of "
                    f"each other, so its forward and torch's walks over it (to, eval, state_dict) fail. Nest them less "
                    f"deep, or raise the limit with sys.setrecursionlimit."
                )
                raise NestedTooDeepError(text, _find_definition(type(root)))
            todo.append((None, ""))
            for table in ("_modules", "_parameters", "_buffers"):
                for key in (key for key in vars(module)[table] if not isinstance(key, str)):
                    text = (
                        f"{f'the part {path!r} of ' if path else ''}the model, a {type(module).__name__}, keeps a part "
                        f"under the key {key!r:.80} in its {table}, and torch's walks over the model (parameters, "
                        f"state_dict) take only text. Use the key {str(key)!r:.80}."
                    )
                    raise KeyIsNoTextError(text, _find_attribute_assignment(list(above.values()), table))
            parts = ((child, f"{path}.{name}" if path else name) for name, child in module._modules.items())
            todo.extend((child, below) for child, below in parts if child is not None)


def _find_constructor(kind: type[nn.Module]) -> tuple[str, int] | None:
    function = getattr(kind.__init__, "__code__", None)
    return (function.co_filename, function.co_firstlineno) if function is not None else _find_definition(kind)


def _find_definition(kind: type[nn.Module]) -> tuple[str, int] | None:
    try:
        return inspect.getfile(kind), inspect.getsourcelines(kind)[1]
    except (TypeError, OSError, SyntaxError):
        return None


def _find_attribute_assignment(modules: list[nn.Module], name: str) -> tuple[str, int] | None:
    """Where a file of one of these modules, the innermost first, assigns an attribute of this name."""
    for kind in dict.fromkeys(type(module) for module in reversed(modules)):
        try:
            file = inspect.getfile(kind)
            tree = parse_file(file)
        except (TypeError, OSError, SyntaxError, ValueError):
            continue
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.Assign)):
            targets = [target.value if isinstance(target, ast.Subscript) else target for target in node.targets]
            if any(isinstance(target, ast.Attribute) and target.attr == name for target in targets):
                return file, node.lineno
    return None


_CONTAINERS = (list, dict, set, OrderedDict)
#: Types that hold no tensor, as most attributes of a module are.
_PLAIN = frozenset({bool, int, float, str, type(None)})
_TABLES = ("_parameters", "_modules", "_buffers")


#: Attribute -> the identity of each tensor in it, and of its memory.
Tensors = dict[str, list[tuple[int, int]]]


def _get_storage_id(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else identity(tensor)


@dataclass(frozen=True, slots=True)
class _Kept:
    """One module's attributes, and the contents of those that are plain containers (its tables among them)."""

    module: nn.Module
    kind: type[nn.Module]
    before: Attributes
    containers: list[tuple[Any, Any]]

    @classmethod
    def of(cls, module: nn.Module) -> _Kept:
        attributes = vars(module)
        containers = [
            (value, value.copy() if value else ()) for value in attributes.values() if type(value) in _CONTAINERS
        ]
        return cls(module, type(module), dict(attributes), containers)

    def restore(self) -> None:
        if type(self.module) is not self.kind:
            return  # a lazy layer has its sizes now, once and for all
        now, before = vars(self.module), self.before
        if len(now) != len(before) or any(map(is_not, now, before)) or any(map(is_not, now.values(), before.values())):
            now.clear()
            now.update(before)
        for container, content in self.containers:
            if container or content:  # most are empty tables of hooks
                container.clear()
                container.extend(content) if isinstance(container, list) else container.update(content)


@dataclass(frozen=True, slots=True)
class KeptParts:
    """The parts that a model had, as a program may put others in their place: `net.fuse()`."""

    kept: list[_Kept]

    @classmethod
    def of(cls, model: nn.Module) -> KeptParts:
        """Those that it has now."""
        return cls([_Kept.of(module) for module in model.modules()])

    def restore(self) -> None:
        """Give the model the parts and attributes that it had, if it has other parts now."""
        if any(map(_has_other_parts, self.kept)):
            for one in self.kept:
                one.restore()


def _has_other_parts(one: _Kept) -> bool:
    table = one.before.get("_modules")
    before = next((content for container, content in one.containers if container is table), ())
    now = vars(one.module).get("_modules") or {}
    return [*now] != [*before] or any(now[name] is not before[name] for name in now)


def state_of(model: nn.Module) -> Tensors:
    """The tensors that each attribute and buffer of a model holds, without parameters."""
    found: Tensors = {}
    for path, module in model.named_modules():
        for name, value in (*vars(module).items(), *vars(module)["_buffers"].items()):
            kind = type(value)
            if kind in _PLAIN or name in _TABLES or (kind in _CONTAINERS and not value):
                continue
            if held := [(identity(tensor), _get_storage_id(tensor)) for tensor in tensors_in(value)]:
                found[f"{path}.{name}" if path else name] = held
    return found


#: With which a forward is run, and a file executed: of the same text, everything is the same in each process.
SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Generators:
    """The states of the generators of `random`, torch and, where it is imported, numpy."""

    plain: Any
    torch: torch.Tensor
    numpy: Any

    @classmethod
    def now(cls) -> _Generators:
        numpy = _numpy()
        return cls(random.getstate(), torch.default_generator.get_state(), numpy and numpy.get_state())

    def restore(self) -> None:
        random.setstate(self.plain)
        torch.default_generator.set_state(self.torch)
        if self.numpy is not None:
            _numpy().set_state(self.numpy)

    def same_as(self, other: _Generators) -> bool:
        """Would all draw the same?"""
        if self.plain != other.plain or not torch.equal(self.torch, other.torch):
            return False
        return pickle.dumps(self.numpy) == pickle.dumps(other.numpy)


def _numpy() -> Any:
    """`numpy.random`; None where numpy is not imported, or something stands in for it."""
    module = getattr(sys.modules.get("numpy"), "random", None)
    return None if module is None or stands_in(module) or stands_in(module.get_state) else module


def seed_random_numbers(seed: int) -> None:
    """Have `random`, torch and, where it is imported, numpy draw as after this seed."""
    random.seed(seed)
    # `torch.manual_seed` also seeds devices that are not there: it has each of them keep the stack for later.
    torch.default_generator.manual_seed(seed)
    if (numpy := _numpy()) is not None:
        numpy.seed(seed)


@contextmanager
def drawing_from(seed: int) -> Iterator[Callable[[], bool]]:
    """Inside, numbers are drawn as after this seed; afterwards they go on as before. Yields a function that tells
    whether any was drawn."""
    before = _Generators.now()
    seed_random_numbers(seed)
    first = _Generators.now()
    try:
        yield lambda: not first.same_as(_Generators.now())
    finally:
        before.restore()


@contextmanager
def preserve_state(model: nn.Module, shadows: Shadows) -> Iterator[None]:
    """On leaving, restore each module of `model` to its state on entry."""
    kept = [_Kept.of(module) for module in model.modules()]
    tables = [one.before[table] for one in kept for table in ("_parameters", "_buffers")]
    tensors = [tensor for table in tables for tensor in table.values() if tensor is not None]
    learning = [(tensor, tensor.requires_grad) for tensor in tensors]
    held = [(tensor, tensor.data) for tensor in tensors if tensor.layout is torch.strided and not is_lazy(tensor)]
    shadows.watch()
    try:
        yield
    finally:
        for one in kept:
            one.restore()
        for tensor, before in learning:
            if tensor.requires_grad is not before and tensor.is_leaf:
                tensor.requires_grad_(before)
        for tensor, data in held:
            if tensor.shape != data.shape or _get_storage_id(tensor) != _get_storage_id(data):
                tensor.data = data  # the forward gave it other data
        shadows.rewind()


def put_in_mode(model: nn.Module, training: bool) -> None:
    """Call `model.train(training)`; if a model's own `train` fails, set the mode part by part."""
    try:
        model.train(training)
    except RAISED:  # the border to the user's code
        for _, part in named_modules(model):
            vars(part)["training"] = training
