"""Making an instance of a model class when nobody said how."""

from __future__ import annotations

import ast
import heapq
import inspect
import itertools
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from mase_server.inputs.budget import FILE_SECONDS, Budget
from mase_server.inputs.classes import builders, calls_of
from mase_server.inputs.clues import clue_of, place_of
from mase_server.inputs.constructions import Constructions
from mase_server.inputs.expressions import NAMES
from mase_server.inputs.guesses import PLURAL, NoArgumentsError, made, parts_for, required, usual_arguments
from mase_server.inputs.repairs import proposals
from mase_server.inputs.usage import evaluate
from mase_server.inputs.workspace import Call, Workspace, examples_of
from mase_server.tracing.failure import RAISED
from mase_server.tracing.problems import describe
from mase_server.tracing.shadow import MetaMode, Shadows

#: Bounds of the search that errors lead: constructions, and seconds.
MAX_REPAIRS = 48
MAX_SECONDS = 2.0
#: Calls elsewhere in the workspace that are tried.
MAX_CALLS = 12

_GUESSED = "its constructor's arguments are guessed from their names"


@dataclass(frozen=True, slots=True)
class Built:
    """A model with the arguments it was made with, where they came from, and how to make it again.

    how: what was assumed to make it, as a clause; empty where its own file or a person says it.
    """

    model: nn.Module
    arguments: dict[str, Any]
    source: str
    construct: Callable[[], nn.Module] | None
    how: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    """One way to make an instance. arguments: those of a guess, by which an error can be followed."""

    source: str
    make: Callable[[], Any]
    guessed: bool = False
    arguments: dict[str, Any] | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a class is made with and among.

    workspace: an empty one, where only the file counts.  budget: how long ways to make a model may be looked for.
    """

    namespace: dict[str, Any]
    tree: ast.Module
    shadows: Shadows
    on_trial: Callable[[], AbstractContextManager[None]] = nullcontext
    workspace: Workspace = field(default_factory=lambda: Workspace(""))
    budget: Budget = field(default_factory=lambda: Budget.of(FILE_SECONDS))


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
    search, count = Repairs(kind, around), 0
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
        if plan.arguments is not None:
            search.failed(plan.arguments, built)
        told = plan.guessed or (plan.source == "default" and _unasked(kind, built))
        (guesses if told else own).append(built)
    if not count:
        guessed = (each if isinstance(each, NoArgumentsError) else NoArgumentsError(describe(each)) for each in guesses)
        errors += [*own, *guessed]


def build(kind: type[nn.Module], around: Surroundings, asked: str | None, errors: list[BaseException]) -> Built | None:
    """The first of `builds`."""
    return next(builds(kind, around, asked, errors), None)


def _all_plans(kind: type[nn.Module], around: Surroundings, asked: str | None, search: Repairs) -> Iterator[_Plan]:
    yield from _plans(kind, around, asked)
    if asked is None:
        yield from search


def rebuilt(
    kind: type[nn.Module], around: Surroundings, built: Built, errors: Iterable[BaseException]
) -> Iterator[Built]:
    """Other instances of a class whose guessed arguments led to `errors` in its forward."""
    search = Repairs(kind, around, usual=False)
    for error in errors:
        search.failed(built.arguments, error)
    for plan in search:
        again = _tried(kind, plan, around)
        if isinstance(again, Built):
            yield again
        elif plan.arguments is not None:
            search.failed(plan.arguments, again)


def _tried(kind: type[nn.Module], plan: _Plan, around: Surroundings) -> Built | BaseException:
    """What a plan makes, or what it raises."""
    constructions = Constructions()
    try:
        with around.on_trial(), constructions.recording(), MetaMode(around.shadows):
            model = plan.make()
    except RAISED as error:  # the border to the person's constructors
        return error
    call = constructions.of(model) if isinstance(model, kind) else None
    if call is None:
        return NoArgumentsError(f"what was tried makes no {kind.__name__}")
    arguments = call.bound()
    # Modules among the arguments live on meta: whoever wants the model with values has to make them again too.
    again = plan.make if any(isinstance(value, nn.Module) for value in arguments.values()) else call.rebuild()
    return Built(model, plan.arguments or arguments, plan.source, again, plan.how)


def _plans(kind: type[nn.Module], around: Surroundings, asked: str | None) -> Iterator[_Plan]:
    namespace, tree = around.namespace, around.tree
    if asked is not None:
        yield _Plan("comment", lambda: eval(asked, {**NAMES, **namespace}))
        return
    for call in filter(_says_something, calls_of(tree, kind.__name__)):
        yield _Plan("usage", partial(evaluate, call, namespace, tree), guessed=True)
    if not required(kind):
        yield _Plan("default", kind)
    for node in builders(tree, kind.__name__):
        function = namespace.get(node.name)
        if callable(function) and not required(function):
            yield _Plan("usage", function, guessed=True)
    elsewhere = (found for found in _calls_elsewhere(kind, around) if _says_something(found.node))
    for found in itertools.islice(elsewhere, MAX_CALLS):
        names = {**namespace, **found.names, kind.__name__: kind}
        where = os.path.relpath(found.file, around.workspace.folder) if found.file else "its file's docstring"
        make = partial(evaluate, found.node, names, found.tree)
        yield _Plan("usage", make, guessed=True, how=f"made as {where} makes it")


def _says_something(call: ast.Call) -> bool:
    """Is this more than a call that only hands on what it was given?"""
    handed = [isinstance(each, ast.Starred) for each in call.args] + [each.arg is None for each in call.keywords]
    return not handed or not all(handed)


def _calls_elsewhere(kind: type[nn.Module], around: Surroundings) -> Iterator[Call]:
    yield from examples_of(around.tree, kind.__name__)
    yield from around.workspace.calls(kind.__name__)


class Repairs:
    """Plans with guessed arguments: the usual ones, then what the errors of those that failed suggest.

    Iterating ends when nothing is left to try, or after `MAX_REPAIRS` plans or `MAX_SECONDS`.
    """

    def __init__(self, kind: type[nn.Module], around: Surroundings, *, usual: bool = True) -> None:
        self.kind, self.around, self.usual = kind, around, usual
        self._waiting: list[tuple[int, int, dict[str, Any]]] = []
        self._seen: set[str] = set()
        #: How many different errors lie behind some arguments: what gets further is followed first.
        self._passed: dict[str, frozenset[Any]] = {}
        self._order = itertools.count()

    def __iter__(self) -> Iterator[_Plan]:
        budget = self.around.budget.part(most=MAX_SECONDS)
        if self.usual:
            yield from (self._usual(), self._usual(PLURAL))
        for _ in range(MAX_REPAIRS):
            if not self._waiting or budget.is_spent():
                return
            yield self._plan(heapq.heappop(self._waiting)[2])

    def _usual(self, *lists: Any) -> _Plan:
        try:
            return self._plan(usual_arguments(self.kind, self.around.namespace, self.around.tree, *lists))
        except NoArgumentsError as error:
            return _Plan("search", partial(_raise, error), guessed=True)

    def _plan(self, arguments: dict[str, Any]) -> _Plan:
        self._seen.add(repr(arguments))
        return _Plan("search", lambda: self.kind(**made(arguments)), guessed=True, arguments=arguments, how=_GUESSED)

    def failed(self, arguments: dict[str, Any], error: BaseException) -> None:
        """These arguments gave an error: think of others, unless the change that led to them did not help."""
        before, here = self._passed.get(repr(arguments), frozenset()), (*place_of(error), str(error))
        if here in before:
            return
        places = before | {here}
        clue = clue_of(
            error, self.kind, arguments, partial(parts_for, around=self.around.namespace, tree=self.around.tree)
        )
        for proposal in proposals(clue):
            if (text := repr(proposal)) not in self._seen:
                self._seen.add(text)
                self._passed[text] = places
                heapq.heappush(self._waiting, (-len(places), next(self._order), proposal))


def _raise(error: BaseException) -> None:
    raise error


def _unasked(kind: type[nn.Module], error: BaseException) -> bool:
    """Does a class fail without arguments because it has to be given some, or because of what surrounds it?"""
    if isinstance(error, OSError):
        return True
    parameters = inspect.signature(kind).parameters.values()
    if isinstance(error, TypeError) and any(each.kind is each.VAR_KEYWORD for each in parameters):
        return "required positional argument" in str(error) or "required keyword-only" in str(error)
    if all(each.default is not None for each in parameters):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "NoneType" in str(error) or (last.line or "").startswith(("assert ", "raise ", "assert("))
