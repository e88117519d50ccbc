"""Values for constructor arguments that are not given: by annotation, by usual name, by the file's definitions."""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import importlib
import inspect
import itertools
import logging
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from mase_server.ops.types import Kwargs
from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.diagnosis.problems import describe_error
from mase_server.tracing.models.classes import calls_of, class_nodes, find_compared_words, read_definition
from mase_server.tracing.models.configs import AnyConfig, make_configuration, reads_of
from mase_server.tracing.models.constructions import Surroundings, list_parameters, list_required_parameters
from mase_server.tracing.models.evaluation import CONFIG_NAME, evaluate_call, evaluate_partly, import_definition
from mase_server.tracing.models.names import number_words, usual_argument, usual_list, usual_text
from mase_server.tracing.models.settings import CONFIG_CLASS
from mase_server.tracing.models.workspace import Call, parse_code

#: Names that mean a list, and those that may mean one if a number failed.
_LIST_NAME = re.compile(r"sizes$|dims$")
PLURAL = re.compile(r"s$")
#: Layers whose first two arguments are numbers.
_SIZED_LAYERS = frozenset(
    {"Linear", "Embedding", "Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"}
)
_FUNCTION_NAME = re.compile(r"fn|func|function|net|network|module|layer|wrapped")
#: Names of arguments that are whole models.
_MODEL_NAME = re.compile(
    r"(?!(d|dim|n|num)_)(\w+_)?(backbone|encoder|decoder|net|network|model|student|teacher|trunk|extractor|vit|transformer|unet|vae|clip)"
)
_BLOCK_NAME = re.compile(r"block|layer|module|cell", re.IGNORECASE)


#: The most calls of a configuration's class that are tried.
MAX_MADE = 6
#: The most classes elsewhere in the workspace that are tried for an argument that is a model.
MAX_CLASSES_ELSEWHERE = 4
#: The members of a list of modules.
LISTED_PARTS = 4


class NoArgumentsError(Exception):
    """The arguments of a class are unknown, or the guess failed. Its cause is the error of the guess."""

    @classmethod
    def of(cls, error: BaseException) -> NoArgumentsError:
        """The same error as one of a guess."""
        if isinstance(error, cls):
            return error
        found = cls(describe_error(error))
        found.__cause__ = error
        return found


@dataclass(frozen=True, slots=True)
class Made:
    """An argument that is made anew for each instance, such as a module.

    sizes: the whole numbers among its own arguments.  resize: gives the same with other sizes, None if it cannot.
    """

    make: Callable[[], Any]
    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    resize: Callable[[Mapping[str, int]], Made | None] = field(default=lambda sizes: None)

    def __repr__(self) -> str:
        return self.text


#: The arguments of a constructor or builder by name; each instance gets a `Made` among them made anew.
Arguments = dict[str, Any]


def make_arguments(arguments: Mapping[str, Any]) -> Kwargs:
    """Arguments in the form of a call."""
    return {name: _make_argument(value) for name, value in arguments.items()}


def _make_argument(value: Any) -> Any:
    if isinstance(value, Made):
        return value.make()
    if isinstance(value, AnyConfig):
        return value.at()
    # A constructor's changes to an argument must not reach the next constructor.
    return list(value) if type(value) is list else value


#: Makes a model that is an argument, as it would be by itself; None if unknown.
Making = Callable[[type[nn.Module]], Made | None]


class GuessedIdentity(nn.Identity):
    """A replacement for a module of which only the calls are known: it gives back the first value that it is given."""

    def forward(self, input: Any, *others: Any, **named: Any) -> Any:
        """The first value."""
        return input


#: The replacement for any module that may be left out.
IDENTITY = Made(GuessedIdentity, "Identity()")

#: Pattern of an argument's name -> classes and functions that it may be.
PARTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"norm", (nn.LayerNorm, nn.BatchNorm2d, nn.BatchNorm1d, IDENTITY)),
    (r"crit($|erion)|loss", (Made(nn.CrossEntropyLoss, "CrossEntropyLoss()"), Made(nn.MSELoss, "MSELoss()"))),
    (r"act|non_?lin", (nn.ReLU, Made(nn.ReLU, "ReLU()"))),
    (r"conv", (nn.Conv2d, nn.Conv1d)),
    (r"cell|rnn", (nn.GRU, nn.LSTM)),
    (r"embed", (Made(partial(nn.Embedding, 1000, 64), "Embedding(1000, 64)"),)),
    (r"pool", (nn.MaxPool2d,)),
    (r"head|neck|classifier|projector", (IDENTITY,)),
    (r"attn|attention", (nn.Identity, IDENTITY)),
)


def usual_arguments(
    function: Callable[..., Any],
    around: Surroundings,
    make: Making = lambda kind: None,
    lists: re.Pattern[str] = _LIST_NAME,
) -> Arguments:
    """A value for every required parameter; NoArgumentsError names the first without one.

    make: gives models that are arguments.  lists: names that mean a list if no annotation says otherwise.
    """
    return lacking_arguments(function, {}, around, make, lists)


def lacking_arguments(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    around: Surroundings,
    make: Making = lambda kind: None,
    lists: re.Pattern[str] = _LIST_NAME,
) -> Arguments:
    """The same for the parameters that are not `given`."""
    hints, guess, source = _read_annotations(function), _Guess(around, make), read_definition(function)
    open_ones = {each.name for each in list_required_parameters(function)} - hints.keys()
    alike = {name for name in open_ones if lists.search(name) and not CONFIG_NAME.search(name)}
    # Names that code uses as lists tell that others of a plural, such as `heads`, are numbers; so do sizes of layers.
    used = alike & _list_sequences(source)
    listed = used if alike & _list_layer_sizes(source) - used else (used if lists is PLURAL else None) or alike
    read = {name for name in open_ones - given.keys() if {name, f"self.{name}"} & _list_sequences(source)}
    told = {name: _find_list_elsewhere(name, around) for name in read}
    with _being_made(function):
        return {
            each.name: told.get(each.name)
            or (
                usual_list(each.name)
                if each.name in listed
                else guess.value(each.name, hints.get(each.name, each.annotation), function, source)
            )
            for each in list_required_parameters(function)
            if each.name not in given
        }


def _find_list_elsewhere(name: str, around: Surroundings) -> list[int]:
    """The whole numbers that a class of the workspace gives an attribute of this name, such as the channels of an
    encoder's maps, if other code reads that attribute of an object; [] if there are none."""
    written, read = f"self.{name} = ".encode(), re.compile(rf"(?<!\bself)\.{re.escape(name)}\b".encode())

    def find() -> list[int]:
        texts = [text for _, text in around.workspace.texts((".py",)) if b"." + name.encode() in text]
        trees = (tree for text in texts if written in text and (tree := parse_code(text.decode("utf8", "replace"))))
        lists = (_read_whole_numbers(node, name) for tree in trees for node in ast.walk(tree))
        return next(filter(None, lists), []) if any(map(read.search, texts)) else []

    return around.workspace.kept(("list of an attribute", name), find)


def _read_whole_numbers(node: ast.AST, name: str) -> list[int]:
    """The numbers in `self.name = [64, 128]`, also as an array or a tensor; [] for any other statement."""
    match node:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=set_here)], value=value):
            inner = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
            parts = inner.elts if set_here == name and isinstance(inner, ast.List | ast.Tuple) else []
            numbers = [each.value for each in parts if isinstance(each, ast.Constant) and type(each.value) is int]
            return numbers if len(numbers) == len(parts) > 1 else []
    return []


def _list_sequences(source: ast.AST) -> set[str]:
    """The names, and the attributes of `self`, of which code reads a member or the length, or through which it
    iterates."""
    found: list[ast.expr] = []
    for node in ast.walk(source):
        match node:
            case (
                ast.Subscript(value=held) | ast.For(iter=held) | ast.comprehension(iter=held) | ast.Starred(value=held)
            ):
                found.append(held)
            case ast.Call(
                func=ast.Name(id="len" | "enumerate" | "zip" | "list" | "tuple" | "sum" | "reversed"), args=args
            ):
                found += args
    return {ast.unparse(each) for each in found if isinstance(each, ast.Name | ast.Attribute)}


def _list_layer_sizes(source: ast.AST) -> set[str]:
    """The names that code gives a layer of torch as a size: `nn.Linear(width, 3)`."""
    found: set[str] = set()
    for node in ast.walk(source):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="nn") | ast.Attribute(attr="nn"), attr=layer), args=args
            ):
                if layer in _SIZED_LAYERS:
                    found |= {each.id for each in args[:2] if isinstance(each, ast.Name)}
    return found


def _read_annotations(function: Callable[..., Any]) -> Mapping[str, Any]:
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return inspect.get_annotations(target, eval_str=True)
    except Exception:  # noqa: BLE001 - evaluates the person's annotations
        return {}


#: The classes and functions whose arguments are being guessed or made: none is an argument of itself, nor of a part.
_UNDERWAY: list[Any] = []


def _is_underway(kind: Any) -> bool:
    return any(each is kind for each in _UNDERWAY)


@contextlib.contextmanager
def _being_made(kind: Any) -> Iterator[None]:
    """Raise NoArgumentsError if it is made of itself."""
    if _is_underway(kind):
        name = getattr(kind, "__name__", "it")
        raise NoArgumentsError(f"{name} is made of another {name}")
    _UNDERWAY.append(kind)
    try:
        yield
    finally:
        _UNDERWAY.pop()


@dataclass(frozen=True, slots=True)
class _Guess:
    """Values among the names of a file."""

    around: Surroundings
    make: Making

    def value(self, name: str, annotation: Any, function: Any, source: ast.AST) -> Any:
        """A value for one parameter of a function with this syntax tree."""
        if (inner := _read_optional(annotation)) is not annotation:
            try:
                return self.value(name, inner, function, source)
            except NoArgumentsError:
                owner = getattr(function, "__name__", "")
                return self._guess_configuration(name, owner) if self._is_configuration(name, function) else None
        if choices := _list_choices(annotation):
            return choices[0]
        if typing.get_origin(annotation) is type:
            return self._guess_class(annotation, name)
        if inspect.isclass(annotation) and _is_config(annotation):
            return self.filled(annotation)
        if _is_module_class(annotation) and annotation is not nn.Module:
            return self._guess_part(annotation, name)
        if (member := next(iter(typing.get_args(annotation)), None)) is not None and _is_module_class(member):
            part = self._guess_part(member, name)
            return Made(lambda: [_make_argument(part) for _ in range(LISTED_PARTS)], f"[{part!r}] * {LISTED_PARTS}")
        if annotation not in (int, float, str, bool) and (
            _is_plain_mapping(annotation) or self._is_configuration(name, function)
        ):
            numbers = {} if CONFIG_NAME.search(name) else number_words(name, _list_words_read(name, source))
            return numbers or self._guess_configuration(name, getattr(function, "__name__", ""))
        if annotation is bool:
            return False
        if annotation is torch.Tensor:
            return Made(partial(torch.zeros, 64), "torch.zeros(64)")
        words = find_compared_words(source, name)
        if words and annotation in (str, inspect.Parameter.empty):
            return words[0]
        if re.search(r"list|sequence|iterable|tuple", str(annotation).lower()):
            return usual_list(name)
        if annotation in (inspect.Parameter.empty, nn.Module) and _is_language_model(name, source):
            return _guess_language_model(name, source)
        if annotation in (inspect.Parameter.empty, nn.Module) and _MODEL_NAME.fullmatch(name):
            if read := _list_attributes_read(name, source):
                made = map(self.make, _find_classes_elsewhere(read, name, self.around))
                if (found := next(filter(None, made), None)) is not None:
                    return found
            if _takes_several(list_calls(name, source)):
                return self._guess_called(name, source)
            return next(parts_for(name, "", self.around, self.make))
        return self._guess_plain(name, annotation, source)

    def _guess_plain(self, name: str, annotation: Any, source: ast.AST) -> Any:
        if annotation is nn.Module:
            return self._guess_part(annotation, name)
        usual = usual_argument(name)
        if usual is not None and (annotation is not str or isinstance(usual, str)):
            return annotation(usual) if annotation in (int, float) and not isinstance(usual, bool) else usual
        if annotation in (int, float):
            return annotation(16)
        if _BLOCK_NAME.search(name) and (block := _find_block_class(name, self.around)) is not None:
            return block
        if annotation is not str and _FUNCTION_NAME.fullmatch(name):
            return IDENTITY
        if _LOGGER_NAME.fullmatch(name) or annotation is logging.Logger:
            return LOGGER
        if annotation is inspect.Parameter.empty:
            return self._guess_called(name, source) if list_calls(name, source) else 16
        if annotation is str:
            return usual_text(name)
        if (part := next(parts_for(name, "", self.around, self.make), None)) is not None:
            return part
        if typing.get_origin(annotation) is Callable or annotation is Callable:
            makes = typing.get_args(annotation)[-1:]
            return nn.Identity if makes and _is_module_class(makes[0]) else IDENTITY
        raise NoArgumentsError(f"no value is usual for the argument {name!r}")

    def _guess_class(self, annotation: Any, name: str) -> Any:
        """A class for `type[Kind]`, the first of `type[Kind | Other]`: a usual one if any module will do."""
        kind = next(iter(typing.get_args(annotation)), object)
        kind = next(iter(typing.get_args(kind)), kind)
        if kind is not nn.Module:
            return kind
        parts = parts_for(name, "", self.around, self.make)
        return next((part for part in parts if _is_module_class(part)), nn.Identity)

    def _guess_called(self, name: str, source: ast.AST) -> Any:
        """A module for an argument that is called: a class of the workspace with such a name, else a usual one."""
        calls = list_calls(name, source)
        kinds = (each for each in _find_classes_elsewhere((), name, self.around) if _fits_calls(each, calls))
        if (made := next(filter(None, map(self.make, kinds)), None)) is not None:
            return made
        usual = (part for part in parts_for(name, "", self.around, self.make) if not inspect.isclass(part))
        fitting = (part for part in usual if part is not STAND_IN or not _takes_several(calls))
        found = next(fitting, IDENTITY)
        if found is IDENTITY and _gives_several(calls, source):
            raise NoArgumentsError(f"{name!r} is a module that gives several values, and nothing tells which")
        return found

    def _guess_part(self, kind: type[nn.Module], name: str) -> Any:
        if kind is nn.Module:
            return next(parts_for(name, "", self.around, self.make), IDENTITY)
        heirs = _iterate_heirs(kind) if inspect.isabstract(kind) else iter((kind,))
        made = map(self.make, itertools.islice(heirs, MAX_CLASSES_ELSEWHERE))
        return next(filter(None, made), None) or _make_instance(kind, self.around)

    def _is_configuration(self, name: str, function: Any) -> bool:
        """Is it a configuration: by its name, or because several entries and nothing else of it are read?"""
        if CONFIG_NAME.search(name):
            return True
        tree = class_nodes(self.around.tree).get(getattr(function, "__name__", ""))
        if _MODEL_NAME.fullmatch(name):
            return False
        if tree is None or (usual_argument(name) is not None and len(name) > 1):
            return False
        if any(isinstance(node, ast.Subscript) and _is_named(node.value, name) and isinstance(node.slice, ast.Constant)
               and isinstance(node.slice.value, str) for node in ast.walk(tree)):  # fmt: skip
            return True  # nothing else is read by a word
        reads = {read.path[0] for read in reads_of(name, tree)}
        if any(hasattr(nn.Module, key) or hasattr(torch.Tensor, key) for key in reads):
            return False
        called = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_named(node.func.value, name)
        }
        return len(reads - called) > 1

    def _guess_configuration(self, name: str, owner: str) -> Any:
        """The file's own configuration class, else one with an entry for everything that is read from `name`.

        owner: the class that it is for.
        """
        namespace, tree = self.around.namespace, self.around.tree
        own = [namespace[key] for key in class_nodes(tree) if inspect.isclass(namespace.get(key))]
        imported = [kind for kind in namespace.values() if inspect.isclass(kind) and CONFIG_CLASS.search(kind.__name__)]
        kinds = [kind for kind in dict.fromkeys((*own, *imported)) if _is_config(kind)]
        read = {read.path[0] for read in reads_of(name, tree)}
        # Of two configurations, the one that extends the other is more complete.
        ranked = sorted(
            kinds,
            key=lambda kind: (
                -len(read & _list_config_fields(kind)),
                any(kind in other.__mro__[1:] for other in kinds),
            ),
        )
        with contextlib.suppress(NoArgumentsError):  # then its entries are read from its source
            if ranked:
                return self.filled(ranked[0])
        ready = max(self._iterate_ready(), key=lambda each: _count_entries(each, read), default=None)
        if _count_entries(ready, read) > max(1, len(read) // 2):
            return AnyConfig(ready).at((name,)) if isinstance(ready, dict) else copy.deepcopy(ready)
        return make_configuration(name, tree, self.around.settings(), owner)

    def _iterate_ready(self) -> Iterator[Any]:
        """Configurations that the file and the modules that it imports hold in variables, also in a table of several,
        and those that their functions give without arguments."""
        folder = self.around.workspace.folder
        spaces = [value for value in self.around.namespace.values() if isinstance(value, ModuleType)]
        inside = [vars(each) for each in spaces if folder and str(getattr(each, "__file__", "")).startswith(folder)]
        for space in (self.around.namespace, *inside):
            for key, value in list(space.items()):
                if isinstance(value, Mapping):
                    yield from (value, *value.values())
                elif inspect.isfunction(value) and CONFIG_NAME.search(key) and not list_required_parameters(value):
                    with contextlib.suppress(*RAISED):  # the border to the user's functions
                        yield value()
                elif CONFIG_NAME.search(key):
                    yield value

    def filled(self, kind: type) -> Any:
        """A configuration as the file or the workspace makes it; else with its defaults, and fields without one get the
        workspace's value, else the usual one."""
        given: Mapping[str, Any] = {}
        if needed := [each.name for each in list_required_parameters(kind)]:
            made, given = self._find_made(kind)
            if made is not None:
                return made
            known = {} if given else self.around.settings().closest(_list_config_fields(kind))
            given = given or {name: known[name] for name in needed if known.get(name) is not None}
        arguments = make_arguments({**given, **lacking_arguments(kind, given, self.around, self.make)})
        try:
            return kind(**arguments)
        except RAISED as error:  # the border to the user's checks of a guess
            raise NoArgumentsError(f"the guess for {kind.__name__} does not fit ({describe_error(error)})") from error

    def _find_made(self, kind: type) -> tuple[Any, Arguments]:
        """The first configuration of a class that a call in the file or in the workspace makes; if the arguments of
        none are all known, the known ones of the first call that has any."""
        home = str(getattr(sys.modules.get(kind.__module__), "__file__", "") or "")
        own = (Call(call, self.around.tree, "") for call in calls_of(self.around.tree, kind.__name__))
        calls = itertools.chain(own, self.around.workspace.calls(kind.__name__, home))
        names = {**self.around.namespace, kind.__name__: kind}
        known: Arguments = {}
        for call in itertools.islice(calls, MAX_MADE):
            with contextlib.suppress(*RAISED):  # the border to the user's expressions
                made = evaluate_call(call.node, names, call.tree, call.file, self.around)
                if isinstance(made, kind):
                    return made, {}
            known = known or evaluate_partly(call.node, names, call.tree, kind, call.file, self.around)[0]
        return None, known


def _count_entries(config: Any, names: Set[str]) -> int:
    """The number of these entries that a configuration has, read as items or as attributes."""
    if isinstance(config, type | ModuleType) or not (isinstance(config, Mapping) or hasattr(config, "__dict__")):
        return 0
    try:
        return sum(name in config if isinstance(config, Mapping) else hasattr(config, name) for name in names)
    except RAISED:  # the border to the user's configurations
        return 0


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _list_config_fields(kind: type) -> set[str]:
    return {each.name for each in list_parameters(kind)} | set(getattr(kind, "__annotations__", ()))


#: Annotations, and the usual value of each.
_USUAL_VALUES: tuple[tuple[Any, Any], ...] = (
    (torch.dtype, torch.float32), (torch.device, torch.device("cpu")), (Path, Path()),
)  # fmt: skip


def _read_optional(annotation: Any) -> Any:
    """The annotation inside of one that allows None beside it."""
    is_union = typing.get_origin(annotation) in (typing.Union, UnionType)
    inner = [each for each in typing.get_args(annotation) if each is not type(None)] if is_union else []
    return inner[0] if len(inner) == 1 else annotation


def _list_choices(annotation: Any) -> list[Any]:
    """The values that an annotation lists: `Literal["mean", "sum"]`, the members of an enumeration, a usual one."""
    if typing.get_origin(annotation) is typing.Literal:
        return [each for each in typing.get_args(annotation) if each is not None]
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return list(annotation)
    return [value for kind, value in _USUAL_VALUES if annotation is kind]


def _is_plain_mapping(annotation: Any) -> bool:
    """Is it `dict`, or another mapping of names to values of which nothing is said?"""
    kind, members = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    return inspect.isclass(kind) and issubclass(kind, Mapping) and members[1:] in ((), (Any,))


def _is_config(kind: type) -> bool:
    return not issubclass(kind, nn.Module) and (
        dataclasses.is_dataclass(kind) or bool(CONFIG_CLASS.search(kind.__name__))
    )


def _find_block_class(name: str, around: Surroundings) -> Any:
    """The class of the file that an argument such as `block` means."""
    modules = [around.namespace[key] for key in class_nodes(around.tree) if inspect.isclass(around.namespace.get(key))]
    blocks = [
        kind for kind in modules if issubclass(kind, nn.Module) and re.search(r"block|bottleneck", kind.__name__, re.I)
    ]
    return blocks[0] if blocks else None


def _iterate_heirs(kind: type[nn.Module]) -> Iterator[type[nn.Module]]:
    """The loaded classes that extend an abstract one and can be made."""
    for heir in kind.__subclasses__():
        yield from _iterate_heirs(heir) if inspect.isabstract(heir) else (heir,)


def _make_instance(kind: type[nn.Module], around: Surroundings) -> Made:
    """A module for an argument, with its own usual arguments."""

    def make() -> nn.Module:
        arguments = usual_arguments(kind, around)
        with _being_made(kind):
            return kind(**make_arguments(arguments))

    return Made(make, f"{kind.__name__}(...)")


class GuessedNetwork(nn.Sequential):
    """A placeholder for an unknown model argument. What it lacks, the argument may have."""


def _small_network() -> nn.Module:
    """It turns an image into features."""
    return GuessedNetwork(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 64)
    )


#: A replacement for any model.
LOGGER = Made(partial(logging.getLogger, "model"), 'logging.getLogger("model")')
_LOGGER_NAME = re.compile(r"(?i)(\w+_)?logger")
STAND_IN = Made(_small_network, "a small network")


def parts_for(
    name: str, attribute: str | type, around: Surroundings, make: Making = lambda kind: None
) -> Iterator[Any]:
    """Classes, functions and modules that an argument of this name may be: usual ones, then the file's own.

    attribute: the attribute that was missing on the argument, or the class that it must be an instance of; "" if
    neither was the problem.
    """
    if isinstance(attribute, type):
        yield make(attribute) or _make_instance(attribute, around)
        return
    lower = name.lower()
    space = around.namespace
    modules = {key: kind for key, kind in space.items() if _is_module_class(kind) and not _is_underway(kind)}
    alike = [kind for key, kind in modules.items() if lower in key.lower() or key.lower() in lower]
    instances = (make(kind) or _make_instance(kind, around) for kind in alike)
    if attribute:
        yield from (make(kind) or _make_instance(kind, around) for kind in _find_classes_setting(attribute, space))
    if _MODEL_NAME.fullmatch(lower):
        yield from (*instances, STAND_IN)
    yield from (part for pattern, parts in PARTS if re.search(pattern, lower) for part in parts)
    yield from alike
    yield from instances
    if _FUNCTION_NAME.search(lower):
        yield IDENTITY
        yield nn.Identity


def _is_module_class(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, nn.Module)


def list_calls(name: str, source: ast.AST) -> list[ast.Call]:
    """The calls of an argument of a constructor that its class keeps as it is (`self.matcher = matcher`)."""
    kept, called = set[str](), list[tuple[str, ast.Call]]()
    for node in ast.walk(source):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=attribute)], value=ast.Name(id=given)) if given == name:
                kept.add(attribute)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attribute)):
                called.append((attribute, node))
    return [call for attribute, call in called if attribute in kept]


#: Arguments by which a model of Hugging Face is called, and places of the width that its configuration has.
_WORDS = frozenset({"input_ids", "attention_mask", "token_type_ids", "inputs_embeds"})
_WIDTHS = frozenset({("config", "hidden_size"), ("config", "dim")})
#: Names of such a model.
_LANGUAGE_MODEL = re.compile(r"(?i)bert|electra|xlnet|(^|_)plm$|language_model$")


def _is_language_model(name: str, source: ast.AST) -> bool:
    """Is an argument asked for the width that a configuration of Hugging Face has, or is it called for several results
    with the keywords, or by the name, of such a model? Only if transformers is there."""
    calls = list_calls(name, source)
    given = {each.arg for call in calls for each in call.keywords}
    named = bool(given & _WORDS) or (_LANGUAGE_MODEL.search(name) is not None and not given)
    asked = any(read.path in _WIDTHS for read in reads_of(name, source))
    return (asked or (named and _gives_several(calls, source))) and find_spec("transformers") is not None


def _guess_language_model(name: str, source: ast.AST) -> Made:
    """A small BERT of the usual width. It gives a tuple where the code unpacks its results."""
    calls = list_calls(name, source)
    unpacks = any(
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and node.value in calls
        for node in ast.walk(source)
    )
    options: Kwargs = {"num_hidden_layers": 2, **({"return_dict": False} if unpacks else {})}

    def make() -> Any:
        transformers = importlib.import_module("transformers")
        return transformers.BertModel(transformers.BertConfig(**options))

    return Made(make, f"BertModel(BertConfig({', '.join(f'{key}={value}' for key, value in options.items())}))")


def _takes_several(calls: Sequence[ast.Call]) -> bool:
    return any(len(call.args) + len(call.keywords) > 1 for call in calls)


def _gives_several(calls: Sequence[ast.Call], source: ast.AST) -> bool:
    """Does the code take a member of what one of these calls gives: `_, pooled = self.bert(ids)`?"""
    for node in ast.walk(source):
        match node:
            case (
                ast.Assign(targets=[ast.Tuple() | ast.List()], value=value)
                | ast.Subscript(value=value, slice=ast.Constant())
            ) if value in calls:
                return True
            case ast.Attribute(value=value, attr=attribute) if value in calls and not hasattr(torch.Tensor, attribute):
                return True
    return False


def _fits_calls(kind: type[nn.Module], calls: Sequence[ast.Call]) -> bool:
    """Does a model take as many values as these calls give?"""
    plain = (call for call in calls if all(each.arg for each in call.keywords))
    try:
        for call in (each for each in plain if not any(isinstance(value, ast.Starred) for value in each.args)):
            given = {str(each.arg): each.value for each in call.keywords}
            inspect.signature(kind.forward).bind(None, *call.args, **given)
    except (TypeError, ValueError):
        return False
    return True


def _list_words_read(name: str, source: ast.AST) -> list[str]:
    """The words under which a class or function reads entries of a parameter: `self.numbers["<start>"]`."""
    items = (node for node in ast.walk(source) if isinstance(node, ast.Subscript))
    keys = (node.slice for node in items if ast.unparse(node.value).removeprefix("self.") == name)
    return list(
        dict.fromkeys(key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
    )


def _list_attributes_read(name: str, source: ast.AST) -> list[str]:
    """The attributes that a class or function reads of a parameter that is a model, without those of every module."""
    read = dict.fromkeys(each.path[0] for each in reads_of(name, source))
    return [key for key in read if not hasattr(nn.Module, key) and not hasattr(torch.Tensor, key)]


def _find_classes_elsewhere(attributes: Sequence[str], name: str, around: Surroundings) -> Iterator[type[nn.Module]]:
    """Model classes of the workspace that set or define all these attributes, those of a similar name first; without
    attributes, only those of a similar name."""
    words = [word.lower().encode() for word in attributes or (name,)]
    found: list[tuple[bool, str, ast.Module, str]] = []
    for path, text in around.workspace.texts((".py",)):
        if not all(word in text.lower() for word in words) or len(found) > MAX_CLASSES_ELSEWHERE:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
            unlike = name.lower() not in node.name.lower()
            if {"forward", *attributes} <= _list_attributes_set(node) and (attributes or not unlike):
                found.append((unlike, str(path), tree, node.name))
    for _, file, tree, kind in sorted(found, key=lambda each: each[0])[:MAX_CLASSES_ELSEWHERE]:
        made = import_definition(file, tree, kind, around)
        if _is_module_class(made) and not _is_underway(made):
            yield made


def _list_attributes_set(node: ast.ClassDef) -> set[str]:
    """The attributes that a class gives its objects, and its methods."""
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    stored = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
    return methods | {each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self"}


def _find_classes_setting(attribute: str, around: Mapping[str, Any]) -> Iterator[type[nn.Module]]:
    """Model classes of the file's package whose constructor sets an attribute of this name."""
    package = str(around.get("__package__") or around.get("__name__", "")).partition(".")[0]
    spaces = [around, *(vars(module) for name, module in sys.modules.items() if name.partition(".")[0] == package)]
    written = re.compile(rf"self\.{re.escape(attribute)}\b[^=\n]*=[^=]")
    seen: dict[type, None] = {}
    for kind in (value for space in spaces for value in list(space.values()) if inspect.isclass(value)):
        if issubclass(kind, nn.Module) and kind not in seen and kind.__module__.partition(".")[0] != "torch":
            seen[kind] = None
            if written.search(_read_class_source(kind)):
                yield kind


_sources: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def _read_class_source(kind: type) -> str:
    """The text of a class; cached, because finding it parses its whole file."""
    if kind not in _sources:
        try:
            _sources[kind] = inspect.getsource(kind)
        except (OSError, TypeError):
            _sources[kind] = ""
    return _sources[kind]
