"""Which inputs to try next: candidates in their own order, and before them what errors led to, furthest first."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import nn

from mase_server.inputs.generate import complete
from mase_server.inputs.searching.changes import changes, is_small
from mase_server.inputs.searching.choices import choices_for, choices_of, from_library
from mase_server.inputs.searching.consumers import size_choices
from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.operands import CHANNELS
from mase_server.inputs.searching.singles import Choice
from mase_server.inputs.searching.trees import identity
from mase_server.inputs.spec import Inputs, MapSpec, Spec, TensorSpec, leaves
from mase_server.inputs.text import write
from mase_server.tracing.errors.bounds import OutOfRangeError

#: Combinations of candidates that are put in order before any is tried.
MAX_COMBINATIONS = 4000
#: Of so many tries, one is the next candidate in order, whatever errors have led to.
TURN = 4
#: Other candidates that are tried in place of one that an error is about.
MAX_OTHERS = 6
#: As many of these are tried before what was tried is changed.
MAX_USUAL = 5
#: What a try is ranked by whose error says just what to change.
SURE = 1 << 20


_STRUCTURE = re.compile(
    r"'str'|not str$|too many indices|shape of the mask|^KeyError|has no attribute|must be a mapping|values to unpack"
    r"|one type,|Promotion of int|predicate to be bool|with a bool tensor|used as indices must be|'indices'"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Inputs to try. picked: what they started from.  came_to: how far what they were changed from came.

    came_to is -1, and depth 0, where nothing was changed; depth: how many changes lie behind.  met: what kind of error
    they were changed for.
    """

    inputs: Inputs
    picked: Mapping[str, Choice]
    came_to: int = -1
    depth: int = 0
    met: str = ""

    def why(self) -> str:
        """What was assumed, as a clause for each input."""
        return "; ".join(self._why(name, spec) for name, spec in self.inputs.entries.items())

    def _why(self, name: str, spec: Spec) -> str:
        choice = self.picked.get(name)
        if choice is not None and choice.spec == spec:
            return f"{name} = {choice.why}"
        return f"{write(Inputs({name: spec}))}, as the errors of other tries suggested"


class Frontier:
    """Candidates that are still to be tried."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.choices = model, choices_for(model)
        sets = from_library(model) or [dict(self.choices)]
        self._seeds = _in_turn([_seeds(choices) for choices in sets])
        self._waiting: list[tuple[int, int, int, Candidate]] = []
        self._tried: set[str] = set()
        self._best: dict[str, tuple[int, int]] = {}
        self._order = itertools.count()
        self._turn = 0

    def next(self) -> Candidate | None:
        """The candidate to try; None where nothing is left."""
        self._turn += 1
        sources = [self._led(), self._seeds] if self._turn % TURN else [self._seeds, self._led()]
        for candidate in itertools.chain(*sources):
            text = identity(candidate.inputs)
            if text not in self._tried and is_small(candidate.inputs):
                self._tried.add(text)
                return candidate
        return None

    def _led(self) -> Iterator[Candidate]:
        while self._waiting:
            yield heapq.heappop(self._waiting)[-1]

    def failed(self, candidate: Candidate, failed: Failed) -> None:
        """Think of others by the error that a candidate met: changes of it, then other choices for what failed."""
        usual, others = self._others(failed)
        changed = changes(failed)
        # What comes of an index that was out of range is sure to be better, however far that got.
        sure = changed[:1] if isinstance(failed.error, OutOfRangeError) else []
        met = re.sub(r"\d+", "0", failed.text)
        # Another error at the same place is half a step further.
        progress = 2 * failed.progress + (candidate.met not in ("", met))
        # Where channels do not agree, or keys are read, the error says more than names do.
        telling = failed.trail.name in CHANNELS or _STRUCTURE.search(failed.text)
        first = changed + usual if telling else usual + changed
        for rank, tier, found in ((SURE, 0, sure), (progress, 0, first), (progress, 1, others)):
            for inputs in found:
                depth = candidate.depth + 1
                again = Candidate(complete(inputs), candidate.picked, failed.progress, depth, met)
                self._wait(again, (-rank, depth + tier))

    def _wait(self, candidate: Candidate, place: tuple[int, int]) -> None:
        """Put a candidate where it belongs, if it does not wait at a better place."""
        text = identity(candidate.inputs)
        if text not in self._tried and (text not in self._best or place < self._best[text]):
            self._best[text] = place
            heapq.heappush(self._waiting, (*place, next(self._order), candidate))

    def _others(self, failed: Failed) -> tuple[list[Inputs], list[Inputs]]:
        """Other choices for what the error is about: those of what has usual ones by its name, and the rest."""
        usual: list[Inputs] = []
        others: list[Inputs] = []
        for name in dict.fromkeys(str(path[0]) for path, _ in failed.suspects()):
            if name not in self.choices:
                self.choices[name] = choices_of(self.model, name)
            choices = self.choices[name][: 1 + MAX_OTHERS]
            entries = ({**failed.inputs.entries, name: each.spec} for each in choices)
            found = [Inputs(_as_graph(each), failed.inputs.sizes) for each in entries]
            # What is told by a layer or by the name comes before a change of sizes.
            known = len(found) - sum(each.why.endswith(("a guess", "like the others")) for each in choices)
            usual += found[: min(known, MAX_USUAL)]
            others += found[min(known, MAX_USUAL) :]
        return usual, others


def _in_turn(seeds: list[Iterator[Candidate]]) -> Iterator[Candidate]:
    """The first of each, then the second of each, and so on."""
    for row in itertools.zip_longest(*seeds):
        yield from (candidate for candidate in row if candidate is not None)


def _seeds(choices: Mapping[str, list[Choice]]) -> Iterator[Candidate]:
    """Inputs to try, the likeliest first: early candidates at early sizes."""
    ranks = itertools.product(*(range(len(each)) for each in choices.values()))
    combinations = sorted(itertools.islice(ranks, MAX_COMBINATIONS), key=sum)
    waiting: list[tuple[int, int, dict[str, Choice], dict[str, int]]] = []
    for order, ranking in enumerate(combinations):
        picked = {name: each[rank] for (name, each), rank in zip(choices.items(), ranking, strict=True)}
        symbols = {symbol for choice in picked.values() for symbol in _symbols(choice.spec)}
        sizes = size_choices(symbols)
        waiting += [(sum(ranking) + index, order, picked, size) for index, size in enumerate(sizes)]
    for _, _, picked, size in sorted(waiting, key=lambda each: each[:2]):
        yield Candidate(_inputs(picked, size), picked)


def _symbols(spec: Spec) -> set[str]:
    return {dim for leaf in leaves(spec) for dim in leaf.dims if isinstance(dim, str)}


def _inputs(picked: Mapping[str, Choice], size: Mapping[str, int]) -> Inputs:
    entries = {name: choice.spec for name, choice in picked.items()}
    entries = _as_graph(entries)
    used = Inputs(entries).symbols()
    return complete(Inputs(entries, {name: value for name, value in size.items() if name in used}))


def _as_graph(entries: dict[str, Spec]) -> dict[str, Spec]:
    """Features of nodes have as many rows as edges may point to; those of edges have as many as there are edges."""
    known = [leaf for spec in entries.values() for leaf in leaves(spec) if "N" in (*leaf.dims[-2:-1], leaf.argument)]
    if not known:
        return entries
    batched = known[0].dims[:1] == ("B",)
    return {name: _of_nodes(spec, batched, "edge" in name) for name, spec in entries.items()}


def _of_nodes(spec: Spec, batched: bool, is_edges: bool) -> Spec:
    if isinstance(spec, MapSpec):
        items = tuple((key, _of_nodes(item, batched, "edge" in key)) for key, item in spec.items)
        return replace(spec, items=items)
    if isinstance(spec, TensorSpec) and spec.dtype == "f32" and "N" not in spec.dims:
        match spec.dims:
            case ("B", features) if not batched:
                return replace(spec, dims=("E" if is_edges else "N", features))
            case ("B", "T", features) | ("B", features) if batched:
                return replace(spec, dims=("B", "N", features))
    return spec
