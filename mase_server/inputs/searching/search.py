"""Inputs by search: the likeliest candidates first, then what the errors of those that failed lead to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.inputs.budget import Budget
from mase_server.inputs.found import Hooks, call_arguments
from mase_server.inputs.generate import LARGEST_FILLED, extremes_at, inputs_at
from mase_server.inputs.modes import on_meta
from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.failures import Furthest, unavoidable
from mase_server.inputs.searching.frontier import Candidate, Frontier
from mase_server.inputs.spec import Inputs
from mase_server.inputs.trouble import tried
from mase_server.tracing.errors.problems import describe
from mase_server.tracing.state import put_in_mode

MAX_ATTEMPTS = 200
MAX_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Searched:
    """spec: inputs with which the forward succeeds, None when none was found.  how: one sentence.

    likely: inputs that get as far as any, where all that get so far meet the same error: it is the forward's own.
    plausible: inputs that get as far as any, where all that get so far fail at the same line.
    errors: what those that got furthest met, one of each kind.
    """

    spec: Inputs | None
    how: str
    likely: Inputs | None = None
    errors: tuple[BaseException, ...] = ()
    plausible: Inputs | None = None


def search(model: nn.Module, hooks: Hooks, attempts: int = MAX_ATTEMPTS, budget: Budget | None = None) -> Searched:
    """Look for inputs with which the model's forward succeeds, in at most so many attempts and within a budget."""
    budget, mode = budget or Budget.of(MAX_SECONDS), model.training
    put_in_mode(model, False)
    trying = _Search(model, hooks)
    try:
        for _ in range(attempts):
            candidate = trying.frontier.next()
            if candidate is None:
                break
            if trying.succeeds(candidate) and not trying.is_evasive(candidate):
                how = f"found by search: {candidate.why()}"
                return Searched(candidate.inputs, how)
            if budget.is_spent() or trying.furthest.is_certain():
                break
    finally:
        put_in_mode(model, mode)
    return trying.without_success()


class _Search:
    """The tries of one search, and what they met."""

    def __init__(self, model: nn.Module, hooks: Hooks) -> None:
        self.model, self.hooks = model, hooks
        self.frontier, self.furthest = Frontier(model), Furthest()
        self.errors: list[str] = []

    def succeeds(self, candidate: Candidate) -> bool:
        """Try a candidate; what it fails with leads to others."""
        try:
            for made in (extremes_at(candidate.inputs), inputs_at(candidate.inputs, largest=LARGEST_FILLED)):
                values, error = on_meta(made, self.hooks.shadows), None
                with self.furthest.counting():
                    error = self._attempt(values) if values or not candidate.inputs.entries else None
                if error is not None:
                    break
        except _NO_INPUTS:  # a container of the person's own that takes other members
            return False
        if error is not None:
            self._failed(candidate, values, error)
        return error is None

    def is_evasive(self, candidate: Candidate) -> bool:
        """Does a changed candidate only avoid a mistake of the forward's own that the usual ones meet?"""
        return candidate.depth > 0 and any(map(unavoidable, self.furthest.errors()))

    def _attempt(self, values: dict[str, Any]) -> BaseException | None:
        args, kwargs = call_arguments(self.model, values)
        return self.hooks.attempt(self.model, args, kwargs)

    def _failed(self, candidate: Candidate, values: dict[str, Any], error: BaseException) -> None:
        self.errors.append(describe(error))
        failed = Failed.of(self.model, candidate.inputs, values, error, self.furthest.completed)
        # A change that leads no further says more of the search than of the forward.
        if candidate.came_to < failed.progress or candidate.came_to < 0:
            self.furthest.failed(candidate.inputs, error, of_inputs=failed.is_of_inputs())
        self.frontier.failed(candidate, failed)

    def without_success(self) -> Searched:
        """What is told where nothing succeeded."""
        how = f"{len(self.errors)} tries failed ({tried(self.errors)})"
        furthest = self.furthest
        return Searched(None, how, furthest.likely(), furthest.errors(), furthest.plausible())


#: What making inputs, and binding them to a forward, may raise.
_NO_INPUTS = (TypeError, ValueError, KeyError, AttributeError)


def works(model: nn.Module, inputs: Inputs, hooks: Hooks) -> bool:
    """Does the forward succeed with these inputs?"""
    try:
        args, kwargs = call_arguments(model, on_meta(inputs_at(inputs, largest=LARGEST_FILLED), hooks.shadows))
        return hooks.attempt(model, args, kwargs) is None
    except (TypeError, ValueError):  # inputs of another signature
        return False
