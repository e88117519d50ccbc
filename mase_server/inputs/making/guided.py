"""Guessed arguments, and others that the errors of those lead to: a bounded search, what gets furthest first."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mase_server.inputs.making.clues import clue_of, place_of
from mase_server.inputs.making.guesses import (
    PLURAL,
    Making,
    NoArgumentsError,
    lacking_arguments,
    made,
    parts_for,
    usual_arguments,
)
from mase_server.inputs.making.plans import Plan, starts
from mase_server.inputs.making.repairs import proposals
from mase_server.inputs.making.surroundings import Surroundings

#: Bounds: constructions, and seconds.
MAX_REPAIRS = 48
MAX_SECONDS = 2.0

GUESSED = "its constructor's arguments are guessed from their names"
CHANGED = "changed as its errors suggest"


@dataclass(frozen=True, slots=True)
class _Step:
    """Arguments to try, and what was assumed to come to them."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    how: str

    def key(self) -> str:
        return f"{id(self.function)} {self.arguments!r}"


class Repairs:
    """Plans with guessed arguments: the usual ones, then what the errors of those that failed suggest.

    Iterating ends when nothing is left to try, or after `MAX_REPAIRS` plans or `MAX_SECONDS`.
    usual: begin with guesses.
    """

    def __init__(self, kind: type[nn.Module], around: Surroundings, make: Making, *, usual: bool = True) -> None:
        self.kind, self.around, self.make, self.usual = kind, around, make, usual
        self._waiting: list[tuple[int, int, _Step]] = []
        self._seen: set[str] = set()
        #: How many different errors lie behind some arguments: what gets further is followed first.
        self._passed: dict[str, frozenset[Any]] = {}
        self._order = itertools.count()

    def __iter__(self) -> Iterator[Plan]:
        budget = self.around.budget.part(most=MAX_SECONDS)
        if self.usual:
            yield from self._begin()
        for _ in range(MAX_REPAIRS):
            if not self._waiting or budget.is_spent():
                return
            yield self._plan(heapq.heappop(self._waiting)[2])

    def _begin(self) -> Iterator[Plan]:
        """What somebody wrote in part comes before what nobody wrote."""
        for start in starts(self.kind, self.around):
            try:
                more = lacking_arguments(start.function, start.arguments, self.around, self.make)
            except NoArgumentsError:
                continue
            how = f"{start.how}, with {', '.join(more)} guessed" if more else start.how
            step = _Step(start.function, {**start.arguments, **more}, how)
            if step.key() not in self._seen:
                yield self._plan(step)
        yield from (self._usual(), self._usual(PLURAL))

    def _usual(self, *lists: Any) -> Plan:
        try:
            return self._plan(_Step(self.kind, usual_arguments(self.kind, self.around, self.make, *lists), GUESSED))
        except NoArgumentsError as error:
            return Plan("search", partial(_raise, error), guessed=True)

    def _plan(self, step: _Step) -> Plan:
        self._seen.add(step.key())
        return Plan(
            "search", lambda: step.function(**made(step.arguments)), True, step.function, step.arguments, step.how
        )

    def failed(self, plan: Plan, error: BaseException) -> None:
        """A plan gave an error: think of others, unless the change that led to it did not help."""
        if plan.function is None or plan.arguments is None:
            return
        step = _Step(plan.function, plan.arguments, plan.how)
        self._seen.add(step.key())
        before, here = self._passed.get(step.key(), frozenset()), (*place_of(error), str(error))
        if here in before:
            return
        places = before | {here}
        parts = partial(parts_for, around=self.around, make=self.make)
        for proposal in proposals(clue_of(error, step.function, step.arguments, parts)):
            other = _Step(step.function, proposal, _changed(step.how))
            if (key := other.key()) not in self._seen:
                self._seen.add(key)
                self._passed[key] = places
                heapq.heappush(self._waiting, (-len(places), next(self._order), other))


def _changed(how: str) -> str:
    """What was assumed, where an error asked for something else."""
    return how if how.endswith((GUESSED, CHANGED)) else f"{how}, {CHANGED}" if how else GUESSED


def _raise(error: BaseException) -> None:
    raise error
