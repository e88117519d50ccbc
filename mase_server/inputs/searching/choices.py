"""Candidates for each input of a forward: by its annotation, by what is read of it, else as one tensor."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import typing
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from mase_server.inputs.library.huggingface import LABEL_NAMES, library_choices
from mase_server.inputs.making.names import usual_inputs
from mase_server.inputs.searching.accesses import keys_of, members_of, parts_of, reads_members, target_of, walked_with
from mase_server.inputs.searching.consumers import hidden_states
from mase_server.inputs.searching.forward import Use, Wanted, first_use, innermost
from mase_server.inputs.searching.scalars import TYPES, scalars, type_of, words
from mase_server.inputs.searching.singles import Choice, anything, leaf_choices, reasons
from mase_server.inputs.spec import ConstantSpec, Inputs, MapSpec, SequenceSpec, Spec, TensorSpec

MAX_ROWS = 200


class Record(dict[str, Any]):
    """What is read both by keys and by attributes, as a batch of a tokenizer or of a graph library."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            ) from None


def guesses_for(model: nn.Module, name: str, key: str, others: Inputs) -> list[Spec]:
    """Candidates for a member of something handed over. name: the parameter that holds it; empty where none does."""
    return [choice.spec for choice in leaf_choices(model, key, Wanted(name, key), others)]


def new_guesses(model: nn.Module, name: str, others: Inputs) -> list[Spec]:
    """Candidates for what a forward unpacks into a local name."""
    return [choice.spec for choice in leaf_choices(model, name, Wanted(name), others)]


def choices_for(model: nn.Module, more: Set[str] = frozenset()) -> dict[str, list[Choice]]:
    """Candidates for each parameter that has to be given, and for `more` of them."""
    library = from_library(model)
    if library:
        return library[0]
    if isinstance(model, nn.Sequential):
        first = innermost(model)
        return {"input": reasons(Use(first, type(first).__name__)) or anything()}
    return {each.name: choices_of(model, each.name) for each in _needed(model, more)}


def from_library(model: nn.Module) -> list[dict[str, list[Choice]]]:
    """Whole sets of inputs of a Hugging Face model, the likeliest first."""
    return [
        {name: [Choice(spec, "as its configuration says")] for name, spec in found.items()}
        for found in library_choices(model)
    ]


def _needed(model: nn.Module, more: Set[str] = frozenset()) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = list(inspect.signature(model.forward).parameters.values())
    plain = [each for each in parameters if each.kind not in variable]
    required = [each for each in plain if each.default is each.empty or each.name in more]
    # A forward whose inputs are all optional still wants its first one.
    return required or [each for each in plain if each.name not in LABEL_NAMES][:1] or parameters[:1]


def choices_of(model: nn.Module, name: str) -> list[Choice]:
    """Candidates for one parameter of a model's forward, the likeliest first."""
    parameter = inspect.signature(model.forward).parameters[name]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return _any_number(model, name)
    annotation = _annotation(model, parameter)
    found = _of_type(model, name, annotation) or _of_kind(model, name)
    if parameter.kind is parameter.VAR_KEYWORD:
        return [each for each in found if isinstance(each.spec, MapSpec)] or [Choice(MapSpec(()), "nothing")]
    if _may_be_none(annotation) and parameter.default is parameter.empty:
        found = [*found[:3], Choice(ConstantSpec(None), f"no {name}"), *found[3:]]
    return found


def _annotation(model: nn.Module, parameter: inspect.Parameter) -> Any:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return typing.get_type_hints(model.forward).get(parameter.name, parameter.annotation)
    except (NameError, TypeError, AttributeError, SyntaxError):  # names that only a type checker sees
        return parameter.annotation


def _may_be_none(annotation: Any) -> bool:
    return type(None) in typing.get_args(annotation) or "Optional[" in str(annotation)


def _of_type(model: nn.Module, name: str, annotation: Any) -> list[Choice]:
    """Candidates for what is annotated as a number, a flag, a word, or one of the person's own records."""
    if type_of(annotation) is not None or words(model, name):
        values = [*words(model, name), *scalars(name, annotation)]
        return [Choice(ConstantSpec(value), f"{name} = {value!r}, a guess") for value in values]
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        members = [(each.name, each.type) for each in dataclasses.fields(annotation) if _has_no_default(each)]
        rows = _rows([_member(model, name, key, kind, attribute=True) for key, kind in members])
        keys = [key for key, _ in members]
        build = partial(_from_keys, annotation)
        return [Choice(MapSpec(tuple(zip(keys, _specs(row), strict=True)), build), _why(row)) for row in rows]
    if isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        kinds = getattr(annotation, "__annotations__", {})
        rows = _rows([_member(model, name, key, kinds.get(key), attribute=True) for key in annotation._fields])
        make = partial(_from_members, annotation)
        return [Choice(SequenceSpec(_specs(row), build=make), _why(row)) for row in rows]
    return []


def _has_no_default(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING


def _from_keys(kind: Callable[..., Any], made: dict[str, Any]) -> Any:
    return kind(**made)


def _from_members(kind: Callable[..., Any], made: list[Any]) -> Any:
    return kind(*made)


def _member(model: nn.Module, name: str, key: str, kind: Any, attribute: bool = False) -> list[Choice]:
    if (word := type_of(kind)) is not None:
        return [
            Choice(ConstantSpec(value), f"{key} = {value!r}") for value in scalars(key, kind) or TYPES[word] or [""]
        ]
    return leaf_choices(model, key, Wanted(name, key, attribute))


def _of_kind(model: nn.Module, name: str) -> list[Choice]:
    """Candidates by what the forward does with a parameter: a dict, several tensors, a list, one tensor."""
    keys = keys_of(model, name)
    if keys:
        return _containers(model, name, keys)
    if (count := parts_of(model, name)) > 1 and not any(spec.dims[:1] == (count,) for spec in usual_inputs(name)):
        rows = _rows([_part(model, name, index) for index in range(count)])
        return [Choice(SequenceSpec(_specs(row)), _why(row)) for row in rows]
    if (read := _read_by_number(model, name)) is not None:
        return [Choice(SequenceSpec(_specs(row), is_list=True), _why(row)) for row in _rows(read)]
    if (count := _listed(model, name)) > 0:
        wanted = Wanted(name, 0) if reads_members(model, name) else Wanted(name)
        lists = [
            Choice(SequenceSpec((choice.spec,) * length, is_list=True), f"a list, {choice.why}")
            for length, choice in itertools.product((count, 1, 4), leaf_choices(model, name, wanted)[:6])
        ]
        # What is only iterated over may be one tensor too.
        return lists[:1] + leaf_choices(model, name, wanted)[:1] + lists[1:]
    if walked := _walked_with(model, name):
        return walked
    return leaf_choices(model, name, Wanted(name))


def _part(model: nn.Module, name: str, index: int) -> list[Choice]:
    """Candidates for what is unpacked from a parameter at a place; a pair in it may be the state of an LSTM."""
    target = target_of(model, name, index)
    if isinstance(target, ast.Tuple | ast.List):
        states = [each for each in hidden_states(model) if isinstance(each, SequenceSpec)]
        members = [leaf_choices(model, ast.unparse(each), Wanted(ast.unparse(each))) for each in target.elts]
        inner = [Choice(SequenceSpec(_specs(row)), _why(row)) for row in _rows(members)]
        return [*(Choice(each, "the state of its recurrent layer") for each in states), *inner]
    return leaf_choices(model, target.id if isinstance(target, ast.Name) else f"{name}{index}", Wanted(name, index))


def _read_by_number(model: nn.Module, name: str) -> list[list[Choice]] | None:
    """Candidates for the members of a list, where each that is read by its number goes to a layer of its own."""
    count = members_of(model, name)
    if count < 2 or any(spec.dims[:1] == (count,) for spec in usual_inputs(name)):
        return None
    uses = [first_use(model, Wanted(name, index)) for index in range(count)]
    if len({use.path for use in uses if use is not None}) < count:
        return None
    return [reasons(use) or anything() for use in uses if use is not None]


def _walked_with(model: nn.Module, name: str) -> list[Choice]:
    """A member for each layer of a list that the forward goes through together with the parameter."""
    layers = walked_with(model, name)
    parts = [reasons(Use(innermost(layer), name)) for layer in layers.values()]
    if not parts or not all(parts):
        return []
    rows = _rows(parts)
    if all(isinstance(key, str) for key in layers):
        keys = [str(key) for key in layers]
        return [Choice(MapSpec(tuple(zip(keys, _specs(row), strict=True))), _why(row)) for row in rows]
    return [Choice(SequenceSpec(halving(_specs(row)), is_list=True), f"a list, {_why(row)}") for row in rows]


def halving(specs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """Maps of several scales: each half as large as the one before."""
    maps = [spec for spec in specs if isinstance(spec, TensorSpec) and spec.dims[-2:] == ("H", "W")]
    if len(maps) != len(specs):
        return specs
    sides = [64 // 2**index for index in range(len(maps))]
    return tuple(replace(spec, dims=(*spec.dims[:2], side, side)) for spec, side in zip(maps, sides, strict=True))


def _any_number(model: nn.Module, name: str) -> list[Choice]:
    """`*inputs`: as many as are unpacked or read by number, else two, then one."""
    counts = dict.fromkeys([parts_of(model, name) or members_of(model, name) or 2, 1, 3])
    return [
        Choice(SequenceSpec(_specs(row)), _why(row))
        for count in counts
        for row in _rows([leaf_choices(model, f"{name}{index}", Wanted(name, index)) for index in range(count)])[:4]
    ]


def _listed(model: nn.Module, name: str) -> int:
    """How many tensors a parameter lists, by its annotation or by what is read of it; 0 where it is no list."""
    annotation = inspect.signature(model.forward).parameters[name].annotation
    text = annotation if isinstance(annotation, str) else str(annotation)
    return 2 if re.search(r"(?i)\b(list|sequence|iterable)\[.*tensor", text) else 0


def _containers(model: nn.Module, name: str, keys: Mapping[str, bool]) -> list[Choice]:
    parts = [leaf_choices(model, key, Wanted(name, key, attribute)) for key, attribute in keys.items()]
    build = Record if any(keys.values()) else None
    return [Choice(MapSpec(tuple(zip(keys, _specs(row), strict=True)), build), _why(row)) for row in _rows(parts)]


def _rows(parts: list[list[Choice]]) -> list[tuple[Choice, ...]]:
    """Combinations of the parts of a container, early ones first."""
    ranks = itertools.product(*(range(min(3, len(part))) for part in parts))
    ordered = sorted(itertools.islice(ranks, MAX_ROWS), key=sum)
    return [tuple(part[rank] for part, rank in zip(parts, ranking, strict=True)) for ranking in ordered]


def _specs(row: tuple[Choice, ...]) -> tuple[Spec, ...]:
    return tuple(choice.spec for choice in row)


def _why(row: tuple[Choice, ...]) -> str:
    return ", ".join(dict.fromkeys(choice.why for choice in row))
