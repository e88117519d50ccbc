"""Inputs by search: the likeliest candidates first, then those that the errors of failed ones suggest."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import nn

from mase_server.tracing.diagnosis.problems import describe_error
from mase_server.tracing.importing.placeholders import MissingPackageError
from mase_server.tracing.inputs.searching.choices import choices_for, choices_of, from_library
from mase_server.tracing.inputs.searching.consumers import IMAGE_SIDES, size_choices, told_sides
from mase_server.tracing.inputs.searching.failures import Failed, Furthest, is_check, is_unavoidable
from mase_server.tracing.inputs.searching.kinds import (
    RANKS,
    TOLD_RANKS,
    level_ranks,
    propose_element_types,
    propose_equal,
    propose_matrices,
    propose_told_shape,
)
from mase_server.tracing.inputs.searching.kinds import ROWS as KINDS
from mase_server.tracing.inputs.searching.operands import CHANNELS
from mase_server.tracing.inputs.searching.plausible import count_faults
from mase_server.tracing.inputs.searching.singles import Choice
from mase_server.tracing.inputs.searching.sizes import ROWS as SIZES
from mase_server.tracing.inputs.searching.sizes import (
    TOLD_SIZES,
    TOLD_TARGETS,
    meets_mask,
    propose_agreements,
    propose_alike,
    propose_joined,
    propose_partners,
    propose_shorter,
)
from mase_server.tracing.inputs.searching.structure import ROWS as STRUCTURE
from mase_server.tracing.inputs.searching.trees import get_inputs_key, iterate_tensor_specs, put_member, shape_of
from mase_server.tracing.inputs.spec import (
    LARGEST_FILLED,
    Inputs,
    InputValues,
    MapSpec,
    SequenceSpec,
    Spec,
    TensorSpec,
    complete_sizes,
    extremes_at,
    inputs_at,
    iterate_leaves,
    on_meta,
)
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.inputs.trouble import list_attempts
from mase_server.tracing.models.found import Hooks, Led, call_arguments
from mase_server.tracing.models.workspace import TRY_STEPS, Budget
from mase_server.tracing.recording.rules import OutOfRangeError
from mase_server.tracing.recording.state import drawing_from, put_in_mode

#: The changes of every kind, in the order in which they are asked.
ROWS: tuple[tuple[str, Callable[[Failed, re.Match[str]], Iterator[Inputs]]], ...] = (
    *TOLD_TARGETS,
    *TOLD_RANKS,
    *STRUCTURE,
    *KINDS,
    *RANKS,
    *SIZES,
)
#: The rows whose first change is certainly better than what failed.
CERTAIN = (propose_equal, propose_matrices, propose_told_shape)
#: The most changes that are proposed for one error.
MAX_CHANGES = 20
#: The most elements of a proposed tensor; whole numbers always have values, of eight bytes each.
MAX_ELEMENTS = 1 << 24
MAX_WHOLE_NUMBERS = 1 << 22
#: The least side of a map that is made smaller.
SMALLEST_MAP = 8
MAX_ATTEMPTS = 200
MAX_STEPS = 100_000
#: Seeds with which a forward that draws by chance is tried: their first draws are 0.84, 0.13, 0.96 and 0.24.
DRAWS = (0, 1, 2, 3)
#: So many inputs that are tried first tell whether a search would begin as another one did.
FIRST = 8
#: The most further tries for inputs without the faults of the first that ran.
MAX_BETTER = 12


@dataclass(frozen=True, slots=True)
class Searched:
    """spec: inputs with which the forward succeeds, None if none were found.  how: one sentence.

    likely: inputs that get as far as any, if all that get so far meet the same error: it is the forward's own.
    plausible: inputs that get as far as any, if all that get so far fail at the same line.
    errors: the errors of those that got furthest, one of each kind.
    led: the inputs whose errors led to `spec`, from the first on, each with its error.  first: as `digest_first` gives;
    "" if others were tried, too: with another text they may run.
    """

    spec: Inputs | None
    how: str
    likely: Inputs | None = None
    errors: tuple[BaseException, ...] = ()
    plausible: Inputs | None = None
    led: Led = ()
    first: str = ""


def search_inputs(
    model: nn.Module, hooks: Hooks, attempts: int = MAX_ATTEMPTS, budget: Budget | None = None
) -> Searched:
    """Search for inputs with which the model's forward succeeds, within `attempts` attempts and a budget."""
    mode = model.training
    budget = budget or Budget.of(MAX_STEPS, lambda: hooks.shadows.steps)
    put_in_mode(model, False)
    trying, best, left = _Search(model, hooks), _Best(model), attempts
    try:
        while left > 0 and (candidate := trying.frontier.next()) is not None:
            left -= 1
            if trying.succeeds(candidate) and not trying.is_evasive(candidate):
                candidate = next(filter(trying.succeeds, _iterate_usual_sides(candidate)), candidate)
                left = min(left, MAX_BETTER) if best.candidate is None else left
                best.add(candidate)
                if not best.faults:
                    break
            if budget.is_spent() or (best.candidate is None and trying.furthest.is_certain()):
                break
    finally:
        put_in_mode(model, mode)
    if best.candidate is not None:
        how = f"found by search: {best.candidate.why()}"
        first = digest_first(model) if trying.tries == len(best.candidate.led) + 1 else ""
        return Searched(best.candidate.inputs, how, led=best.candidate.led, first=first)
    return trying.without_success()


def _iterate_usual_sides(candidate: Candidate) -> Iterator[Candidate]:
    """The same with smaller images of usual sides, if an error was solved for a side that nobody uses."""
    sizes = candidate.inputs.sizes
    side = sizes.get("H", 0)
    if candidate.depth and "D" not in sizes and side == sizes.get("W") and side not in IMAGE_SIDES:
        for usual in sorted((each for each in IMAGE_SIDES if SMALLEST_MAP < each < side), reverse=True):
            yield replace(candidate, inputs=Inputs(candidate.inputs.entries, {**sizes, "H": usual, "W": usual}))


@dataclass(slots=True)
class _Best:
    """Of the candidates that run, the one with the fewest faults; of several, the first."""

    model: nn.Module
    candidate: Candidate | None = None
    faults: int = 0

    def add(self, candidate: Candidate) -> None:
        """Compare a candidate that runs."""
        faults = count_faults(self.model, candidate.inputs)
        if self.candidate is None or faults < self.faults:
            self.candidate, self.faults = candidate, faults


class _Search:
    """The tries of one search, and their errors."""

    def __init__(self, model: nn.Module, hooks: Hooks) -> None:
        self.model, self.hooks = model, hooks
        self.frontier, self.furthest = Frontier(model), Furthest()
        self.errors: list[str] = []
        self.tries = 0

    def succeeds(self, candidate: Candidate) -> bool:
        """Try a candidate; its error leads to other candidates."""
        self.tries += 1
        tried = _try_inputs(self.model, candidate.inputs, self.hooks, self.furthest.counting)
        if tried is None or tried.error is None:
            return tried is not None
        self._note_failure(candidate, tried.values, tried.error)
        return False

    def is_evasive(self, candidate: Candidate) -> bool:
        """Does a changed candidate only avoid a mistake of the forward's own that the usual ones meet?"""
        return candidate.depth > 0 and any(map(is_unavoidable, self.furthest.errors()))

    def _note_failure(self, candidate: Candidate, values: InputValues, error: BaseException) -> None:
        self.errors.append(describe_error(error))
        failed = Failed.of(self.model, candidate.inputs, values, error, self.furthest.completed)
        # A change that leads no further is evidence about the search, not about the forward.
        if candidate.came_to < failed.progress or candidate.came_to < 0:
            self.furthest.failed(candidate.inputs, error, of_inputs=failed.is_of_inputs())
        self.frontier.failed(candidate, failed)

    def without_success(self) -> Searched:
        """The result when nothing succeeded."""
        tries = f"{len(self.errors)} tries failed ({list_attempts(self.errors)})"
        how = tries if self.errors else "nothing in the code tells what they may be"
        furthest = self.furthest
        return Searched(None, how, furthest.likely(), furthest.errors(), furthest.plausible())


#: Exceptions of making inputs, and of binding them to a forward.
_NO_INPUTS = (TypeError, ValueError, KeyError, AttributeError)


class _Tried(NamedTuple):
    """A try of inputs. values: the last that were given; error: what the forward raised with them, if it did."""

    values: InputValues
    error: BaseException | None


def _try_inputs(
    model: nn.Module,
    inputs: Inputs,
    hooks: Hooks,
    counting: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> _Tried | None:
    """Run a forward with the least and greatest values of inputs, then with usual ones; None if they cannot be made.

    counting: surrounds each run.
    """
    try:
        for made in (extremes_at(inputs), inputs_at(inputs, largest=LARGEST_FILLED)):
            tried = _Tried(on_meta(made, hooks.shadows), None)
            with counting():
                if tried.values or not inputs.entries:
                    tried = tried._replace(error=_attempt_values(model, tried.values, hooks))
            if tried.error is not None:
                break
    except (*_NO_INPUTS, MemoryError, RuntimeError):  # a container that takes other members, or no memory for them
        return None
    return tried


def _attempt_values(model: nn.Module, values: InputValues, hooks: Hooks) -> BaseException | None:
    hooks.shadows.steps += TRY_STEPS
    args, kwargs = call_arguments(model, values)
    # A forward draws the same by chance in every try, and inputs have to run whatever it draws.
    for seed in DRAWS:
        with drawing_from(seed) as has_drawn:
            error = hooks.attempt(model, args, kwargs)
            if error is not None or not has_drawn():
                return error
    return None


def digest_first(model: nn.Module) -> str:
    """A hash of the inputs that are tried first, which come from the names and the code of the forward."""
    first = itertools.islice(Frontier(model).iterate_seeds(), FIRST)
    told = [(get_inputs_key(each.inputs), each.why()) for each in first]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def fails_alike(model: nn.Module, led: Led, hooks: Hooks) -> bool:
    """Do the inputs that led to others still fail, each with its error? Otherwise a search would find others now."""
    mode = model.training
    put_in_mode(model, False)
    try:
        return all(_describe_failure(model, inputs, hooks) == error for inputs, error in led)
    finally:
        put_in_mode(model, mode)


def _describe_failure(model: nn.Module, inputs: Inputs, hooks: Hooks) -> str:
    """The error of a try, "" if it succeeds or cannot be made."""
    tried = _try_inputs(model, inputs, hooks)
    return "" if tried is None or tried.error is None else describe_error(tried.error)


def can_run(model: nn.Module, inputs: Inputs, hooks: Hooks) -> bool:
    """Does the forward succeed with these inputs?"""
    try:
        args, kwargs = call_arguments(model, on_meta(inputs_at(inputs, largest=LARGEST_FILLED), hooks.shadows))
        return hooks.attempt(model, args, kwargs) is None
    except (TypeError, ValueError):  # inputs of another signature
        return False


# The order of tries: candidates in their own order, and before them those that errors suggest, furthest first.

#: The most combinations of candidates that are sorted before any is tried.
MAX_COMBINATIONS = 4000
#: One in so many tries is the next candidate in order, whatever errors suggest.
TURN = 4
#: The most other candidates that are tried in place of one that an error is about.
MAX_OTHERS = 6
#: As many of these are tried before a tried candidate is changed.
MAX_USUAL = 5
#: The rank of a try whose error says exactly what to change.
SURE = 1 << 20


_STRUCTURE = re.compile(
    r"'str'|not str$|too many indices|shape of the mask|^KeyError|has no attribute|must be a mapping|values to unpack"
    r"|one type,|Promotion of int|predicate to be bool|with a bool tensor|used as indices must be|'indices'|have \d dim"
    r"|k not in range"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Inputs to try. picked: the inputs they started from.  came_to: the progress of the inputs they were changed from.

    came_to is -1, and depth 0, for unchanged inputs; depth: the number of changes so far.  met: the kinds of errors
    that led to the changes.  led: as of `Searched`.
    """

    inputs: Inputs
    picked: Mapping[str, Choice]
    came_to: int = -1
    depth: int = 0
    met: frozenset[str] = frozenset()
    led: Led = ()

    def why(self) -> str:
        """The assumptions, as a clause for each input."""
        return "; ".join(self._explain_entry(name, spec) for name, spec in self.inputs.entries.items())

    def _explain_entry(self, name: str, spec: Spec) -> str:
        choice = self.picked.get(name)
        if choice is not None and choice.spec == spec:
            return f"{name} = {choice.why}"
        return f"{format_inputs(Inputs({name: spec}))}, as the errors of other tries suggested"


class Frontier:
    """Candidates that are still to be tried."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.choices = model, choices_for(model)
        sets = from_library(model) or [dict(self.choices)]
        sides = told_sides(model)
        self._sets, self._sides = sets, sides
        self._seeds = self.iterate_seeds()
        self._waiting: list[tuple[int, int, int, Candidate]] = []
        self._tried: set[str] = set()
        self._best: dict[str, tuple[int, int]] = {}
        self._order = itertools.count()
        self._serve_events = 0

    def iterate_seeds(self) -> Iterator[Candidate]:
        """The candidates that no error suggests, the likeliest first."""
        return _in_turn([_iterate_seeds(choices, self._sides) for choices in self._sets])

    def next(self) -> Candidate | None:
        """The candidate to try; None if nothing is left."""
        self._serve_events += 1
        sources = (
            [self._iterate_led(), self._seeds] if self._serve_events % TURN else [self._seeds, self._iterate_led()]
        )
        for candidate in itertools.chain(*sources):
            text = get_inputs_key(candidate.inputs)
            if text not in self._tried and is_small(candidate.inputs):
                self._tried.add(text)
                return candidate
        return None

    def _iterate_led(self) -> Iterator[Candidate]:
        while self._waiting:
            yield heapq.heappop(self._waiting)[-1]

    def failed(self, candidate: Candidate, failed: Failed) -> None:
        """Derive others from a candidate's error: changes of it, then other choices for the failing input."""
        usual, others = self._list_other_choices(failed)
        changed = propose_changes(failed)
        # The change for an index out of range, or for what a check compares or tells, is certainly better, however far
        # it got.
        is_sure = isinstance(failed.error, OutOfRangeError) or any(
            next(row(failed), None) is not None for row in CERTAIN
        )
        sure = changed[:1] if is_sure else []
        met = re.sub(r"\d+", "0", failed.text)
        # An error that was not met before, at the same place, counts as half a step further.
        progress = 2 * failed.progress + (bool(candidate.met) and met not in candidate.met)
        # If channels do not agree, keys are read, or a table of positions is added, the error is better evidence than
        # names.
        telling = failed.trail.name in CHANNELS or _STRUCTURE.search(failed.text) or failed.meets_table()
        telling = telling or meets_mask(failed) or next(propose_partners(failed), None) is not None
        if tells_ranks(failed) and any(choice.told for choice in candidate.picked.values()):
            telling = False  # words of another number of dimensions are about something else
        telling = telling or tells_shape(failed)
        telling = telling or any(next(row(failed), None) is not None for row in (propose_joined, propose_element_types))
        first = changed + usual if telling else usual + changed
        led = (*candidate.led, (candidate.inputs, describe_error(failed.error)))
        for rank, tier, found in ((SURE, 0, sure), (progress, 0, first), (progress, 1, others)):
            for inputs in found:
                depth = candidate.depth + 1
                again = Candidate(
                    complete_sizes(inputs), candidate.picked, failed.progress, depth, candidate.met | {met}, led
                )
                self._queue_candidate(again, (-rank, depth + tier))

    def _queue_candidate(self, candidate: Candidate, place: tuple[int, int]) -> None:
        """Queue a candidate by its rank, unless it already waits at a better place."""
        text = get_inputs_key(candidate.inputs)
        if text not in self._tried and (text not in self._best or place < self._best[text]):
            self._best[text] = place
            heapq.heappush(self._waiting, (*place, next(self._order), candidate))

    def _list_other_choices(self, failed: Failed) -> tuple[list[Inputs], list[Inputs]]:
        """Other choices for the input that the error is about: first if it has usual ones by its name, then the
        rest."""
        usual: list[Inputs] = []
        others: list[Inputs] = []
        for name in dict.fromkeys(str(path[0]) for path, _ in failed.suspects()):
            if name not in self.choices:
                self.choices[name] = choices_of(self.model, name)
            choices = self.choices[name][: 1 + MAX_OTHERS]
            entries = ({**failed.inputs.entries, name: each.spec} for each in choices)
            found = [Inputs(_as_graph(each), failed.inputs.sizes) for each in entries]
            # A choice by layer or by name comes before a change of sizes.
            known = len(found) - sum(each.why.endswith(("a guess", "like the others")) for each in choices)
            usual += found[: min(known, MAX_USUAL)]
            others += found[min(known, MAX_USUAL) :]
        return usual, others


def _in_turn(seeds: list[Iterator[Candidate]]) -> Iterator[Candidate]:
    """The first of each, then the second of each, and so on."""
    for row in itertools.zip_longest(*seeds):
        yield from (candidate for candidate in row if candidate is not None)


def _iterate_seeds(choices: Mapping[str, list[Choice]], sides: tuple[int, int] | None = None) -> Iterator[Candidate]:
    """Inputs to try, the likeliest first: early candidates at early sizes. sides: of the model's images, if told."""
    ranks = itertools.product(*(range(len(each)) for each in choices.values()))
    combinations = sorted(itertools.islice(ranks, MAX_COMBINATIONS), key=sum)
    waiting: list[tuple[int, int, dict[str, Choice], dict[str, int]]] = []
    for order, ranking in enumerate(combinations):
        picked = {name: each[rank] for (name, each), rank in zip(choices.items(), ranking, strict=True)}
        symbols = {symbol for choice in picked.values() for symbol in _collect_symbols(choice.spec)}
        sizes = size_choices(symbols, sides)
        waiting += [(sum(ranking) + index, order, picked, size) for index, size in enumerate(sizes)]
    for _, _, picked, size in sorted(waiting, key=lambda each: each[:2]):
        yield Candidate(_make_inputs(picked, size), picked)


def _collect_symbols(spec: Spec) -> set[str]:
    return {dim for leaf in iterate_leaves(spec) for dim in leaf.dims if isinstance(dim, str)}


def _make_inputs(picked: Mapping[str, Choice], size: Mapping[str, int]) -> Inputs:
    entries = {name: choice.spec for name, choice in picked.items()}
    entries = _as_graph(entries)
    used = Inputs(entries).symbols()
    return complete_sizes(Inputs(entries, {name: value for name, value in size.items() if name in used}))


def _as_graph(entries: dict[str, Spec]) -> dict[str, Spec]:
    """Give features of nodes as many rows as edges may point to, and features of edges as many as there are edges."""
    leaves = [leaf for spec in entries.values() for leaf in iterate_leaves(spec)]
    known = [leaf for leaf in leaves if "N" in (*leaf.dims[-2:-1], leaf.argument)]
    # A record without edges may have the graph of each node.
    records = [spec for spec in entries.values() if isinstance(spec, MapSpec)]
    known = known or [
        leaf for spec in records for leaf in iterate_leaves(spec) if leaf.dims == ("N",) and leaf.dtype == "i64"
    ]
    if not known:
        return entries
    batched = known[0].dims[:1] == ("B",)
    return {name: _of_nodes(spec, batched, "edge" in name) for name, spec in entries.items()}


def _without_time(spec: Spec) -> Spec:
    """The features of each node of a record, which no graph has for each moment."""
    if isinstance(spec, TensorSpec) and spec.dims[:2] == ("B", "T") and len(spec.dims) == 3:
        return replace(spec, dims=("B", spec.dims[2]))
    return spec


def _of_nodes(spec: Spec, batched: bool, is_edges: bool) -> Spec:
    if isinstance(spec, MapSpec):
        parts = ((key, item if batched else _without_time(item)) for key, item in spec.items)
        items = tuple((key, _of_nodes(item, batched, "edge" in key)) for key, item in parts)
        return replace(spec, items=items)
    if isinstance(spec, SequenceSpec):
        return replace(spec, items=tuple(_of_nodes(item, batched, is_edges) for item in spec.items))
    if isinstance(spec, TensorSpec) and spec.dtype == "f32" and "N" not in spec.dims:
        match spec.dims:
            case ("B", features) if not batched:
                return replace(spec, dims=("E" if is_edges else "N", features))
            case ("B", "T", features) | ("B", features) if batched:
                return replace(spec, dims=("B", "N", features))
    return spec


# Changes of inputs that the error of the last ones suggests: the rows of every kind of trouble, in turn.


def propose_changes(failed: Failed) -> list[Inputs]:
    """Inputs to try next, the likeliest first; none for an error that no inputs avoid."""
    if isinstance(failed.error, MissingPackageError):
        return []
    rows = ((row, match) for pattern, row in ROWS if (match := re.search(pattern, failed.text)))
    proposed = itertools.chain(
        itertools.chain.from_iterable(row(failed) for row in CERTAIN),
        propose_alike(failed),
        propose_partners(failed),
        propose_joined(failed),
        propose_element_types(failed),
        itertools.chain.from_iterable(row(failed, match) for row, match in rows),
        propose_agreements(failed),
        level_ranks(failed),
        propose_shorter(failed),
    )
    alike = itertools.chain.from_iterable(_keep_members_alike(failed.inputs, each) for each in proposed)
    small = (_shrink_maps(each) for each in alike if each != failed.inputs)
    return list(itertools.islice((each for each in small if is_small(each)), MAX_CHANGES))


def _keep_members_alike(before: Inputs, changed: Inputs) -> Iterator[Inputs]:
    """A change of one member of a list, first for all members if they were alike, as those are that code stacks."""
    for name, spec in changed.entries.items():
        had = before.entries.get(name)
        if isinstance(spec, SequenceSpec) and isinstance(had, SequenceSpec) and len(set(map(repr, had.items))) == 1:
            others = [item for item in spec.items if item != had.items[0]]
            if len(others) == 1 and len(spec.items) > 1:
                yield put_member(changed, (name,), replace(spec, items=(others[0],) * len(spec.items)))
    yield changed


def _shrink_maps(inputs: Inputs) -> Inputs:
    """The same with smaller maps, if a change of channels made them too large."""
    side = inputs.sizes.get("H", 0)
    while not is_small(inputs) and (side := side // 2) >= SMALLEST_MAP:
        inputs = Inputs(inputs.entries, {**inputs.sizes, "H": side, "W": side})
    return inputs


def tells_ranks(failed: Failed) -> bool:
    """Is the error about a number of dimensions?"""
    return any(re.search(pattern, failed.text) for pattern, _ in RANKS)


def tells_shape(failed: Failed) -> bool:
    """Does a check of the forward's own say which shape it wants, or which of two sizes, or a loss that of targets?"""
    if next(propose_alike(failed), None) is not None:
        return True
    return any(re.search(pattern, failed.text) for pattern, _ in TOLD_TARGETS) or (
        is_check(failed.error) and any(re.search(pattern, failed.text) for pattern, _ in (*TOLD_RANKS, *TOLD_SIZES))
    )


def is_small(inputs: Inputs) -> bool:
    """Are the sizes sane? Neither the runaway result of equations, nor slow to fill."""
    specs = [spec for _, spec in iterate_tensor_specs(inputs)]
    shapes = [shape_of(inputs, spec) for spec in specs]
    most = [MAX_ELEMENTS if spec.dtype.startswith("f") else MAX_WHOLE_NUMBERS for spec in specs]
    return all(
        math.prod(shape) <= limit and min(shape, default=1) > 0 for shape, limit in zip(shapes, most, strict=True)
    )
