"""Inputs by search: candidates from what each parameter meets first, tried until a forward succeeds."""

from __future__ import annotations

import inspect
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from torch import nn

from mase_server.inputs.clues import clue_of
from mase_server.inputs.consumers import ANYTHING, candidates, hidden_states, size_choices
from mase_server.inputs.failures import Furthest
from mase_server.inputs.forward import Use, Wanted, first_use, innermost, keys_of, parts_of, reads_members
from mase_server.inputs.found import Hooks, call_arguments
from mase_server.inputs.generate import complete, inputs_at
from mase_server.inputs.huggingface import LABEL_NAMES, library_inputs
from mase_server.inputs.modes import on_meta
from mase_server.inputs.names import STATE, usual_inputs
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
    plausible: inputs that get as far as any, where all that get so far fail at the same line.
    errors: what those that got furthest met, one of each kind.
    """

    spec: Inputs | None
    how: str
    example: str
    likely: Inputs | None = None
    errors: tuple[BaseException, ...] = ()
    plausible: Inputs | None = None


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
    example, furthest, wanted = "", Furthest(), _Optional(model)
    try:
        for inputs, why in itertools.islice(wanted.tries(), attempts):
            example = example or write(inputs)
            with furthest.counting():
                error = _attempt(model, inputs, hooks)
            if error is None:
                return Searched(inputs, f"found by search: {why}", write(inputs))
            errors.append(describe(error))
            furthest.failed(inputs, error)
            wanted.failed(error)
            if clock() > end or furthest.is_certain():
                break
    finally:
        model.train(mode)
    how = f"{len(errors)} tries failed ({tried(errors)})"
    example = example or "x: f32[1, 3, 224, 224]"
    return Searched(None, how, example, furthest.likely(), furthest.errors(), furthest.plausible())


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


def _tries(model: nn.Module, more: Set[str] = frozenset()) -> Iterator[tuple[Inputs, str]]:
    """Inputs to try, the likeliest first: early candidates at early sizes."""
    choices = choices_for(model, more)
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


class _Optional:
    """Tries, first without what forward does without; then with what its errors ask for after all."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.asked: dict[str, None] = {}

    def tries(self) -> Iterator[tuple[Inputs, str]]:
        """Inputs to try; whoever tries them reports what failed."""
        yield from _tries(self.model)
        if self.asked:
            yield from _tries(self.model, self.asked.keys())

    def failed(self, error: BaseException) -> None:
        """Note the optional parameters that the statement which failed reads, where they were not given."""
        if not isinstance(error, AssertionError | TypeError | AttributeError | ValueError):
            return
        clue = clue_of(error, self.model.forward, {})
        names = [name for name in clue.culprits if clue.arguments[name] is None and name not in LABEL_NAMES]
        self.asked |= dict.fromkeys(names[:2])


def _symbols(spec: Spec) -> set[str]:
    return {dim for leaf in leaves(spec) for dim in leaf.dims if isinstance(dim, str)}


def _inputs(picked: Mapping[str, _Choice], size: Mapping[str, int]) -> Inputs:
    entries = {name: choice.spec for name, choice in picked.items()}
    if any(leaf.argument == "N" for spec in entries.values() for leaf in leaves(spec)):
        entries = {name: _of_nodes(spec) for name, spec in entries.items()}
    used = Inputs(entries).symbols()
    return complete(Inputs(entries, {name: value for name, value in size.items() if name in used}))


def _of_nodes(spec: Spec) -> Spec:
    """The features of a graph's nodes: as many rows as its edges may point to."""
    if isinstance(spec, TensorSpec) and len(spec.dims) == 2 and spec.dims[0] == "B" and spec.dtype == "f32":
        return replace(spec, dims=("N", *spec.dims[1:]))
    return spec


def choices_for(model: nn.Module, more: Set[str] = frozenset()) -> dict[str, list[_Choice]]:
    """Candidates for each parameter that has to be given, and for `more` of them."""
    library = library_inputs(model)
    if library is not None:
        return {name: [_Choice(spec, "as its configuration says")] for name, spec in library.items()}
    if isinstance(model, nn.Sequential):
        first = innermost(model)
        return {"input": _reasons(Use(first, type(first).__name__)) or _anything()}
    return {each.name: _choices(model, each.name) for each in _needed(model, more)}


def _needed(model: nn.Module, more: Set[str] = frozenset()) -> list[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in inspect.signature(model.forward).parameters.values() if each.kind not in variable]
    required = [each for each in parameters if each.default is each.empty or each.name in more]
    # A forward whose inputs are all optional still wants its first one.
    return required or [each for each in parameters if each.name not in LABEL_NAMES][:1]


def _choices(model: nn.Module, name: str) -> list[_Choice]:
    keys = keys_of(model, name)
    if keys:
        return _containers(model, name, keys)
    if (count := parts_of(model, name)) > 1 and not any(spec.dims[:1] == (count,) for spec in usual_inputs(name)):
        parts = [_leaf(model, f"{name}{index}", Wanted(name, index)) for index in range(count)]
        return [_Choice(SequenceSpec(tuple(part.spec for part in row)), _why(row)) for row in _rows(parts)]
    if (count := _listed(model, name)) > 0:
        wanted = Wanted(name, 0) if reads_members(model, name) else Wanted(name)
        lists = [
            _Choice(SequenceSpec((choice.spec,) * length, is_list=True), f"a list, {choice.why}")
            for length, choice in itertools.product((count, 1, 4), _leaf(model, name, wanted)[:6])
        ]
        # What is only iterated over may be one tensor too.
        return lists[:1] + _leaf(model, name, wanted)[:1] + lists[1:]
    return _leaf(model, name, Wanted(name))


def _listed(model: nn.Module, name: str) -> int:
    """How many tensors a parameter lists, by its annotation; 0 where it is no list."""
    annotation = inspect.signature(model.forward).parameters[name].annotation
    text = annotation if isinstance(annotation, str) else str(annotation)
    return 2 if re.search(r"(?i)\b(list|sequence)\[.*tensor", text) else 0


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
    if STATE.search(name.lower()) and (states := hidden_states(model)):
        return [_Choice(spec, f"the state {name!r} of its recurrent layer") for spec in states]
    use = first_use(model, wanted)
    by_use = _reasons(use) if use is not None else []
    if _is_handed_states(model):
        by_name, by_use = _time_first(by_name), _time_first(by_use)
    special = any(word in name.lower() for word in ("mask", "len", "edge", "adj"))
    ordered = by_name + by_use if special else by_use + by_name
    return _unique(ordered) or _anything()


def _is_handed_states(model: nn.Module) -> bool:
    """Does a forward take the states of a recurrent layer that has time in front?"""
    layer = next((part for part in model.modules() if isinstance(part, nn.RNNBase)), None)
    names = inspect.signature(model.forward).parameters
    return layer is not None and not layer.batch_first and any(STATE.search(name.lower()) for name in names)


def _time_first(choices: list[_Choice]) -> list[_Choice]:
    """Tokens of such a model have time in front too."""
    return [
        replace(each, spec=replace(each.spec, dims=("T", "B")))
        if isinstance(each.spec, TensorSpec) and each.spec.dims == ("B", "T")
        else each
        for each in choices
    ]


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
