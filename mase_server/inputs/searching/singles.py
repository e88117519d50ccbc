"""Candidates for one tensor: by its first consumer, by its name, else like the others, then anything."""

from __future__ import annotations

import inspect
import itertools
import re
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from mase_server.inputs.making.names import STATE, usual_inputs
from mase_server.inputs.searching.consumers import ANYTHING, candidates, hidden_states
from mase_server.inputs.searching.forward import Use, Wanted, first_use
from mase_server.inputs.searching.scalars import scalars
from mase_server.inputs.spec import ConstantSpec, Inputs, Spec, TensorSpec

DEFAULT_VOCABULARY = 10
#: Names of indices of which each sample has one.
SINGLE = re.compile(
    r"^(t|ts|time|timesteps?|y|labels?|class(es)?|class_?labels?|cond|users?|items?|action|step|(target|cand|pos|neg)_\w+"
    r"|\w*(user|item)(_ids?)?)$"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate for one parameter, and why."""

    spec: Spec
    why: str


def leaf_choices(model: nn.Module, name: str, wanted: Wanted, others: Inputs | None = None) -> list[Choice]:
    """Candidates for one tensor: by its first consumer, by its name, else like the others, then anything."""
    by_name = [Choice(_closed(spec, model), f"by its name {name!r}") for spec in usual_inputs(name)]
    if STATE.search(name.lower()) and (states := hidden_states(model)):
        return [Choice(spec, f"the state {name!r} of its recurrent layer") for spec in states]
    use = first_use(model, wanted)
    by_use = reasons(use) if use is not None else []
    if _is_handed_states(model):
        by_name, by_use = _time_first(by_name), _time_first(by_use)
    if SINGLE.search(name.lower()):
        by_use = sorted(
            by_use, key=lambda choice: isinstance(choice.spec, TensorSpec) and choice.spec.dims == ("B", "T")
        )
    special = any(
        word in name.lower() for word in ("mask", "len", "edge", "adj", "label", "class", "index", "rays", "dirs")
    )
    ordered = (by_name, by_use) if special else (by_use, by_name)
    mixed = [choice for pair in itertools.zip_longest(*ordered) for choice in pair if choice is not None]
    return _unique(mixed) or [*_like(model, name, others), *anything()]


def _like(model: nn.Module, name: str, others: Inputs | None) -> list[Choice]:
    """What nothing is known of is first taken for what the others are."""
    if others is not None:
        found = [spec for spec in others.entries.values() if isinstance(spec, TensorSpec)]
        return [Choice(spec, f"{_shape(spec)}, like the others") for spec in found[:1]]
    if re.fullmatch(r"h|w|height|width", name.lower()):
        return [Choice(ConstantSpec(value), f"{name} = {value}, a guess") for value in scalars(name)]
    for other in inspect.signature(model.forward).parameters:
        if other != name and (use := first_use(model, Wanted(other))) is not None:
            return reasons(use)[:1]
    return []


def _is_handed_states(model: nn.Module) -> bool:
    """Does a forward take the states of a recurrent layer that has time in front?"""
    layer = next((part for part in model.modules() if isinstance(part, nn.RNNBase)), None)
    names = inspect.signature(model.forward).parameters
    return layer is not None and not layer.batch_first and any(STATE.search(name.lower()) for name in names)


def _time_first(choices: list[Choice]) -> list[Choice]:
    """Tokens of such a model have time in front too."""
    return [
        replace(each, spec=replace(each.spec, dims=("T", "B")))
        if isinstance(each.spec, TensorSpec) and each.spec.dims == ("B", "T")
        else each
        for each in choices
    ]


def _parts_of(spec: TensorSpec, joined: tuple[int, int] | None) -> list[TensorSpec]:
    """What is one of several parts of a layer's features has as many of them as the others, or a few; then all."""
    count, dim = joined or (1, 0)
    if not -len(spec.dims) <= dim < len(spec.dims):
        return [spec]
    at = dim % len(spec.dims)
    size = spec.dims[at]
    if count < 2 or not isinstance(size, int) or size % count:
        return [spec]
    return [replace(spec, dims=(*spec.dims[:at], size // count, *spec.dims[at + 1 :])), spec]


def reasons(use: Use) -> list[Choice]:
    """Candidates for what goes to a layer."""
    found = [part for spec in candidates(use.layer) for part in _parts_of(spec, use.joined)]
    if use.dims:
        found = sorted(found, key=lambda spec: len(spec.dims) != use.dims)
    return [Choice(spec, f"{_shape(spec)}, first consumer {use.path}") for spec in found]


def anything() -> list[Choice]:
    """Candidates for what nothing is known of."""
    return [Choice(spec, f"{_shape(spec)}, a guess") for spec in ANYTHING]


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


def _unique(choices: list[Choice]) -> list[Choice]:
    seen: dict[Any, Choice] = {}
    for choice in choices:
        seen.setdefault(choice.spec, choice)
    return list(seen.values())
