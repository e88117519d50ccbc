"""Guards: a recording's assumptions on sizes and values, checked where its graph runs.

Guards on sizes are checked by the code that the graph generates (`ir.build`), guards on values by nodes of their own.
Propagating types through a graph checks neither.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from mase_server.dtypes import SHORT
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.calling import is_symbolic
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.positions import Stack, resolve_mark
from mase_server.tracing.recording.sizes import ARITHMETIC, RELATIONS, Size, Term
from mase_server.tracing.recording.values import Value
from mase_server.tracing.symbols.fitting import Expr

Fit = Callable[[tuple[int, ...]], Expr | None]

#: Methods that read values to choose a branch.
CONDITIONS = ("__bool__", "is_nonzero")
#: Larger values are compared by their hash.
MOST_NUMBERS = 64


class GuardError(RuntimeError):
    """A graph is called with sizes or values for which it was not traced, so its result would differ from eager's.

    >>> class Mean(nn.Module):
    ...     def forward(self, x):
    ...         return x.sum(1) / x.shape[1]
    >>> graph = MaseGraph(Mean(), {"x": torch.ones(2, 5)})
    >>> try:
    ...     graph.model(torch.ones(2, 9))
    ... except GuardError as error:
    ...     print("x.shape[1] = 9" in str(error))
    True
    """


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a size: a dimension of a tensor in an input.

    path: the way to the tensor; for each step, whether it is an attribute, and its name or index.
    """

    name: str
    input: str
    path: tuple[tuple[bool, Any], ...]
    dimension: int


@dataclass(frozen=True, slots=True)
class Guard:
    """One assumption about sizes that held when the graph was traced: `relation` between two expressions of sizes.

    left, right: a number, the name of a source, or (operator, operand, operand).  place: file and line of the
    comparison. comment: one that lets the size vary if the code allows it, "" for none; files do not keep it.
    """

    relation: str
    left: Term
    right: Term
    place: str = ""
    comment: str = field(default="", compare=False)

    @property
    def names(self) -> set[str]:
        """The sizes that it mentions."""
        return set(_iterate_term_names(self.left)) | set(_iterate_term_names(self.right))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Does it hold at these sizes?"""
        return RELATIONS[self.relation](value_of(self.left, sizes), value_of(self.right, sizes))

    @property
    def advice(self) -> str:
        """The next step if it does not hold."""
        or_comment = f", or in the editor let it vary with `# mase: {self.comment}`" if self.comment else ""
        return f"trace the model again with such sizes{or_comment}"

    def __str__(self) -> str:
        relation = "=" if self.relation == "==" else self.relation
        where = f" at {self.place}" if self.place else ""
        return f"{text_of(self.left)} {relation} {text_of(self.right)}{where}"


@dataclass(frozen=True, slots=True)
class SizeGuards:
    """The guards of a graph on sizes, and the sources of these sizes.

    state: the attribute that the forward keeps from call to call, which the graph does not, "" for none.
    changed: the inputs in which the forward puts other tensors, which the graph does not.
    """

    sources: tuple[Source, ...] = ()
    guards: tuple[Guard, ...] = ()
    state: str = ""
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.guards or self.state or self.changed)

    def texts(self) -> list[str]:
        """One text for each."""
        return [*map(str, self.guards), *([self.state_text] if self.state else []), *map(changed_text, self.changed)]

    @property
    def state_text(self) -> str:
        """The reason why only the first call of the graph equals the model's."""
        kept = f"the forward keeps self.{self.state} from call to call, and the graph does not"
        return f"{kept}: only its first call is the model's"

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise GuardError unless all hold for these inputs; objects other than tensors are ignored."""
        sizes: dict[str, int] = {}
        for source in self.sources:
            value: Any = inputs.get(source.input)
            for is_attribute, key in source.path:
                value = getattr(value, key) if is_attribute else value[key]
            if not isinstance(value, torch.Tensor):
                return
            if value.dim() <= source.dimension:
                raise GuardError(f"the graph was traced with more than {value.dim()} dimensions of {source.input}")
            sizes[source.name] = value.shape[source.dimension]
        for guard in self.guards:
            if not guard.holds(sizes):
                now = ", ".join(f"{name} = {sizes[name]}" for name in sorted(guard.names))
                raise GuardError(f"traced with {guard}; this call has {now}: {guard.advice}")


def changed_text(name: str) -> str:
    """Why an input cannot be passed twice."""
    return (
        f"the forward changes {name}, and the graph does not: pass each call the one that the call before it returned"
    )


def value_of(term: Term, sizes: Mapping[str, int]) -> int:
    """The value of an expression."""
    if isinstance(term, str):
        return sizes[term]
    if isinstance(term, tuple):
        return ARITHMETIC[term[0]](value_of(term[1], sizes), value_of(term[2], sizes))
    return int(term)


def text_of(term: Term) -> str:
    """An expression as Python."""
    if not isinstance(term, tuple):
        return str(term)
    left, right = (f"({text_of(each)})" if isinstance(each, tuple) else text_of(each) for each in term[1:])
    return f"{left} {term[0]} {right}"


def _iterate_term_names(term: Term) -> Iterator[str]:
    if isinstance(term, str):
        yield term
    elif isinstance(term, tuple):
        for part in term[1:]:
            yield from _iterate_term_names(part)


def place_of(stack: Stack) -> str:
    """The innermost line of a stack as file:line, "" where it is unknown."""
    if not stack:
        return ""
    position = resolve_mark(stack[0])
    return f"{Path(position.file).name}:{position.line}"


# Deriving guards.


def size_guards(
    run: Run, runs: Sequence[Run], fit: Fit, tried: Mapping[str, int] = MappingProxyType({}), fixed: Container[str] = ()
) -> SizeGuards:
    """The guards of the graph of `run`.

    runs: the recordings at other sizes for which the graph holds too, `run` first.  fit: the expression of a size
    that was seen in them.  tried: symbol -> size in `run`, including those `fixed` because other sizes give other
    graphs.
    """
    if run.sizes is None:
        return SizeGuards(state=run.state, changed=run.changed)
    leaves = _find_input_tensors(run)
    asked = _find_asked_sizes(run, leaves)
    symbols: dict[str, Source] = {}
    others: dict[str, Source] = {}
    guards: dict[Guard, None] = {}
    exact: dict[Guard, None] = {}
    for index, (name, path) in leaves.items():
        shapes = [each.calls[index].value.shape for each in runs]  # type: ignore[union-attr]
        for dimension, seen in enumerate(zip(*shapes, strict=True)):
            place = asked.get((index, dimension), asked.get((index, None)))
            text = f"{name}{''.join(map(_format_access, path))}.shape[{dimension}]"
            found = fit(seen) if len(set(seen)) > 1 else None
            if found is not None and _is_symbol(found) and str(found) not in symbols:
                symbols[str(found)] = Source(str(found), name, path, dimension)
            elif place is not None and (found is not None or len(set(seen)) == 1):
                others[text] = Source(text, name, path, dimension)
                size = seen[0] if found is None else _as_term(found)
                free = found is None and not path and not any(tried[each] == size for each in tried if each in fixed)
                comment = _comment(name, dimension, run.calls[index].value, shapes, fit, tried) if free else ""
                guards[Guard("==", text, size, place, comment)] = None
    for (relation, left, right), stack in run.sizes.compared.items():
        terms = _in_symbols(left, runs, fit), _in_symbols(right, runs, fit)
        if None not in terms:
            guards[Guard(relation, *terms, place_of(stack))] = None
    for term, (value, stack) in run.sizes.escaped.items():
        if (found := _in_symbols(term, runs, fit)) is not None:
            exact[Guard("==", found, value, place_of(stack))] = None
    points = [{name: _size_at(each, leaves, source) for name, source in symbols.items()} for each in runs]
    kept: dict[tuple[Any, ...], Guard] = {}
    for guard in guards:
        if guard.names <= symbols.keys() | others.keys() and (
            guard.names & others.keys() or _is_informative(guard, points)
        ):
            kept.setdefault((guard.relation, guard.left, guard.right), guard)
    kept |= {("exact", each): each for each in exact if each.names and each.names <= symbols.keys()}
    used = set().union(*(guard.names for guard in kept.values()))
    sources = tuple(source for source in (*symbols.values(), *others.values()) if source.name in used)
    return SizeGuards(sources, tuple(kept.values()), run.state, run.changed)


def _find_input_tensors(run: Run) -> dict[int, tuple[str, tuple[tuple[bool, Any], ...]]]:
    """call -> (input, path) of every tensor in an input."""
    found: dict[int, tuple[str, tuple[tuple[bool, Any], ...]]] = {}
    for index, call in enumerate(run.calls):
        if call.kind == "placeholder":
            found[index] = (call.target, ())
        elif call.helper and call.args[0].index in found:
            name, path = found[call.args[0].index]
            found[index] = (name, (*path, (call.target is getattr, call.args[1])))
    return {index: leaf for index, leaf in found.items() if isinstance(run.calls[index].value, TensorType)}


def _find_asked_sizes(run: Run, leaves: Mapping[int, Any]) -> dict[tuple[int, int | None], str]:
    """(tensor in an input, dimension or None for all) -> where the code asked for sizes of it, or of values made from
    it."""
    assert run.sizes is not None
    origins: list[frozenset[int]] = []
    for index, call in enumerate(run.calls):
        if index in leaves:
            origins.append(frozenset((index,)))
        else:
            parts = {origins[source] for source in call.sources}
            origins.append(parts.pop() if len(parts) == 1 else frozenset().union(*parts))
    found: dict[tuple[int, int | None], str] = {}
    for (call_index, dimension), stack in run.sizes.asked.items():
        if call_index in leaves:
            found.setdefault((call_index, dimension), place_of(stack))
            continue
        for origin in origins[call_index]:
            found.setdefault((origin, None), place_of(stack))
    return found


def _comment(
    name: str, varied: int, value: Value, shapes: Sequence[tuple[int, ...]], fit: Fit, tried: Mapping[str, int]
) -> str:
    """The comment's text for an input, with a letter for one of its dimensions; "" if none may vary."""
    letter = next((each for each in "CDEFGIJKLMNPQR" if each not in tried), "")
    if not tried or not letter or not isinstance(value, TensorType):
        return ""
    sizes = []
    for dimension, seen in enumerate(zip(*shapes, strict=True)):
        found = fit(seen) if len(set(seen)) > 1 else None
        symbol = letter if dimension == varied else "" if found is None or not _is_symbol(found) else str(found)
        sizes.append(f"{symbol}={seen[0]}" if symbol else str(seen[0]))
    return f"{name}: {SHORT.get(value.dtype, value.dtype)}[{', '.join(sizes)}]"


def _format_access(step: tuple[bool, Any]) -> str:
    return f".{step[1]}" if step[0] else f"[{step[1]!r}]"


def _is_symbol(found: Expr) -> bool:
    return str(found) in found.symbols


def _as_term(found: Expr) -> Term:
    total: Term = found.constant
    for factor, atoms in found.terms:
        part: Term = factor
        for atom in atoms:
            size: Term = ("+", atom.symbol, atom.offset) if atom.offset else atom.symbol
            size = ("//", size, atom.divisor) if atom.divisor != 1 else size
            part = size if part == 1 else ("*", part, size)
        total = part if total == 0 else ("+", part, total)
    return total


def _in_symbols(term: Term, runs: Sequence[Run], fit: Fit) -> Term:
    """A recorded expression in symbols and numbers; None if a size in it has no fit."""
    if isinstance(term, Size):
        values = [run.calls[term.call].value for run in runs]
        if not all(isinstance(value, TensorType) and len(value.shape) > term.dimension for value in values):
            return None
        found = fit(tuple(value.shape[term.dimension] for value in values))  # type: ignore[union-attr]
        return None if found is None else _as_term(found)
    if isinstance(term, tuple):
        parts = [_in_symbols(part, runs, fit) for part in term[1:]]
        return None if None in parts else (term[0], *parts)
    return term


def _size_at(run: Run, leaves: Mapping[int, Any], source: Source) -> int:
    index = next(index for index, leaf in leaves.items() if leaf == (source.input, source.path))
    value = run.calls[index].value
    assert isinstance(value, TensorType)
    return value.shape[source.dimension]


def _is_informative(guard: Guard, points: Sequence[Mapping[str, int]]) -> bool:
    """Does a condition on symbols hold at all recorded sizes, but not at every size?"""
    names = sorted(guard.names)
    if not names or not all(_is_satisfied(guard, point) for point in points):
        return False
    random = Random(0)
    near = [max(1, n + step) for n in _iterate_term_numbers((guard.left, guard.right)) for step in (-1, 0, 1)]
    sizes = [*range(1, 18), 31, 64, 100, 1000, 4099, 100_003, *near]
    tried = [dict.fromkeys(names, size) for size in sizes]
    tried += [{name: random.choice(sizes) for name in names} for _ in range(50 * (len(names) > 1))]
    return not all(_is_satisfied(guard, point) for point in tried)


def _is_satisfied(guard: Guard, sizes: Mapping[str, int]) -> bool:
    try:
        return guard.holds(sizes)
    except ZeroDivisionError:
        return False


def _iterate_term_numbers(term: Term) -> Iterator[int]:
    if isinstance(term, tuple):
        for part in term:
            yield from _iterate_term_numbers(part)
    elif isinstance(term, int):
        yield term


# Values.


def seen_of(asked: str, tensor: torch.Tensor, *others: Any) -> Any:
    """The result of a look at values, as plain data."""
    if asked in CONDITIONS:
        return bool(tensor)
    if asked in ("equal", "allclose", "__contains__"):
        return bool(getattr(torch.Tensor, asked)(tensor, *others))
    if asked in ("__int__", "__index__"):
        return int(tensor)
    if tensor.numel() == 1 and asked not in ("tolist", "numpy", "__array__"):
        return tensor.item()
    if tensor.numel() <= MOST_NUMBERS:
        return tensor.tolist()
    return hashlib.sha256(str(tensor.flatten().tolist()).encode()).hexdigest()


def check_value(asked: str, arguments: Sequence[Any], seen: Any, place: str = "") -> None:
    """Raise GuardError if a look at values gives another answer than when the graph was traced.

    In code from torch.compile, torch itself checks conditions, and raises RuntimeError with the same text.
    """
    if torch.compiler.is_dynamo_compiling() and asked in ("__bool__", "is_nonzero"):
        held = arguments[0] != 0 if seen else arguments[0] == 0
        torch._assert_async(held, f"traced with {describe_look(asked, seen, place)}: trace the model again")
        return
    if any(isinstance(each, torch.Tensor) and is_symbolic(each) for each in arguments):
        return
    now = seen_of(asked, *arguments)
    if now != seen and not _is_close(now, seen):
        text = describe_look(asked, seen, place)
        raise GuardError(f"traced with {text}; in this call it is {now!r:.80}: trace the model again with such values")


def describe_look(asked: str, seen: Any, place: str) -> str:
    """A look at values as text: "a condition = True at model.py:12"."""
    what = "a condition" if asked in CONDITIONS else f"a value ({asked.strip('_')})"
    text = (
        "what follows from the sizes" if isinstance(seen, fx.Node) else seen if isinstance(seen, Expr) else repr(seen)
    )
    return f"{what} = {text!s:.80}" + (f" at {place}" if place else "")


fx.node.has_side_effect(check_value)


def _is_close(one: Any, other: Any) -> bool:
    """Are they close? Sums in another order differ in their last digits."""
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-7)
