"""Candidates for each input of a forward: by its annotation, by the parts that are read of it, else as one tensor."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import itertools
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import nn

from mase_server.tracing.inputs.library.huggingface import LABEL_NAMES, library_choices
from mase_server.tracing.inputs.library.images import as_array
from mase_server.tracing.inputs.searching.consumers import hidden_states
from mase_server.tracing.inputs.searching.forward import (
    Source,
    Use,
    Wanted,
    find_innermost,
    first_use,
    has_flatten,
    has_function,
    in_order,
    walked_uses,
)
from mase_server.tracing.inputs.searching.plausible import iterate_run
from mase_server.tracing.inputs.searching.singles import (
    TYPES,
    Choice,
    leaf_choices,
    list_any_choices,
    list_compared_words,
    list_consumer_choices,
    list_scalar_values,
    type_of,
)
from mase_server.tracing.inputs.spec import ConstantSpec, Dim, Inputs, MapSpec, SequenceSpec, Spec, TensorSpec
from mase_server.tracing.models.constructions import arguments_of, list_required_parameters
from mase_server.tracing.models.names import STATE, usual_inputs

MAX_ROWS = 200
#: The most members of a sequence that nobody reads before those that are unpacked.
MAX_SKIPPED = 16


class Record(dict[str, Any]):
    """An object that is read both by keys and by attributes, like a batch of a tokenizer or of a graph library."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            ) from None


def guesses_for(model: nn.Module, name: str, key: str, others: Inputs) -> list[Spec]:
    """Candidates for a member of an input. name: the parameter that holds it; "" if none does."""
    return [choice.spec for choice in leaf_choices(model, key, Wanted(name, key), others)]


def new_guesses(model: nn.Module, name: str, others: Inputs) -> list[Spec]:
    """Candidates for a value that a forward unpacks into a local name."""
    return [choice.spec for choice in leaf_choices(model, name, Wanted(name), others)]


def choices_for(model: nn.Module, more: Set[str] = frozenset()) -> dict[str, list[Choice]]:
    """Candidates for each required parameter, and for those in `more`."""
    library = from_library(model)
    if library:
        return library[0]
    if type(model).forward is nn.Sequential.forward:
        first = find_innermost(model)
        use = Use(first, type(first).__name__, flat=has_flatten(model))
        return {"input": list_consumer_choices(use) or list_any_choices()}
    return {each.name: choices_of(model, each.name) for each in _list_needed_parameters(model, more)}


def from_library(model: nn.Module) -> list[dict[str, list[Choice]]]:
    """Whole sets of inputs of a Hugging Face model, the likeliest first."""
    return [
        {name: [Choice(spec, "as its configuration says")] for name, spec in found.items()}
        for found in library_choices(model)
    ]


def _list_needed_parameters(model: nn.Module, more: Set[str] = frozenset()) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = list(inspect.signature(model.forward).parameters.values())
    plain = [each for each in parameters if each.kind not in variable]
    required = [each for each in plain if each.default is each.empty or each.name in more]
    # The search also gives what forward reads of `*args` by number, or of `**kwargs` as `kwargs["mask"]`.
    reads = {inspect.Parameter.VAR_POSITIONAL: members_of, inspect.Parameter.VAR_KEYWORD: _list_required_keys}
    required += [each for each in parameters if required and each.kind in reads
                 and reads[each.kind](model, each.name)]  # fmt: skip
    # A forward whose inputs are all optional still wants its first one.
    return required or [each for each in plain if each.name not in LABEL_NAMES][:1] or parameters[:1]


#: The candidates that were listed before, which errors ask for again and again.
_listed: WeakKeyDictionary[nn.Module, dict[str, list[Choice]]] = WeakKeyDictionary()


def choices_of(model: nn.Module, name: str) -> list[Choice]:
    """Candidates for one parameter of a model's forward, the likeliest first."""
    known = _listed.setdefault(model, {})
    if name not in known:
        known[name] = _list_choices(model, name)
    return known[name]


def _list_choices(model: nn.Module, name: str) -> list[Choice]:
    parameter = inspect.signature(model.forward).parameters[name]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return _any_number(model, name)
    if parameter.kind is parameter.VAR_KEYWORD and (keys := _list_required_keys(model, name)):
        return _list_container_choices(model, name, dict.fromkeys(keys, False))
    annotation = _resolve_annotation(model, parameter)
    found = _of_type(model, name, annotation) or [*_list_like_queries(model, name), *_of_kind(model, name)]
    if parameter.kind is parameter.VAR_KEYWORD:
        return [each for each in found if isinstance(each.spec, MapSpec)] or [Choice(MapSpec(()), "nothing")]
    if _may_be_none(annotation) and parameter.default is parameter.empty:
        found = [*found[:3], Choice(ConstantSpec(None), f"no {name}"), *found[3:]]
    return found


#: Names of what attention looks up, and of what it looks for.
_ATTENDED = re.compile(r"(k|v|keys?|vals?|values?)(?=_|$)")
_ATTENDING = re.compile(r"(q|query|queries)(?=_|$)")


def _find_queries(model: nn.Module, name: str) -> str | None:
    """The queries beside keys or values of this name; None if there are none."""
    names = inspect.signature(model.forward).parameters if _ATTENDED.match(name.lower()) else ()
    return next((each for each in names if _ATTENDING.match(each.lower())), None)


def _list_like_queries(model: nn.Module, name: str) -> list[Choice]:
    """Keys and values that no layer is given at once are like the queries."""
    queries = _find_queries(model, name)
    if queries is None or first_use(model, Wanted(name)) is not None:
        return []
    return [replace(each, why="like the queries") for each in choices_of(model, queries)[:1]]


#: The errors of annotations whose names only a type checker sees.
_UNREADABLE = (NameError, TypeError, AttributeError, SyntaxError)


def _resolve_annotation(model: nn.Module, parameter: inspect.Parameter) -> Any:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return typing.get_type_hints(model.forward).get(parameter.name, parameter.annotation)
    except _UNREADABLE:  # perhaps of another parameter
        plain = getattr(model.forward, "__func__", model.forward)
        try:
            return eval(parameter.annotation, getattr(plain, "__globals__", {}))
        except _UNREADABLE:
            return parameter.annotation


def _may_be_none(annotation: Any) -> bool:
    return type(None) in typing.get_args(annotation) or "Optional[" in str(annotation)


#: How deep objects inside of objects are made.
MAX_NESTED = 3


def _of_type(model: nn.Module, name: str, annotation: Any, depth: int = 0) -> list[Choice]:
    """Candidates for a parameter annotated as a number, a flag, a word, or one of the user's own classes, or several of
    these in a list."""
    if type_of(annotation) is not None or (not depth and list_compared_words(model, name)):
        values = [*list_compared_words(model, name), *list_scalar_values(name, annotation)]
        return [Choice(ConstantSpec(value), f"{name} = {value!r}, a guess") for value in values]
    given = [each for each in typing.get_args(annotation) if each not in (type(None), Ellipsis)]
    if typing.get_origin(annotation) in (list, tuple, Sequence) and len(set(given)) == 1:
        is_list = typing.get_origin(annotation) is not tuple
        return [
            replace(each, spec=SequenceSpec((each.spec,) * 2, is_list=is_list))
            for each in _of_type(model, name, given[0], depth)
            if isinstance(each.spec, MapSpec | SequenceSpec)
        ]
    if type(None) in typing.get_args(annotation) and len(given) == 1:
        return _of_type(model, name, given[0], depth)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [Choice(ConstantSpec(each), f"{name} = {each}, a guess") for each in annotation]
    kinds = _list_parts_of_class(annotation, depth)
    if kinds is None:
        return []
    parts = [_list_member_choices(model, name, key, kind, depth) for key, kind in kinds.items()]
    rows = _combine_parts(_fit_masks([*kinds], parts))
    if issubclass(annotation, tuple):
        make = partial(_from_members, annotation)
        return [Choice(SequenceSpec(_list_specs(row), build=make), _join_reasons(row)) for row in rows]
    build, made = partial(_from_keys, annotation), f"{annotation.__name__}()"
    specs = [MapSpec(tuple(zip(kinds, _list_specs(row), strict=True)), build) for row in rows]
    return [Choice(spec, _join_reasons(row) or made) for spec, row in zip(specs, rows, strict=True)]


def _list_parts_of_class(annotation: Any, depth: int) -> dict[str, Any] | None:
    """The values, with their annotations, of which an object of one of the user's own classes is made: the fields of a
    dataclass or a named tuple, what a constructor keeps, or other such objects. None for any other class."""
    if not isinstance(annotation, type) or depth > MAX_NESTED or inspect.isabstract(annotation):
        return None
    if dataclasses.is_dataclass(annotation):
        hints = _read_hints(annotation)
        return {each.name: hints.get(each.name, each.type) for each in dataclasses.fields(annotation) if each.init
                and _has_no_default(each)}  # fmt: skip
    if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        hints = _read_hints(annotation)
        return {key: hints.get(key) for key in annotation._fields}
    if not _is_own_class(annotation):
        return None
    hints = _read_hints(inspect.getattr_static(annotation, "__init__"))
    kinds = {each.name: hints.get(each.name, each.annotation) for each in list_required_parameters(annotation)}
    is_made = all(_list_parts_of_class(kind, depth + 1) is not None for kind in kinds.values())
    holds = not issubclass(annotation, nn.Module) and _keeps(annotation, kinds)
    return kinds if is_made or holds else None


def _read_hints(held: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(held)
    except _UNREADABLE:
        return {}


def _is_own_class(annotation: type) -> bool:
    """Is it a class of the person's own with a constructor, and no tensor or container?"""
    if not inspect.isfunction(inspect.getattr_static(annotation, "__init__")):
        return False
    package = annotation.__module__.partition(".")[0]
    if package in ("torch", "numpy", "builtins") or package in sys.stdlib_module_names - {"__main__"}:
        return False
    return not issubclass(annotation, torch.Tensor | dict | list | tuple)


def _keeps(annotation: type, kinds: Mapping[str, Any]) -> bool:
    """Do the objects of a class hold what its constructor is given, such as a batch of images with its mask?"""
    source = Source.of(annotation, inspect.getattr_static(annotation, "__init__"))
    kept: set[str] = set()
    for node in ast.walk(source.node) if source is not None else ():
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = list(zip(targets, values, strict=False))
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                pairs = [(target, value)]
            case _:
                continue
        kept |= {held.id for place, held in pairs if isinstance(place, ast.Attribute) and isinstance(held, ast.Name)}
    return bool(kinds) and kinds.keys() <= kept


def _fit_masks(keys: Sequence[str], parts: list[list[Choice]]) -> list[list[Choice]]:
    """The mask of a batch of images has their sides: it tells which pixels fill them up."""
    images = any(
        isinstance(part[0].spec, TensorSpec) and part[0].spec.dims[-2:] == ("H", "W") for part in parts if part
    )
    filled = Choice(TensorSpec("bool", ("B", "H", "W"), "zeros"), "the pixels that fill up its images")
    return [
        [filled, *part] if images and "mask" in key.lower() else part for key, part in zip(keys, parts, strict=True)
    ]


def _has_no_default(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _from_keys(kind: Callable[..., Any], made: Mapping[str, Any]) -> Any:
    return kind(**made)


def _from_members(kind: Callable[..., Any], made: list[Any]) -> Any:
    return kind(*made)


def _list_member_choices(model: nn.Module, name: str, key: str, kind: Any, depth: int = 0) -> list[Choice]:
    if (word := type_of(kind)) is not None:
        return [
            Choice(ConstantSpec(value), f"{key} = {value!r}")
            for value in list_scalar_values(key, kind) or TYPES[word] or [""]
        ]
    return _of_type(model, key, kind, depth + 1) or leaf_choices(model, key, Wanted(name, key, attribute=True))


def _of_kind(model: nn.Module, name: str) -> list[Choice]:
    """Candidates by the forward's use of a parameter: a dict, several tensors, a list, one tensor."""
    if _is_called(model, name):
        return [Choice(ConstantSpec(give_back), f"a function that gives back what {name} takes")]
    keys = keys_of(model, name)
    if keys or _is_asked_for_keys(model, name):
        return _list_container_choices(model, name, keys)
    if records := _list_record_choices(model, name):
        return records
    if (count := parts_of(model, name)) > 1 and not any(spec.dims[:1] == (count,) for spec in usual_inputs(name)):
        rows = _combine_parts([_list_part_choices(model, name, index) for index in range(count)])
        return [Choice(SequenceSpec(_list_specs(row)), _join_reasons(row)) for row in rows]
    if (read := _read_by_number(model, name)) is not None:
        return [
            Choice(SequenceSpec(_list_specs(row), is_list=True), _join_reasons(row)) for row in _combine_parts(read)
        ]
    if STATE.search(name.lower()) and hidden_states(model):
        return leaf_choices(model, name, Wanted(name))
    maps, walked = _list_told_maps(model, name), _walked_with(model, name)
    if maps or walked:
        return [*maps, *walked, *(leaf_choices(model, name, Wanted(name)) if not walked else ())]
    if makes_tensor(model, name) == "from_numpy":
        return [replace(each, spec=SequenceSpec((each.spec,), build=as_array)) for each in _list_tensors(model, name)]
    if listed := _read_alone(model, name):
        return [*listed, *leaf_choices(model, name, Wanted(name))]
    if (count := _count_listed_tensors(model, name)) > 0:
        wanted = Wanted(name, 0) if _read_numbers(model, name) else Wanted(name)
        lists = [
            Choice(SequenceSpec((choice.spec,) * length, is_list=True), f"a list, {choice.why}")
            for length, choice in itertools.product((count, 1, 4), leaf_choices(model, name, wanted)[:6])
        ]
        # A parameter that is only iterated over may be one tensor too.
        return lists[:1] + leaf_choices(model, name, wanted)[:1] + lists[1:]
    return _list_handed_on(model, name) or leaf_choices(model, name, Wanted(name))


def _list_handed_on(model: nn.Module, name: str) -> list[Choice]:
    """The dict, list or pair that a module of the person's own reads, if a forward only hands the parameter to it."""
    source = Source.of(model, model.forward)
    nodes = list(ast.walk(source.node)) if source is not None else []
    if sum(isinstance(node, ast.Name) and node.id == name for node in nodes) != 1:
        return []
    for node in nodes:
        held = source.resolve(node.func) if source is not None and isinstance(node, ast.Call) else None
        inner = find_innermost(held) if isinstance(held, nn.Module) and held is not model else None
        if not isinstance(node, ast.Call) or not isinstance(inner, nn.Module) or not has_function(inner):
            continue
        names = list(inspect.signature(inner.forward).parameters)
        given = [*zip(names, node.args, strict=False), *((each.arg, each.value) for each in node.keywords)]
        for parameter, argument in given:
            if parameter in names and _is_name(argument, name):
                found = choices_of(inner, parameter)
                return found if not isinstance(found[0].spec, TensorSpec | ConstantSpec) else []
    return []


#: Functions of torch that make a tensor of an array.
_MAKING = frozenset({"from_numpy", "LongTensor", "IntTensor", "FloatTensor", "tensor", "as_tensor"})


def makes_tensor(model: nn.Module, name: str) -> str:
    """The function of torch by which a forward makes a tensor of a parameter; "" if there is none."""
    source = Source.of(model, model.forward)
    for node in ast.walk(source.node) if source else ():
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=made), args=[ast.Name(id=given), *_]):
                if given == name and made in _MAKING:
                    return made
    return ""


def _list_tensors(model: nn.Module, name: str) -> list[Choice]:
    return [each for each in leaf_choices(model, name, Wanted(name)) if isinstance(each.spec, TensorSpec)]


def give_back(value: Any, *more: Any, **options: Any) -> Any:
    """The function for a forward that is handed one."""
    return value


def _is_called(model: nn.Module, name: str) -> bool:
    """Does a forward call a parameter?"""
    source = Source.of(model, model.forward)
    calls = (node for node in ast.walk(source.node) if isinstance(node, ast.Call)) if source else ()
    return any(_is_name(node.func, name) for node in calls)


def _list_part_choices(model: nn.Module, name: str, index: int) -> list[Choice]:
    """Candidates for the value unpacked from a parameter at an index; a pair in it may be the state of an LSTM."""
    target = target_of(model, name, index)
    if isinstance(target, ast.Tuple | ast.List):
        states = [each for each in hidden_states(model) if isinstance(each, SequenceSpec)]
        members = [leaf_choices(model, ast.unparse(each), Wanted(ast.unparse(each))) for each in target.elts]
        inner = [Choice(SequenceSpec(_list_specs(row)), _join_reasons(row)) for row in _combine_parts(members)]
        return [*(Choice(each, "the state of its recurrent layer") for each in states), *inner]
    if isinstance(target, ast.Name) and (keys := keys_of(model, target.id)):
        return _list_container_choices(model, target.id, keys)
    found = leaf_choices(model, target.id if isinstance(target, ast.Name) else f"{name}{index}", Wanted(name, index))
    guessed = all(choice.why.endswith("a guess") for choice in found)
    return [*(Choice(spec, f"by its name {name!r}") for spec in usual_inputs(name) if guessed), *found]


def _read_by_number(model: nn.Module, name: str) -> list[list[Choice]] | None:
    """Candidates for the members of a list, if each that is read by its index goes to a layer of its own."""
    count = members_of(model, name)
    if count < 2 or any(spec.dims[:1] == (count,) for spec in usual_inputs(name)):
        return None
    read = _read_numbers(model, name)
    uses = {index: use for index in read if (use := first_use(model, Wanted(name, index))) is not None}
    if len({use.path for use in uses.values()}) < len(read):
        return None
    parts = {index: list_consumer_choices(use) or list_any_choices() for index, use in uses.items()}
    return [parts.get(index) or [Choice(ConstantSpec(None), "not read")] for index in range(count)]


def _read_alone(model: nn.Module, name: str) -> list[Choice]:
    """A list, if nothing is read of a parameter but members, each by its number."""
    source, count = Source.of(model, model.forward), members_of(model, name)
    if source is None or not count or any(spec.dims[:1] == (count,) for spec in usual_inputs(name)):
        return []
    names: dict[int, str] = {}
    read = 0
    for node in ast.walk(source.node):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                names |= dict(_named_members(name, targets, values))
            case ast.Assign(targets=[target], value=value):
                names |= dict(_named_members(name, [target], [value]))
            case ast.Subscript(value=held, slice=ast.Constant(value=int())) if _is_name(held, name):
                read += 1
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(source.node))
    if read < uses or not names:
        return []
    parts = [leaf_choices(model, names.get(index, f"{name}{index}"), Wanted(name, index)) for index in range(count)]
    return [Choice(SequenceSpec(_list_specs(row), is_list=True), _join_reasons(row)) for row in _combine_parts(parts)]


def _named_members(name: str, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> Iterator[tuple[int, str]]:
    """`text, aspect = inputs[0], inputs[1]`: the names that members get."""
    for target, value in zip(targets, values, strict=False):
        match target, value:
            case ast.Name(id=given), ast.Subscript(value=held, slice=ast.Constant(value=int(index))):
                if _is_name(held, name):
                    yield index, given


def _walked_with(model: nn.Module, name: str) -> list[Choice]:
    """One member for each layer of a list over which the forward iterates together with the parameter."""
    uses = walked_uses(model, name)
    parts = [list_consumer_choices(use) for use in uses.values()]
    if not parts or not all(parts):
        return []
    rows = _combine_parts(parts)
    if all(isinstance(key, str) for key in uses):
        keys = [str(key) for key in uses]
        return [Choice(MapSpec(tuple(zip(keys, _list_specs(row), strict=True))), _join_reasons(row)) for row in rows]
    return [
        Choice(SequenceSpec(halve_scales(_list_specs(row)), is_list=True), f"a list, {_join_reasons(row)}")
        for row in rows
    ]


#: Names of lists with the channels of each map.
_CHANNEL_LIST = re.compile(r"ch(an(nel)?)?s?(_|$)|dims|planes|widths?|filters|feat(ure)?s?(_|$)|in_(features|dims)")


def _list_told_maps(model: nn.Module, name: str) -> list[Choice]:
    """A list of maps with the channels that a constructor's list has, if members are read from the end, by a
    variable or in a loop."""
    source = Source.of(model, model.forward)
    nodes = list(ast.walk(source.node)) if source else []
    reads = [node.slice for node in nodes if isinstance(node, ast.Subscript) and _is_name(node.value, name)]
    loops = any(isinstance(node, ast.For | ast.comprehension) and _is_name(node.iter, name) for node in nodes)
    if not loops and not any(isinstance(each, ast.UnaryOp | ast.Name | ast.BinOp) for each in reads):
        return []
    if any(isinstance(each, ast.Slice | ast.Tuple) for each in reads):
        return []
    for key, value in arguments_of(model).items():
        value = value.tolist() if type(value).__module__ == "numpy" else value
        sizes = list(value) if isinstance(value, list | tuple) else []
        if _CHANNEL_LIST.search(key) and len(sizes) > 1 and all(type(size) is int for size in sizes):
            grows = sizes[0] <= sizes[-1]
            maps = halve_scales(
                [TensorSpec("f32", ("B", size, "H", "W")) for size in (sizes if grows else sizes[::-1])]
            )
            return [Choice(SequenceSpec(maps if grows else maps[::-1], is_list=True), f"a map for each of its {key}")]
    return []


def halve_scales(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    """Maps of several scales: each half as large as the one before."""
    maps = [spec for spec in specs if isinstance(spec, TensorSpec) and spec.dims[-2:] == ("H", "W")]
    if len(maps) != len(specs):
        return tuple(specs)
    sides = [64 // 2**index for index in range(len(maps))]
    return tuple(replace(spec, dims=(*spec.dims[:2], side, side)) for spec, side in zip(maps, sides, strict=True))


def _any_number(model: nn.Module, name: str) -> list[Choice]:
    """`*inputs`: as many as are unpacked or read by index, else two, then one; like the first parameter, if any."""
    before = [each for each in inspect.signature(model.forward).parameters if each != name][:1]
    others = Inputs({each: choices_of(model, each)[0].spec for each in before}) if before else None
    counts = dict.fromkeys([parts_of(model, name) or members_of(model, name) or 2, 1, 3])
    return [
        Choice(SequenceSpec(_list_specs(row)), _join_reasons(row))
        for count in counts
        for row in _combine_parts(
            [leaf_choices(model, f"{name}{index}", Wanted(name, index), others) for index in range(count)]
        )[:4]
    ]


def _count_listed_tensors(model: nn.Module, name: str) -> int:
    """The number of tensors in a parameter, by its annotation or by the parts read of it; 0 if it is no list."""
    annotation = inspect.signature(model.forward).parameters[name].annotation
    text = annotation if isinstance(annotation, str) else str(annotation)
    return 2 if re.search(r"(?i)\b(list|sequence|iterable)\[.*tensor", text) else 0


def _list_container_choices(model: nn.Module, name: str, keys: Mapping[str, bool]) -> list[Choice]:
    parts = [leaf_choices(model, key, Wanted(name, key, attribute)) for key, attribute in keys.items()]
    parts = _fit_masks([*keys], parts)
    build = Record if any(keys.values()) else None
    return [
        Choice(MapSpec(tuple(zip(keys, _list_specs(row), strict=True)), build), _join_reasons(row))
        for row in _combine_parts(parts)
    ]


def _list_record_choices(model: nn.Module, name: str) -> list[Choice]:
    """Two records, if a loop over a parameter reads keys or attributes of each member."""
    source = Source.of(model, model.forward)
    keys: dict[str, bool] = {}
    for node in ast.walk(source.node) if source is not None else ():
        match node:
            case (
                ast.For(target=ast.Name(id=member), iter=over)
                | ast.comprehension(target=ast.Name(id=member), iter=over)
            ) if _is_name(over, name) and source is not None:
                keys |= _keys_in(source, member)
    if not keys:
        return []
    rows = _list_container_choices(model, name, keys)
    return [replace(each, spec=SequenceSpec((_of_one_sample(each.spec),) * 2, is_list=True)) for each in rows]


def _of_one_sample(spec: Spec, first: Dim = "B") -> Spec:
    """A member of a list is one sample: it has no batch. first: the dimension of what each sample has one of."""
    if isinstance(spec, MapSpec):
        counted = any(isinstance(item, TensorSpec) and item.dims[:2] == ("B", "N") for _, item in spec.items)
        parts = ((key, _of_one_sample(item, "N" if counted else "B")) for key, item in spec.items)
        return replace(spec, items=tuple(parts))  # a label for each of its boxes
    if isinstance(spec, TensorSpec) and spec.dims[:1] == ("B",):
        return replace(spec, dims=spec.dims[1:] or (first,))
    return spec


def _combine_parts(parts: list[list[Choice]]) -> list[tuple[Choice, ...]]:
    """Combinations of the parts of a container, early ones first."""
    ranks = itertools.product(*(range(min(3, len(part))) for part in parts))
    ordered = sorted(itertools.islice(ranks, MAX_ROWS), key=sum)
    return [tuple(part[rank] for part, rank in zip(parts, ranking, strict=True)) for ranking in ordered]


def _list_specs(row: tuple[Choice, ...]) -> tuple[Spec, ...]:
    return tuple(choice.spec for choice in row)


def _join_reasons(row: tuple[Choice, ...]) -> str:
    return ", ".join(dict.fromkeys(choice.why for choice in row))


# Reading a forward's source: the parts of a parameter that it reads, and the layers that it iterates over with it.


def keys_of(model: nn.Module, name: str) -> dict[str, bool]:
    """The string keys (False) and attributes (True) that forward reads from a parameter, in order."""
    source = Source.of(model, model.forward)
    return _keys_in(source, name) if source else {}


def _is_asked_for_keys(model: nn.Module, name: str) -> bool:
    """Does forward ask whether a parameter has an entry that it then reads?"""
    source = Source.of(model, model.forward)
    asked = _list_asked_keys(source) if source else ()
    return any(
        isinstance(node, ast.Subscript) and _is_name(node.value, name) and getattr(node.slice, "value", None) in asked
        for node in (ast.walk(source.node) if asked and source else ())
    )


def _keys_in(source: Source, name: str) -> dict[str, bool]:
    """The same for any variable, without what the code asks for first: that may be absent."""
    found: dict[str, bool] = {}
    asked = _list_asked_keys(source)
    uses = reads = stores = returns = 0
    for node in in_order(source.node):
        match node:
            case ast.Name(id=owner, ctx=ast.Load()) if owner == name:
                uses += 1
            case ast.Return(value=ast.Name(id=owner)) if owner == name:
                returns += 1
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id=owner), ast.Constant(value=key)]):
                if owner == name:
                    asked.add(key)
                    reads += 1
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[held]) if _is_name(held, name):
                reads += 1
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key))) if owner == name:
                found.setdefault(key, False)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner), attr="get" | "pop"),
                args=[ast.Constant(value=str(key)), *_],
            ):
                if owner == name:
                    found.setdefault(key, False)
            case ast.Attribute(value=ast.Name(id=owner), ctx=ast.Store()) if owner == name:
                stores += 1
            case ast.Attribute(value=ast.Name(id=owner), attr=key) if owner == name and not _is_common(key):
                found.setdefault(key, True)
                reads += 1
    # A parameter that is also used as a whole is a tensor, and its unknown attribute a mistake; but what is changed may
    # be given back: `data.x = x; return data`.
    reads += stores + returns * bool(stores)
    return {key: kind for key, kind in found.items() if key not in asked and (not kind or reads == uses)}


def _list_asked_keys(source: Source) -> set[object]:
    """The keys for which a function asks (`"mask" in batch`), but for those that it insists on."""
    asked, insisted = set[object](), set[object]()
    for node in ast.walk(source.node):
        match node:
            case ast.Compare(left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()]):
                asked.add(key)
            case ast.Assert(test=test) | ast.If(test=test, body=[ast.Raise(), *_]):
                insisted |= {each.value for each in ast.walk(test) if isinstance(each, ast.Constant)}
    return asked - insisted


def _list_required_keys(model: nn.Module, name: str) -> list[str]:
    """The keys that forward reads from a parameter without a default and without asking whether they are there."""
    source = Source.of(model, model.forward)
    read = dict[str, None]()
    for node in ast.walk(source.node) if source else ():
        match node:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                if owner == name:
                    read[key] = None
    asked = _list_asked_keys(source) if source else ()
    return [key for key in read if key not in asked]


def _is_common(attribute: str) -> bool:
    """Has every tensor, or every dict, such an attribute?"""
    return hasattr(torch.Tensor, attribute) or hasattr(dict, attribute)


def members_of(model: nn.Module, name: str) -> int:
    """The number of members of a parameter that forward reads by index (`xs[0]`, `xs[1]`); 0 if it reads none."""
    return max(_read_numbers(model, name), default=-1) + 1


def _read_numbers(model: nn.Module, name: str) -> list[int]:
    """The members of a parameter that forward reads by their number."""
    source = Source.of(model, model.forward)
    found = set[int]()
    for node in ast.walk(source.node) if source else ():
        match node:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=int(index))) if owner == name:
                found.add(index)
    return sorted(found)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def parts_of(model: nn.Module, name: str) -> int:
    """The number of values that forward unpacks from a parameter (`a, b = pair`), with those before them; else 0."""
    return next((first + len(targets) for first, targets in _iterate_unpackings(model, name)), 0)


def target_of(model: nn.Module, name: str, index: int) -> ast.expr | None:
    """The target into which forward unpacks a member of a parameter (`a, (b, c) = pair`); None if it does not."""
    first, targets = next(_iterate_unpackings(model, name), (0, []))
    return targets[index - first] if first <= index < first + len(targets) else None


def _iterate_unpackings(model: nn.Module, name: str) -> Iterator[tuple[int, list[ast.expr]]]:
    """The first member that is unpacked, and the targets: 0 for `a, b = pair`, 6 for `a, b = inputs[6:]`.

    A value that is unpacked only if it is a tuple may be a tensor as well, and is none of these.
    """
    source = Source.of(model, model.forward)
    nodes = list(iterate_run(source)) if source else []
    doubtful = {
        id(each) for node in nodes if _tells_tuples(node, name) for part in node.body for each in ast.walk(part)
    }
    for node in (node for node in nodes if id(node) not in doubtful):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Name(id=owner)) if owner == name:
                yield 0, targets
            case ast.Assign(
                targets=[ast.Tuple(elts=targets)], value=ast.Subscript(value=ast.Name(id=owner), slice=rest)
            ):
                first = _get_start(rest)
                if owner == name and first is not None:
                    yield first, targets


def _tells_tuples(node: ast.AST, name: str) -> TypeGuard[ast.If]:
    """Is it `if type(pair) is tuple:` or `if isinstance(pair, (tuple, list)):`, for a parameter of this name?"""
    match node:
        case ast.If(test=ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=asked), kinds])):
            pass
        case ast.If(test=ast.Compare(left=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=asked)]),
                                     ops=[ast.Is() | ast.Eq()], comparators=[kinds])):  # fmt: skip
            pass
        case _:
            return False
    told = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
    return asked == name and {ast.unparse(each) for each in told} <= {"tuple", "list", "Tuple", "List"}


def _get_start(rest: ast.expr) -> int | None:
    """The 6 of `[6:]`; None for any other index."""
    match rest:
        case ast.Slice(lower=ast.Constant(value=int(first)), upper=None, step=None) if 0 <= first <= MAX_SKIPPED:
            return first
    return None
