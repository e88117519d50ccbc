"""Inputs by search: candidates from what each parameter meets first, tried until a forward succeeds."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from torch import nn

from mase_server.inputs.consumers import ANYTHING, candidates, size_choices
from mase_server.inputs.failures import Furthest
from mase_server.inputs.forward import Use, Wanted, first_use, innermost, keys_of, parts_of
from mase_server.inputs.found import Hooks, call_arguments
from mase_server.inputs.generate import complete, inputs_at
from mase_server.inputs.huggingface import LABEL_NAMES, library_inputs
from mase_server.inputs.modes import on_meta
from mase_server.inputs.names import usual_inputs
from mase_server.inputs.spec import Inputs, MapSpec, SequenceSpec, Spec, TensorSpec, leaves
from mase_server.inputs.text import write
from mase_server.inputs.trouble import tried
from mase_server.tracing.problems import describe

MAX_ATTEMPTS = 200
MAX_SECONDS = 10.0
#: Combinations of candidates that are put in order before any is tried.
MAX_COMBINATIONS = 4000
DEFAULT_VOCABULARY = 10


@dataclass(frozen=True, slots=True)
class Searched:
    """spec: inputs with which the forward succeeds, None when none was found. how: one sentence. example: a text.

    likely: inputs that get as far as any, where all that get so far meet the same error: it is the forward's own.
    errors: what those that got furthest met, one of each kind.
    """

    spec: Inputs | None
    how: str
    example: str
    likely: Inputs | None = None
    errors: tuple[BaseException, ...] = ()


@dataclass(frozen=True, slots=True)
class _Choice:
    """One candidate for one parameter, and why."""

    spec: Spec
    why: str


def search(
    model: nn.Module, hooks: Hooks, attempts: int = MAX_ATTEMPTS, seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Searched:  # fmt: skip
    """Look for inputs with which the model's forward succeeds, in at most so many attempts and seconds."""
    end, mode = clock() + seconds, model.training
    model.train(False)
    errors: list[str] = []
    example, furthest = "", Furthest()
    try:
        for inputs, why in itertools.islice(_tries(model), attempts):
            example = example or write(inputs)
            with furthest.counting():
                error = _attempt(model, inputs, hooks)
            if error is None:
                return Searched(inputs, f"found by search: {why}", write(inputs))
            errors.append(describe(error))
            furthest.failed(inputs, error)
            if clock() > end or furthest.is_certain():
                break
    finally:
        model.train(mode)
    how = f"{len(errors)} tries failed ({tried(errors)})"
    return Searched(None, how, example or "x: f32[1, 3, 224, 224]", furthest.likely(), furthest.errors())


def _attempt(model: nn.Module, inputs: Inputs, hooks: Hooks) -> BaseException | None:
    values = on_meta(inputs_at(inputs), hooks.shadows)
    args, kwargs = call_arguments(model, values)
    return hooks.attempt(model, args, kwargs)


def works(model: nn.Module, inputs: Inputs, hooks: Hooks) -> bool:
    """Does the forward succeed with these inputs?"""
    try:
        return _attempt(model, inputs, hooks) is None
    except (TypeError, ValueError):  # inputs of another signature
        return False


def _tries(model: nn.Module) -> Iterator[tuple[Inputs, str]]:
    """Inputs to try, the likeliest first: early candidates at early sizes."""
    choices = choices_for(model)
    ranks = itertools.product(*(range(len(each)) for each in choices.values()))
    combinations = sorted(itertools.islice(ranks, MAX_COMBINATIONS), key=sum)
    waiting: list[tuple[int, int, dict[str, _Choice], dict[str, int]]] = []
    for order, ranking in enumerate(combinations):
        picked = {name: each[rank] for (name, each), rank in zip(choices.items(), ranking, strict=True)}
        symbols = {symbol for choice in picked.values() for symbol in _symbols(choice.spec)}
        sizes = size_choices(symbols)
        waiting += [(sum(ranking) + index, order, picked, size) for index, size in enumerate(sizes)]
    for _, _, picked, size in sorted(waiting, key=lambda each: each[:2]):
        yield _inputs(picked, size), "; ".join(f"{name} = {choice.why}" for name, choice in picked.items())


def _symbols(spec: Spec) -> set[str]:
    return {dim for leaf in leaves(spec) for dim in leaf.dims if isinstance(dim, str)}


def _inputs(picked: Mapping[str, _Choice], size: Mapping[str, int]) -> Inputs:
    entries = {name: choice.spec for name, choice in picked.items()}
    used = Inputs(entries).symbols()
    return complete(Inputs(entries, {name: value for name, value in size.items() if name in used}))


def choices_for(model: nn.Module) -> dict[str, list[_Choice]]:
    """Candidates for each parameter that has to be given."""
    library = library_inputs(model)
    if library is not None:
        return {name: [_Choice(spec, "as its configuration says")] for name, spec in library.items()}
    if isinstance(model, nn.Sequential):
        first = innermost(model)
        return {"input": _reasons(Use(first, type(first).__name__)) or _anything()}
    return {each.name: _choices(model, each.name) for each in _needed(model)}


def _needed(model: nn.Module) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in inspect.signature(model.forward).parameters.values() if each.kind not in variable]
    required = [each for each in parameters if each.default is each.empty]
    # A forward whose inputs are all optional still wants its first one.
    return required or [each for each in parameters if each.name not in LABEL_NAMES][:1]


def _choices(model: nn.Module, name: str) -> list[_Choice]:
    keys = keys_of(model, name)
    if keys:
        return _containers(model, name, keys)
    if (count := parts_of(model, name)) > 1:
        parts = [_leaf(model, f"{name}{index}", Wanted(name, index)) for index in range(count)]
        return [_Choice(SequenceSpec(tuple(part.spec for part in row)), _why(row)) for row in _rows(parts)]
    return _leaf(model, name, Wanted(name))


def _containers(model: nn.Module, name: str, keys: Mapping[str, bool]) -> list[_Choice]:
    parts = [_leaf(model, key, Wanted(name, key, attribute)) for key, attribute in keys.items()]
    build = (lambda made: SimpleNamespace(**made)) if any(keys.values()) else None
    return [
        _Choice(MapSpec(tuple(zip(keys, (part.spec for part in row), strict=True)), build), _why(row))
        for row in _rows(parts)
    ]


def _rows(parts: list[list[_Choice]]) -> list[tuple[_Choice, ...]]:
    """Combinations of the parts of a container, early ones first."""
    ranks = itertools.product(*(range(min(3, len(part))) for part in parts))
    ordered = sorted(itertools.islice(ranks, MAX_ATTEMPTS), key=sum)
    return [tuple(part[rank] for part, rank in zip(parts, ranking, strict=True)) for ranking in ordered]


def _why(row: tuple[_Choice, ...]) -> str:
    return ", ".join(dict.fromkeys(choice.why for choice in row))


def _leaf(model: nn.Module, name: str, wanted: Wanted) -> list[_Choice]:
    """Candidates for one tensor: by its first consumer, by its name, then anything."""
    by_name = [_Choice(_closed(spec, model), f"by its name {name!r}") for spec in usual_inputs(name)]
    use = first_use(model, wanted)
    by_use = _reasons(use) if use is not None else []
    special = any(word in name.lower() for word in ("mask", "len", "edge", "adj"))
    ordered = by_name + by_use if special else by_use + by_name
    return _unique(ordered) or _anything()


def _reasons(use: Use) -> list[_Choice]:
    found = candidates(use.layer)
    if use.dims:
        found = sorted(found, key=lambda spec: len(spec.dims) != use.dims)
    return [_Choice(spec, f"{_shape(spec)}, first consumer {use.path}") for spec in found]


def _anything() -> list[_Choice]:
    return [_Choice(spec, f"{_shape(spec)}, a guess") for spec in ANYTHING]


def _shape(spec: TensorSpec) -> str:
    kind = "tensor" if spec.dims[-2:] != ("H", "W") else ("video" if "D" in spec.dims else "image")
    return f"{kind} [{', '.join(map(str, spec.dims))}]"


def _closed(spec: TensorSpec, model: nn.Module) -> TensorSpec:
    """The candidate with the model's own vocabulary in place of `V`."""
    if spec.argument != "V" and "V" not in spec.dims:
        return spec
    tables = [part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)]
    count = tables[0] if tables else DEFAULT_VOCABULARY
    dims = tuple(count if dim == "V" else dim for dim in spec.dims)
    return replace(spec, dims=dims, argument=count if spec.argument == "V" else spec.argument)


def _unique(choices: list[_Choice]) -> list[_Choice]:
    seen: dict[Any, _Choice] = {}
    for choice in choices:
        seen.setdefault(choice.spec, choice)
    return list(seen.values())
