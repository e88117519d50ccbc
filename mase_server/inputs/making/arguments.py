"""Making an instance of a model class when nobody said how."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.inputs.execution.sparing import sparing
from mase_server.inputs.making.constructions import Constructions
from mase_server.inputs.making.guesses import Made, NoArgumentsError
from mase_server.inputs.making.guided import Repairs
from mase_server.inputs.making.plans import Plan, plans
from mase_server.inputs.making.surroundings import MAX_DEPTH, Surroundings
from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.errors.problems import describe
from mase_server.tracing.loading.placeholders import behind
from mase_server.tracing.shadow import MetaMode

__all__ = ["Built", "Surroundings", "build", "builds", "rebuilt"]


@dataclass(frozen=True, slots=True)
class Built:
    """A model with the arguments it was made with, where they came from, and how to make it again.

    how: what was assumed to make it, as a clause; empty where its own file or a person says it.
    plan: the way in which it was made, where an error of its forward can be followed to its arguments.
    """

    model: nn.Module
    arguments: dict[str, Any]
    source: str
    construct: Callable[[], nn.Module] | None
    how: str = ""
    plan: Plan | None = None


def builds(
    kind: type[nn.Module], around: Surroundings, asked: str | None, errors: list[BaseException]
) -> Iterator[Built]:
    """Instances on meta, the likeliest first: as `asked` and no other; else by call sites of the file, defaults,
    builders, call sites elsewhere in the workspace; only where none of these does, with the usual names' arguments,
    repaired by the errors that they give.

    Each try runs in `on_trial()`, which sees the exception of one that fails. Where nothing could be built, what each
    way raised is added to `errors`, the person's own errors first.
    """
    guesses: list[BaseException] = []
    own: list[BaseException] = []
    search, count = _search(kind, around), 0
    for plan in _all_plans(kind, around, asked, search):
        if plan.source == "search" and count:
            return
        built = _tried(kind, plan, around)
        if isinstance(built, Built):
            count += 1
            yield built
            if plan.source == "search":
                return
            continue
        search.failed(plan, built)
        told = plan.guessed or (plan.source == "default" and _unasked(kind, built))
        (guesses if told else own).append(built)
    if not count:
        guessed = (each if isinstance(each, NoArgumentsError) else NoArgumentsError(describe(each)) for each in guesses)
        errors += [*own, *guessed]


def build(kind: type[nn.Module], around: Surroundings, asked: str | None, errors: list[BaseException]) -> Built | None:
    """The first of `builds`."""
    return next(builds(kind, around, asked, errors), None)


def _search(kind: type[nn.Module], around: Surroundings, *, usual: bool = True) -> Repairs:
    def make(part: type[nn.Module]) -> Made | None:
        """A part as it would be made by itself; None where nobody can say how."""
        if around.depth >= MAX_DEPTH or part is kind or around.budget.is_spent():
            return None
        inner = around.inner({**vars(inspect.getmodule(part) or object), **around.namespace})
        built = build(part, inner, None, [])
        again = None if built is None else built.construct
        return None if again is None else Made(again, f"{part.__name__}(...)")

    return Repairs(kind, around, lambda part: around.workspace.kept(("part", part), lambda: make(part)), usual=usual)


def _all_plans(kind: type[nn.Module], around: Surroundings, asked: str | None, search: Repairs) -> Iterator[Plan]:
    yield from plans(kind, around, asked)
    if asked is None:
        yield from search


def rebuilt(
    kind: type[nn.Module], around: Surroundings, built: Built, errors: Iterable[BaseException]
) -> Iterator[Built]:
    """Other instances of a class whose guessed arguments led to `errors` in its forward."""
    search = _search(kind, around, usual=False)
    for error in errors:
        search.failed(built.plan or Plan(built.source, kind, True, kind, built.arguments), error)
    for plan in search:
        again = _tried(kind, plan, around)
        if isinstance(again, Built):
            yield again
        else:
            search.failed(plan, again)


def _tried(kind: type[nn.Module], plan: Plan, around: Surroundings) -> Built | BaseException:
    """What a plan makes, or what it raises."""
    constructions = Constructions()
    room = sparing() if plan.guessed else nullcontext()
    try:
        with around.on_trial(), constructions.recording(), MetaMode(around.shadows), room:
            model = plan.make()
    except RAISED as error:  # the border to the person's constructors
        return behind(error)
    call = constructions.of(model) if isinstance(model, kind) else None
    if call is None:
        return NoArgumentsError(f"what was tried makes no {kind.__name__}")
    arguments = call.bound()
    # Modules among the arguments live on meta: whoever wants the model with values has to make them again too.
    again = plan.make if any(isinstance(value, nn.Module) for value in arguments.values()) else call.rebuild()
    return Built(model, arguments, plan.source, again, plan.how, plan)


def _unasked(kind: type[nn.Module], error: BaseException) -> bool:
    """Does a class fail without arguments because it has to be given some, or because of what surrounds it?"""
    if isinstance(error, OSError):
        return True
    parameters = inspect.signature(kind).parameters.values()
    if isinstance(error, TypeError) and any(each.kind is each.VAR_KEYWORD for each in parameters):
        return "required positional argument" in str(error) or "required keyword-only" in str(error)
    empty = any(type(each.default) in (tuple, list, dict) and not each.default for each in parameters)
    if empty and isinstance(error, LookupError):
        return True
    if all(each.default is not None for each in parameters):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "NoneType" in str(error) or (last.line or "").startswith(("assert ", "raise ", "assert("))
