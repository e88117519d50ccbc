"""Probing: record again at other sizes, and see how every dimension and every integer argument moves.

Roles (`inputs.roles`) only propose which dimensions may vary; a proposal counts if the forward runs at two other
sizes with the same structure. A model that fails keeps its symbols up to the error, but not those of images: it has
not proved yet that it takes any image size. Where values decide the path, a run at the same sizes with other values
tells which sizes depend on values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from mase_server.ops.types import Kwargs, TensorType
from mase_server.tracing.recording.calls import Call, Constant, Event, Run
from mase_server.tracing.recording.values import DictOf, Python, TupleOf, Value
from mase_server.tracing.symbols.fitting import Expr, Fitter, tells_apart
from mase_server.visible import reveal

RunAt = Callable[[Mapping[str, int]], Run]
_Found = tuple[Mapping[str, int], Run]
_Entry = TypeVar("_Entry", Call, Event)

_PRIMES = tuple(n for n in range(3, 4100, 2) if all(n % d for d in range(3, int(n**0.5) + 1, 2)))
_BATCHES = (5, 3, 7, 11, 13)
IMAGE_SYMBOLS = frozenset({"H", "W"})
BATCH_SYMBOLS = frozenset({"B"})
#: Probes beyond the usual two, for ambiguous fits.
FURTHER_PROBES = 5


#: How far from the base's size one is looked for that tells most; images, whose runs cost the square, stay nearer.
NEAR, NEAR_IMAGE = 400, 160
#: Sizes that are looked at for one at which no symbol is an affine image of another.
MOST_CANDIDATES = 40


class MismatchError(Exception):
    """Two recordings do not have the same structure."""


#: What was searched for -> the sizes that `telling_sizes` found.
Telling = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Probed:
    """The result of probing.

    points: the sizes of the base run and of each probe.  runs: the recordings, the base first.  fixed: symbol -> why
    it cannot vary.  arguments: call index -> (args, kwargs) with `Expr` for the integers that vary.  telling: for the
    next probing.
    """

    points: list[Mapping[str, int]]
    runs: list[Run]
    fitter: Fitter
    fixed: dict[str, str] = field(default_factory=dict)
    arguments: dict[int, tuple[tuple[Any, ...], Kwargs]] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)
    telling: Telling = field(default_factory=dict)

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols that may vary, with their sizes in the base run."""
        return {name: self.points[0][name] for name in self.fitter.symbols}

    @property
    def generic(self) -> bool:
        """Can the graph be built for all sizes of its symbols?"""
        return bool(self.symbols) and not self.obstacles


Sizing = Callable[[str, int, int, int], Iterator[int]]


def choose_sizes(sizes: Mapping[str, int], attempt: int, sizing: Mapping[str, Sizing] | None = None) -> dict[str, int]:
    """Sizes for probe number `attempt` (from 0): distinct, never 0 or 1, different from the base's and earlier probes'.

    sizing: symbol -> how its candidates are made; `usual_sizes` by default.
    """
    visited: list[dict[str, int]] = []
    for number in range(attempt + 1):
        visited.append(_sizes_besides(visited, sizes, number, sizing or {}))
    return visited[-1]


def _sizes_besides(
    earlier: Sequence[Mapping[str, int]], sizes: Mapping[str, int], attempt: int, sizing: Mapping[str, Sizing]
) -> dict[str, int]:
    taken = set(sizes.values())
    chosen: dict[str, int] = {}
    for position, (name, size) in enumerate(sizes.items()):
        made = sizing.get(name, usual_sizes)(name, size, attempt, position)
        fresh = (each for each in made if each not in taken and all(point.get(name) != each for point in earlier))
        candidates = list(islice(fresh, MOST_CANDIDATES))
        if candidates:
            known = [{**chosen, name: each} for each in candidates]
            good = (point[name] for point in known if tells_apart([sizes, *earlier, point]))
            chosen[name] = next(good, candidates[0])
            taken.add(chosen[name])
    return chosen


def usual_sizes(name: str, size: int, attempt: int, position: int) -> Iterator[int]:
    """Coprime sizes: small batches, lengths below the base's (tables of positions are bounded), image sizes near it."""
    if name in BATCH_SYMBOLS:
        yield from _BATCHES[attempt:]
    elif name in IMAGE_SYMBOLS:
        # One more and one less than a multiple of 64 distinguish floor from ceiling division by every power of two.
        block = max(1, round(size / 64)) + position
        yield from (64 * (block + step) + (1 if (attempt + position) % 2 == 0 else -1) for step in range(attempt, 40))
    elif size >= 12:
        start = size * (4 - attempt % 3) // 5 - position
        below = sorted((prime for prime in _PRIMES if prime < size), key=lambda prime: abs(prime - start))
        yield from (prime - (attempt > 1) for prime in below)
    yield from larger_sizes(name, size, attempt, position)


def telling_sizes(probed: Probed, usual: Mapping[str, int]) -> dict[str, int]:
    """Sizes near the base's that refute more candidates of ambiguous fits than the usual ones do."""
    fitter, chosen = probed.fitter, dict[str, int]()
    for name in sorted({name for fits in fitter.candidates.values() for fit in fits for name in fit.symbols}):
        used, size = {point[name] for point in probed.points}, probed.points[0][name]
        farthest = NEAR_IMAGE if name in IMAGE_SYMBOLS else NEAR
        near = (size + step for away in range(farthest) for step in (-away, away))
        fresh = [each for each in near if each > 1 and each not in used]
        best = max(fresh, key=lambda size: fitter.refuted_at({**usual, **chosen, name: size}))
        if fitter.refuted_at({**usual, **chosen, name: best}) > fitter.refuted_at({**usual, **chosen}):
            chosen[name] = best
    return chosen


def _digest_candidates(probed: Probed, usual: Mapping[str, int]) -> str:
    """A hash of all that `telling_sizes` depends on."""
    candidates = [list(map(str, fits)) for fits in probed.fitter.candidates.values()]
    return _digest(repr(([dict(point) for point in probed.points], dict(usual), candidates)))


def larger_sizes(name: str, size: int, attempt: int, position: int) -> Iterator[int]:
    """Primes above the base's size, for sizes that must not shrink; after two odd sizes also even ones."""
    yield from (prime + (attempt > 1) for prime in _PRIMES if prime > size + 4 * attempt + position)


def multiple_sizes(name: str, size: int, attempt: int, position: int) -> Iterator[int]:
    """Multiples of the base's size, for sizes that must be divisible."""
    yield from (size * factor for factor in range(2 + attempt + position, 12))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Prober:
    """Finds which symbols of `sizes` may vary, and how everything depends on them.

    run_at records the model at given sizes; an exception means that the model cannot run there.
    """

    def __init__(self, base: Run, sizes: Mapping[str, int], run_at: RunAt, telling: Telling | None = None) -> None:
        """telling: of the last probing of the model, which may have been another one."""
        self.base, self.sizes, self._run_at = base, dict(sizes), run_at
        self._known_telling = telling or {}
        self._telling: dict[str, Mapping[str, int]] = {}
        self.fixed: dict[str, str] = {}
        self._sizing: dict[str, Sizing] = {}
        #: The sizes at which a symbol could vary alone; together with others the usual ones may be too large.
        self._worked: dict[str, list[int]] = {}
        self._reason = self._mismatch = self._otherwise = ""
        self._others: list[_Found] = []
        #: Informative sizes at which the model cannot run, or runs otherwise; they are not tried again.
        self._useless: list[Mapping[str, int]] = []
        self._loose = self._loosened = False

    def follow_values(self, other: Run) -> None:
        """The model's path may depend on values; `other` is one run at the base's sizes with other values.

        Sizes that differ between such runs are no expression in the symbols, and probes may take other paths.
        """
        self._loose = True
        self._others.append((self.sizes, self._match_to_base(other)))

    def _match_to_base(self, run: Run) -> Run:
        """The run if it has the base's structure, else the part of it that can be matched; raises if that is not
        allowed."""
        try:
            check_structure(self.base, run)
        except MismatchError:
            if not self._loose:
                raise
            self._loosened = True
            return match_structure(self.base, run)
        return run

    def probe(self, *, for_graph: bool = False) -> Probed:
        """Probe all symbols; of a picture whose sides do not explain other sizes, only the rest.

        for_graph: where the model computes a number that no size explains, such as that of padding to a multiple, a
        graph could be built for no other size of anything. Then only symbols of no picture vary, or only batches.
        """
        result = self._probe_at(list(self.sizes))
        # `x.view(-1, 784)` takes pictures of twice the side for four times the batch, which nobody means.
        mixed = {name for name in result.symbols if self._sizing.get(name) is multiple_sizes and name in IMAGE_SYMBOLS}
        if mixed and _has_unexplained(result):
            reason = "the model takes parts of the picture for further samples"
            return self._probe_without(mixed, reason, result) or result
        for dropped in (IMAGE_SYMBOLS, {*result.symbols} - BATCH_SYMBOLS):
            if for_graph and result.obstacles and not self._loosened:
                result = self._probe_without(dropped, result.obstacles[0], result) or result
        return result

    def _probe_without(self, dropped: Set[str], reason: str, result: Probed) -> Probed | None:
        """Probe the other symbols of a result alone; None unless that explains everything."""
        rest = [name for name in result.symbols if name not in dropped]
        if not rest or len(rest) == len(result.symbols):
            return None
        before = self.fixed, self._otherwise
        # Other ways that the model goes at sizes which do not vary are no obstacle.
        self.fixed = self.fixed | {name: reason for name in result.symbols if name in dropped}
        self._otherwise = ""
        alone = self._probe_at(rest)
        if alone.symbols and not _has_unexplained(alone):
            return alone
        self.fixed, self._otherwise = before
        return None

    def _probe_at(self, varied: list[str]) -> Probed:
        """Probe at two points, and at further ones while a fit rests on too few."""
        runs = self._run_both_probes(varied) if varied else []
        if not runs and varied:
            varied, runs = self._vary_separately(varied)
        result = self._build_result(runs)
        for attempt in range(2, 2 + FURTHER_PROBES):
            if not runs or not result.fitter.ambiguous:
                break
            further = self._run_further_probe(
                varied, attempt, self._telling_sizes(result, self._point(varied, attempt))
            )
            if further is None:
                break
            runs = [*runs, further]
            result = self._build_result(runs)
        if result.fitter.doubt(all_ambiguous=self._loose):
            result = self._build_result(runs, result.fitter)
        return result

    def _run_both_probes(self, varied: list[str], at: Mapping[str, Sequence[int]] | None = None) -> list[_Found]:
        """Both probes, or none if one of them fails. at: the two sizes of each symbol, by default the usual ones."""
        runs = []
        for attempt in (0, 1):
            found = self._try_probe(
                varied, attempt, None if at is None else {name: at[name][attempt] for name in varied}
            )
            if found is None:
                return []
            runs.append(found)
        return runs

    def _telling_sizes(self, result: Probed, usual: Mapping[str, int]) -> Mapping[str, int]:
        """As `telling_sizes`, which takes longer than a run: of the same candidates, the last probing knows them."""
        key = _digest_candidates(result, usual)
        known = self._known_telling.get(key)
        self._telling[key] = telling_sizes(result, usual) if known is None else known
        return self._telling[key]

    def _run_further_probe(self, varied: list[str], attempt: int, telling: Mapping[str, int]) -> _Found | None:
        """A probe at the most informative sizes; if the model does not run there, at the next usual ones."""
        found = None if telling in self._useless else self._try_probe(varied, attempt, telling)
        if found is None and telling:
            self._useless.append(telling)
            found = self._try_probe(varied, attempt)
        return found

    def _point(self, varied: list[str], attempt: int) -> dict[str, int]:
        sizes = {name: self.sizes[name] for name in varied}
        return {**self.sizes, **choose_sizes(sizes, attempt, self._sizing)}

    def _try_probe(self, varied: list[str], attempt: int, wanted: Mapping[str, int] | None = None) -> _Found | None:
        point = {**self._point(varied, attempt), **(wanted or {})}
        self._mismatch = ""
        try:
            run = self._match_to_base(self._run_at(point))
        except MismatchError as error:
            self._reason = self._mismatch = str(error)
            return None
        except Exception as error:  # noqa: BLE001 - user code may raise anything at sizes it was not made for
            text = str(error).strip().splitlines()
            self._reason = f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")
            return None
        return point, run

    def _vary_separately(self, varied: list[str]) -> tuple[list[str], list[_Found]]:
        """Each symbol alone (height and width together): those that may vary, combined, and both probes of them."""
        groups = [[name] for name in varied if name not in IMAGE_SYMBOLS]
        if images := [name for name in varied if name in IMAGE_SYMBOLS]:
            groups.append(images)
        found = [(group, self._vary_alone(group, tried=len(groups) == 1)) for group in groups]
        good = [(group, runs) for group, runs in found if runs]
        names = [name for group, _ in good for name in group]
        if len(good) > 1 and self._try_probe(names, 0) is not None:
            return names, self._run_both_probes(names) or self._run_both_probes(names, self._worked)
        first, runs = good[0] if good else ([], [])
        self.fixed |= dict.fromkeys(names[len(first) :], self._reason)
        return first, runs

    def _vary_alone(self, group: list[str], *, tried: bool) -> list[_Found]:
        """Both probes of this group alone; none if it cannot vary. `tried`: the usual sizes have just failed."""
        strategies: list[Sizing] = [] if tried else [usual_sizes]
        if not BATCH_SYMBOLS & set(group):
            strategies += [multiple_sizes] if IMAGE_SYMBOLS & set(group) else [larger_sizes, multiple_sizes]
        otherwise = self._mismatch if tried else ""
        for sizing in strategies:
            self._sizing |= dict.fromkeys(group, sizing)
            if runs := self._run_both_probes(group):
                self._worked |= {name: [point[name] for point, _ in runs] for name in group}
                self._otherwise = self._otherwise or otherwise
                return runs
            otherwise = otherwise or self._mismatch
        self.fixed |= dict.fromkeys(group, self._reason)
        return []

    def _build_result(self, runs: list[_Found], fitter: Fitter | None = None) -> Probed:
        runs = [*self._others, *runs]
        points = [self.sizes, *(point for point, _ in runs)]
        found = [self.base, *(run for _, run in runs)]
        result = Probed(points, found, fitter or Fitter(points), dict(self.fixed), telling=self._telling)
        if self._otherwise and runs:
            result.obstacles.append(self._otherwise)
        if self._loosened:
            result.obstacles.append("which operations run depends on values")
        elif runs:
            _fit_arguments(result)
        if runs:
            for values in _iterate_varying_dimensions(result):
                result.fitter.fit(values)
        return result


def _has_unexplained(result: Probed) -> bool:
    """Does a dimension vary in an unknown way?"""
    return any(result.fitter.fit(values) is None for values in _iterate_varying_dimensions(result))


def check_structure(base: Run, other: Run) -> None:
    """Raise `MismatchError` unless both recordings have the same calls and the same sequence of events."""
    if len(base.calls) != len(other.calls):
        raise MismatchError(f"{len(base.calls)} operations at one size, {len(other.calls)} at another")
    for first, second in zip(base.calls, other.calls, strict=True):
        if first.kind != second.kind or not _same_target(first.target, second.target):
            raise MismatchError(f"{name_of(first.target)} at one size, {name_of(second.target)} at another")
    if len(base.events) != len(other.events):
        raise MismatchError("other lines ran at another size")


_UNSEEN = Python("unseen")


def match_structure(base: Run, other: Run) -> Run:
    """`other` in the structure of `base`: each event and call beside its counterpart, unseen if there is none."""
    calls: dict[Any, list[Call]] = {}
    for call in reversed(other.calls):
        calls.setdefault((call.kind, name_of(call.target)), []).append(call)
    events: dict[int, list[Event]] = {}
    for event in reversed(other.events):
        events.setdefault(event.site, []).append(event)
    same_calls = [_take_counterpart(call, calls.get((call.kind, name_of(call.target)))) for call in base.calls]
    same_events = [_take_counterpart(event, events.get(event.site)) for event in base.events]
    return replace(other, calls=same_calls, events=same_events)


def _take_counterpart(mine: _Entry, waiting: list[_Entry] | None) -> _Entry:
    return waiting.pop() if waiting else replace(mine, value=_UNSEEN)


def _same_target(first: Any, second: Any) -> bool:
    return first is second or first == second


def name_of(target: Any) -> str:
    """A call's target for a message."""
    # The text of an object is the person's code.
    return target if isinstance(target, str) else getattr(target, "__name__", None) or type(target).__name__


def _iterate_varying_dimensions(result: Probed) -> Iterator[tuple[int, ...]]:
    """The sizes of every varying dimension over all runs."""
    rows = zip(*(run.calls for run in result.runs), strict=True)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for calls in rows:
        values = [call.value for call in calls]
        if all(value is values[0] for value in values) or not all(isinstance(value, TensorType) for value in values):
            continue
        shapes = tuple(value.shape for value in values if isinstance(value, TensorType))
        if shapes not in seen and len({len(shape) for shape in shapes}) == 1:
            seen.add(shapes)
            yield from (tuple(sizes) for sizes in zip(*shapes, strict=True) if len(set(sizes)) > 1)


def _fit_arguments(result: Probed) -> None:
    for index, calls in enumerate(zip(*(run.calls for run in result.runs), strict=True)):
        args, kwargs = [call.args for call in calls], [call.kwargs for call in calls]
        if all(item == args[0] for item in args) and all(item == kwargs[0] for item in kwargs):
            continue
        try:
            result.arguments[index] = (
                merge(args, result.fitter, result.runs),
                merge(kwargs, result.fitter, result.runs),
            )
        except MismatchError as error:
            result.obstacles.append(f"{name_of(calls[0].target)}: {error}")


def merge(values: Sequence[Any], fitter: Fitter, runs: Sequence[Run]) -> Any:
    """The same nested arguments seen at several sizes, with `Expr` where integers vary.

    Raises MismatchError if something varies that is no expression in the symbols.
    """
    first = values[0]
    if any(type(value) is not type(first) for value in values):
        raise MismatchError("an argument's type depends on the size")
    if isinstance(first, (list, tuple)):
        if any(len(value) != len(first) for value in values):
            raise MismatchError("the number of arguments depends on the size")
        items = [merge(parts, fitter, runs) for parts in zip(*values, strict=True)]
        return items if isinstance(first, list) else tuple(items)
    if isinstance(first, dict):
        if any(list(value) != list(first) for value in values):
            raise MismatchError("the names of the arguments depend on the size")
        return {key: merge([value[key] for value in values], fitter, runs) for key in first}
    if isinstance(first, slice):
        parts = [(value.start, value.stop, value.step) for value in values]
        return slice(*merge(parts, fitter, runs))
    if isinstance(first, Constant):
        return first
    if all(value == first for value in values):
        return first
    found = fitter.fit(tuple(values)) if type(first) is int else None
    if found is None:
        raise MismatchError(f"the value {first!r} depends on the size in an unknown way")
    return found


class Wire:
    """Values in the form of a payload, with symbols where runs at several sizes are known."""

    def __init__(self, probed: Probed | None, *, final: bool = False) -> None:
        """final: if no symbols are known, there are none; sizes are then written as numbers."""
        self._final = final or probed is not None
        self._fitter = probed.fitter if probed is not None and len(probed.runs) > 1 else None
        self._memo: dict[tuple[int, ...], str] = {}

    def value(self, values: Sequence[Value], names: Mapping[str, str]) -> Any:
        """`values` is the same value in the base run and in each probe; names: torch dtype -> short name."""
        first = values[0]
        if isinstance(first, TensorType):
            return [names.get(first.dtype, first.dtype), list(first.shape), self._format_shape(values)]
        if isinstance(first, TupleOf):
            columns = self._transpose_rows([value.items if isinstance(value, TupleOf) else () for value in values])
            return {"tuple": [self.value(column, names) for column in columns]}
        if isinstance(first, DictOf):
            rows = [[item for _, item in value.items] if isinstance(value, DictOf) else [] for value in values]
            keys = [reveal(key) for key, _ in first.items]
            return {"dict": dict(zip(keys, [self.value(c, names) for c in self._transpose_rows(rows)], strict=True))}
        return None if first.name == "None" else {"python": reveal(first.name)}

    def _transpose_rows(self, rows: list[Any]) -> list[list[Value]]:
        """The i-th items of all rows side by side; rows of another length contain nothing comparable."""
        length = len(rows[0])
        return [list(column) for column in zip(*(row for row in rows if len(row) == length), strict=True)]

    def _format_shape(self, values: Sequence[Value]) -> list[str] | None:
        first = values[0]
        assert isinstance(first, TensorType)
        if self._fitter is None:
            return [str(size) for size in first.shape] if self._final else None
        shapes = [value.shape for value in values if isinstance(value, TensorType)]
        if any(len(shape) != len(first.shape) for shape in shapes):
            return None
        if len(shapes) != len(self._fitter.points):
            return [str(sizes[0]) if len(set(sizes)) == 1 else "?" for sizes in zip(*shapes, strict=True)]
        return [self.text(tuple(sizes)) for sizes in zip(*shapes, strict=True)]

    def text(self, sizes: tuple[int, ...]) -> str:
        """One dimension: "768", "B*T", or "?" if it varies in no known way."""
        found = self._memo.get(sizes)
        if found is None:
            assert self._fitter is not None
            found = self._memo[sizes] = self._fitter.text(sizes)
        return found


__all__ = ["Expr", "MismatchError", "Probed", "Prober", "Wire", "check_structure", "choose_sizes", "merge", "name_of"]
