"""Making an instance of a model class when its arguments are not given."""

from __future__ import annotations

import hashlib
import heapq
import inspect
import itertools
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mase_server.ops.paths import named_tensors
from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.execution.substitutes import skip_failed_download
from mase_server.tracing.importing.missing import adapt_to_version
from mase_server.tracing.importing.placeholders import find_placeholder_error
from mase_server.tracing.models.clues import clue_of, place_of
from mase_server.tracing.models.configs import LackingError
from mase_server.tracing.models.constructions import (
    MAX_DEPTH,
    Constructions,
    Surroundings,
    key_of_arguments,
    list_parameters,
)
from mase_server.tracing.models.guesses import (
    PLURAL,
    Arguments,
    Made,
    Making,
    NoArgumentsError,
    lacking_arguments,
    make_arguments,
    parts_for,
    usual_arguments,
)
from mase_server.tracing.models.plans import Plan, iterate_plans, iterate_starts
from mase_server.tracing.models.repairs import propose_arguments
from mase_server.tracing.models.spreading import Sizes, compare_sizes, list_sizes, replace_sizes
from mase_server.tracing.models.workspace import TRY_STEPS
from mase_server.tracing.recording.rungs import limit_memory
from mase_server.tracing.recording.shadow import MetaMode
from mase_server.tracing.recording.state import require_tree

__all__ = ["Built", "Surroundings", "build", "builds", "rebuilt", "resized"]


@dataclass(frozen=True, slots=True)
class Built:
    """A model with its constructor arguments, their source, and a way to make it again.

    how: the assumptions made, as a clause; "" if its own file or a user gives the arguments.
    plan: the plan that made it, if an error of its forward can be followed to its arguments.  sizes: guessed sizes that
    were changed to differ from others.  trial: what `on_trial` gave, to take back what its constructor reported.
    otherwise: as of `KnownSearch`.
    """

    model: nn.Module
    arguments: Arguments
    source: str
    construct: Callable[[], nn.Module] | None
    how: str = ""
    plan: Plan | None = None
    sizes: Sizes = field(default_factory=dict)
    trial: Any = None
    otherwise: bool = False

    def digest(self) -> str:
        """A hash of the parts' classes and plain attributes, the tensors' shapes, the sizes among the arguments, and
        which arguments are guessed."""
        plan = self.plan
        parts = [
            (type(part).__qualname__, [item for item in vars(part).items() if type(item[1]) in (int, float, str, bool)])
            for part in self.model.modules()
        ]
        tensors = [(path, tuple(tensor.shape)) for path, tensor in named_tensors(self.model)]
        guessed = [] if plan is None else [list_sizes(plan.arguments or {}), sorted(plan.free)]
        return hashlib.sha256(repr((parts, tensors, guessed)).encode()).hexdigest()[:16]


def builds(
    kind: type[nn.Module], around: Surroundings, asked: str | None, errors: list[BaseException]
) -> Iterator[Built]:
    """Instances on meta, the likeliest first: as `asked` and no other; else by call sites of the file, defaults,
    builders, call sites elsewhere in the workspace; if none of these works, with the usual arguments by name,
    repaired by the errors that they cause.

    Each try runs in `on_trial()`, which sees the exception of one that fails. If nothing could be built, the errors
    of all ways are added to `errors`, the user's own first.
    """
    guesses: list[BaseException] = []
    own: list[BaseException] = []
    search, count = _start_repairs(kind, around), 0
    for plan in _all_plans(kind, around, asked, search):
        if plan.source == "search" and count:
            return
        built = _try_plan(kind, plan, around)
        if isinstance(built, Built):
            count += 1
            yield built
            if plan.source == "search":
                return
            continue
        search.failed(plan, built)
        told = _is_guessed(plan) or (plan.source == "default" and _is_lacking_arguments(kind, built))
        (guesses if told else own).append(built)
    if not count:
        errors += [*own, *map(NoArgumentsError.of, guesses)]


def build(kind: type[nn.Module], around: Surroundings, asked: str | None, errors: list[BaseException]) -> Built | None:
    """The first of `builds`."""
    return next(builds(kind, around, asked, errors), None)


def _start_repairs(kind: type[nn.Module], around: Surroundings, *, usual: bool = True) -> Repairs:
    def make(part: type[nn.Module]) -> Made | None:
        """A part, as it would be made by itself; None if that is unknown."""
        if around.depth >= MAX_DEPTH or part is kind or around.budget.is_spent():
            return None
        inner = around.inner({**vars(inspect.getmodule(part) or object), **around.namespace})
        built = build(part, inner, None, [])
        return None if built is None else _make_part(part, inner, built)

    return Repairs(kind, around, lambda part: around.workspace.kept(("part", part), lambda: make(part)), usual=usual)


def _make_part(kind: type[nn.Module], around: Surroundings, built: Built) -> Made | None:
    """A model as an argument of another one, whose sizes may be changed to agree with those of the others."""

    def resize(sizes: Sizes) -> Made | None:
        again = resized(kind, around, built, sizes)
        return None if again is None else _make_part(kind, around, again)

    if built.construct is None:
        return None
    sizes = {name: value for name, value in built.arguments.items() if type(value) is int}
    changed = ", ".join(f"{name}={value}" for name, value in built.sizes.items())
    return Made(built.construct, f"{kind.__name__}({changed or '...'})", sizes, resize)


def _all_plans(kind: type[nn.Module], around: Surroundings, asked: str | None, search: Repairs) -> Iterator[Plan]:
    yield from iterate_plans(kind, around, asked)
    if asked is None:
        yield from search


def rebuilt(
    kind: type[nn.Module], around: Surroundings, built: Built, errors: Iterable[BaseException]
) -> Iterator[Built]:
    """Other instances of a class whose guessed arguments led to `errors` in its forward."""
    search = _start_repairs(kind, around, usual=False)
    for error in errors:
        search.failed(built.plan or Plan(built.source, kind, True, kind, built.arguments), error)
    for plan in search:
        again = _try_plan(kind, plan, around)
        if isinstance(again, Built):
            before = built.plan.arguments if built.plan is not None else None
            yield replace(again, sizes=compare_sizes(before or {}, plan.arguments or {}))
        else:
            search.failed(plan, again)


def resized(kind: type[nn.Module], around: Surroundings, built: Built, sizes: Sizes) -> Built | None:
    """The same instance with other sizes among its guessed arguments; None if it cannot be made with these."""
    plan = built.plan
    if plan is None or plan.function is None or plan.arguments is None:
        return None
    arguments = replace_sizes(plan.arguments, sizes)
    make = partial(_call_with, plan.function, arguments)
    again = _try_plan(kind, replace(plan, make=make, arguments=arguments), around)
    if not isinstance(again, Built):
        return None
    return replace(again, sizes={**built.sizes, **sizes}, otherwise=built.otherwise)


def _call_with(function: Callable[..., Any], arguments: Arguments) -> Any:
    return function(**make_arguments(arguments))


def _try_plan(kind: type[nn.Module], plan: Plan, around: Surroundings) -> Built | BaseException:
    """The model that a plan makes, or the exception that it raises."""
    around.shadows.steps += TRY_STEPS
    constructions = Constructions()
    room = limit_memory() if plan.guessed else nullcontext()
    failed: BaseException | None = None
    try:
        with around.on_trial() as trial, constructions.recording(), MetaMode(around.shadows), room:
            model = _make_model(plan, kind)
            if plan.guessed and isinstance(model, nn.Module):
                require_tree(model)
    except RAISED as error:  # the border to the user's constructors
        failed, adapted = error, skip_failed_download(error) or adapt_to_version(error)
        adapted = adapted or _start_where_file_is(error, around.workspace.folder)
    if failed is not None:  # and is over, so that it is no reason of the next one
        return _try_plan(kind, plan, around) if adapted else find_placeholder_error(failed)
    call = constructions.of(model) if isinstance(model, kind) else None
    if call is None:
        return NoArgumentsError(f"none of the tries makes a {kind.__name__}")
    if plan.guessed and _lacks_counts(model):
        return ValueError("the number of rows of a table, or of features, must be positive")
    arguments = call.bound()
    # Modules among the arguments are on meta: for a model with values they have to be made again too.
    again = partial(_make_model, plan, kind) if _holds_made(arguments) else call.rebuild()
    return Built(model, arguments, plan.source, again, plan.how, plan, trial=trial)


def _lacks_counts(model: nn.Module) -> bool:
    """Has a table no rows, or a linear layer no features, for words or labels that are counted before they are read?
    Where another layer takes the features that there are none of, a size was only divided by too much, and it runs."""
    counts = [(part, name) for part in model.modules() for name in _COUNTS.get(type(part), ())]
    # A tensor has no value here.
    empty = {name for part, name in counts if type(count := getattr(part, name)) is int and count == 0}
    return bool(empty) and "in_features" not in empty


_COUNTS = {nn.Embedding: ("num_embeddings",), nn.Linear: ("in_features", "out_features")}


def _make_model(plan: Plan, kind: type[nn.Module]) -> Any:
    """Follow a plan; of several things that it makes, give the model: `model, criterion = build(args)`."""
    made = plan.make()
    if isinstance(made, tuple | list | dict):
        several = made.values() if isinstance(made, dict) else made
        return next((each for each in several if isinstance(each, kind)), made)
    return made


def _start_where_file_is(error: BaseException, workspace: str) -> bool:
    """Go to the workspace if a file that was not found is there: programs start there, and a class may be further in.

    The model is made there again later, so it stays the working folder.
    """
    name = error.filename if isinstance(error, FileNotFoundError) and workspace else None
    if not isinstance(name, str) or Path(name).is_absolute() or Path.cwd() == Path(workspace):
        return False
    is_there = Path(workspace, name).is_file()
    if is_there:
        os.chdir(workspace)
    return is_there


def _holds_made(value: Any) -> bool:
    """Is a module or a tensor, which is on meta here, among the values of nested lists, tuples and dicts?"""
    if isinstance(value, dict | list | tuple):
        return any(map(_holds_made, value.values() if isinstance(value, dict) else value))
    return isinstance(value, nn.Module | torch.Tensor)


def _is_guessed(plan: Plan) -> bool:
    """Does the error of a plan say nothing about the code? A function that takes no arguments is all the code's own."""
    return plan.guessed and not (inspect.isfunction(plan.function) and not inspect.signature(plan.function).parameters)


def _is_lacking_arguments(kind: type[nn.Module], error: BaseException) -> bool:
    """Does a class fail without arguments because it requires some, or because of its surroundings?"""
    if isinstance(error, OSError):
        return True
    parameters = list_parameters(kind)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if isinstance(error, KeyError) and takes_any:
        return True  # it takes an argument out of its `**kwargs`
    if isinstance(error, TypeError) and takes_any:
        return "required positional argument" in str(error) or "required keyword-only" in str(error)
    empty = any(type(each.default) in (tuple, list, dict) and not each.default for each in parameters)
    if empty and isinstance(error, LookupError):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    checks = (last.line or "").startswith(("assert ", "raise ", "assert("))
    if takes_any and checks:
        return True  # it refuses what a base has by default
    if all(each.default is not None for each in parameters):
        return False
    return "NoneType" in str(error) or checks


# Guessed arguments, and changes that their errors suggest: a bounded search, furthest first.

#: Bounds: constructions, and steps.
MAX_REPAIRS = 48
MAX_STEPS = 20_000

GUESSED = "its constructor's arguments are guessed from their names"
CHANGED = "changed as its errors suggest"


@dataclass(frozen=True, slots=True)
class _Step:
    """Arguments to try, and the assumptions behind them."""

    function: Callable[..., Any]
    arguments: Arguments
    how: str
    free: frozenset[str]

    def key(self) -> str:
        return f"{id(self.function)} {key_of_arguments(self.arguments)}"


class Repairs:
    """Plans with guessed arguments: the usual ones, then changes that the errors of failed ones suggest.

    Iteration ends when nothing is left to try, or after `MAX_REPAIRS` plans or `MAX_STEPS`.
    usual: begin with guesses.
    """

    def __init__(self, kind: type[nn.Module], around: Surroundings, make: Making, *, usual: bool = True) -> None:
        self.kind, self.around, self.make, self.usual = kind, around, make, usual
        self._waiting: list[tuple[int, int, _Step]] = []
        self._seen: set[str] = set()
        #: The number of different errors behind some arguments: those that get further are followed first.
        self._passed: dict[str, frozenset[Any]] = {}
        self._order = itertools.count()
        self._is_lacking = False

    def __iter__(self) -> Iterator[Plan]:
        budget = self.around.budget.part(most=MAX_STEPS)
        starts = self._start_from_partial_calls() if self.usual else iter(())
        for _ in range(MAX_REPAIRS):
            # A configuration that lacks an entry gets it before others are guessed: making a large model again is slow.
            # Nor is anything guessed before a written call is changed as its error suggests.
            start = None if self._waiting and self._is_lacking else next(starts, None)
            if start is None and (not self._waiting or budget.is_spent()):
                return
            yield self._make_plan(heapq.heappop(self._waiting)[2]) if start is None else start

    def _start_from_partial_calls(self) -> Iterator[Plan]:
        """Partly written arguments come before purely guessed ones."""
        for start in iterate_starts(self.kind, self.around):
            try:
                more = lacking_arguments(start.function, start.arguments, self.around, self.make)
            except NoArgumentsError:
                continue
            step = _Step(start.function, {**start.arguments, **more}, start.how_with(more), frozenset(more))
            if step.key() not in self._seen:
                yield self._make_plan(step)
        yield from (self._plan_usual(), self._plan_usual(PLURAL))

    def _plan_usual(self, *lists: Any) -> Plan:
        try:
            guessed = usual_arguments(self.kind, self.around, self.make, *lists)
            return self._make_plan(_Step(self.kind, guessed, GUESSED, frozenset(guessed)))
        except NoArgumentsError as error:
            return Plan("search", partial(_raise_error, error), guessed=True)

    def _make_plan(self, step: _Step) -> Plan:
        self._seen.add(step.key())
        return Plan(
            "search",
            partial(_call_with, step.function, step.arguments),
            True,
            step.function,
            step.arguments,
            step.how,
            step.free,
        )

    def failed(self, plan: Plan, error: BaseException) -> None:
        """Note that a plan failed: derive others, unless the change that led to it did not help."""
        if plan.function is None or plan.arguments is None:
            return
        step = _Step(plan.function, plan.arguments, plan.how, plan.free)
        self._seen.add(step.key())
        before, here = self._passed.get(step.key(), frozenset()), (*place_of(error), str(error))
        is_written = bool(plan.arguments) and not plan.free and not before
        self._is_lacking = (isinstance(error, LackingError) and here not in before) or is_written
        if here in before:
            return
        places = before | {here}
        parts = partial(parts_for, around=self.around, make=self.make)
        clue = clue_of(error, step.function, step.arguments, parts, self.around.settings().find_entry)
        for proposal in propose_arguments(clue):
            other = _Step(step.function, proposal, _describe_change(step.how), step.free)
            if (key := other.key()) not in self._seen:
                self._seen.add(key)
                self._passed[key] = places
                heapq.heappush(self._waiting, (-len(places), next(self._order), other))


def _describe_change(how: str) -> str:
    """The assumption behind a change that an error suggested."""
    return how if how.endswith((GUESSED, CHANGED)) else f"{how}, {CHANGED}" if how else GUESSED


def _raise_error(error: BaseException) -> None:
    raise error
