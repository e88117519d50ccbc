"""A model as hardware computes it: operations on streams of integers, whatever their parallelism.

Images flow pixel by pixel, all else row-major, and a view or a permutation changes only the names of elements
(`Stream.order`). An operator that moves elements is run on indices, so all of them are served alike. Constants are
rounded when their integers are read, so a refusal costs no more than shapes do.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, gcd, isqrt, prod, sqrt
from typing import Any

import torch
from torch import Tensor

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine

# The ways to build one operation.


@dataclass(frozen=True, slots=True)
class Fold:
    """One way to build an operation. par_in, par_out: elements per beat; of a convolution's input, a part of a group or
    several whole groups.  cycles: from one sample to the next.

    taps: rows and columns of a kernel that are worked on at once; of a recurrent layer, elements of its last result and
    gates in a beat.  serial: products are made bit by bit, without multipliers; of a recurrent layer, those of its
    gates and state.  engine: of the multipliers that other layers use in turn, the lanes of input and of output; None
    for multipliers of its own. An engine's multipliers are not in `multipliers`, and `cycles` are those of the engine
    that this operation takes, or of a recurrent layer's steps.  held: the engine's cycles on which none of its other
    operations counts.  reads: cycles in which a memory outside gives its weights.  delay: further cycles from an
    operand to its result.  digit: bits of each element that a network of additions takes at a time, in place of
    multipliers; 0 with these.  roots: rows of a norm whose roots are found at the same time.  multiplied:
    multiplications of a sample if multipliers wait, as those of a recurrent layer do for its last result; else 0.
    """

    par_in: int
    par_out: int
    cycles: int
    multipliers: int
    taps: tuple[int, int] = (1, 1)
    engine: tuple[int, int] | None = None
    held: int = 0
    serial: bool = False
    reads: int = 0
    delay: int = 0
    digit: int = 0
    roots: int = 1
    multiplied: int = 0

    def elapsed(self, places: Tensor, size: int) -> Tensor:
        """Cycles from the first of a sample's `size` results to those at some places, while it never waits."""
        if not self.delay:
            return places * (self.cycles / size)
        # The results of vectors that share a reading of the weights come together.
        return places // round(size * self.delay / self.cycles) * float(self.delay)

    def groups_at_once(self, channels: int) -> int:
        """Groups of a convolution that arrive in one beat, each of so many channels, for results of their own."""
        return max(self.par_in // channels, 1)

    @property
    def products(self) -> int:
        """Multiplications of a sample, those of padded lanes included, and of waiting ones unless they are told."""
        return self.multiplied or self.cycles * (prod(self.engine) if self.engine else self.multipliers)


@dataclass(frozen=True, slots=True)
class Dots:
    """The dot products of an operation, as a shared engine computes them.

    formats: of their factors and results.  vectors: of a sample.  length: of a vector.  results: for each vector.
    lanes: elements that arrive in a beat divide this.  feed: cycles in which the vectors of a sample arrive, one
    element a beat.
    """

    formats: Affine
    vectors: int
    length: int
    results: int
    lanes: int
    feed: int

    def cycles(self, par_in: int, par_out: int) -> int:
        """Cycles that an engine takes for a sample; its last lanes are padded."""
        return self.vectors * -(-self.length // par_in) * -(-self.results // par_out)

    def fold(self, par_in: int, par_out: int, interval: int, waits: bool) -> Fold:
        """The fold with an engine of so many lanes. Its streams are as narrow as keeps up with it, if any is.
        interval: of a sample.  waits: the engine's other operations wait for its streams."""
        cycles, given = self.cycles(par_in, par_out), self.vectors * self.results
        lanes_in = _fewest_lanes(gcd(self.lanes, par_in), self.feed, cycles)
        lanes_out = _fewest_lanes(gcd(self.results, par_out), given, cycles)
        held = self.held(par_in, par_out) if waits else cycles
        return Fold(lanes_in, lanes_out, cycles, 0, engine=(par_in, par_out), held=held)

    def fastest(self, par_in: int, par_out: int) -> int:
        """Cycles of a sample with an engine to itself: those of the engine or of its streams."""
        given = self.vectors * self.results // gcd(self.results, par_out)
        return max(self.cycles(par_in, par_out), self.feed // gcd(self.lanes, par_in), given)

    def helped(self, par_in: int, par_out: int) -> tuple[int, int]:
        """The same with multipliers of its own beside those of the engine, if it can use some, and their number."""
        return self.fastest(par_in, par_out), 0

    @property
    def chained(self) -> bool:
        """Does a vector wait for the results of the one before?"""
        return False

    def held(self, par_in: int, par_out: int) -> int:
        """Cycles of a sample on which no other operation of the engine can count at worst: slow streams leave gaps in
        which the next operation waits for this one's results, unless the buffers, of two vectors, hide them."""
        return (self.cycles if self.vectors <= _BUFFERED else self.fastest)(par_in, par_out)


#: Vectors, and their results, that a component before an engine stores.
_BUFFERED = 2


def _fewest_lanes(possible: int, beats: int, cycles: int) -> int:
    """The smallest divisor of `possible` with which as many beats pass in the cycles; itself if there is none."""
    return next((each for each in find_divisors(possible) if beats // each <= cycles), possible)


def find_divisors(number: int) -> list[int]:
    """All divisors, the smallest first."""
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


@dataclass(frozen=True, slots=True)
class Engine:
    """Multipliers that operations use in turn; a later one comes first. They stand in the order of the data, but for
    those that wait for themselves. par_in, par_out: its lanes, which are padded where they divide no sizes."""

    par_in: int
    par_out: int
    operations: tuple[str, ...]

    @property
    def name(self) -> str:
        """The start of the names of its wires."""
        return f"{self.operations[0]}_engine"


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold for every operation.

    interval: cycles from one sample to the next: those of the slowest operation, or of the width converter before
    one.  engines: the multipliers that several operations, or padded ones, use.  copies: designs of these folds that
    take samples in turn; interval and multipliers are those of all of them, folds and engines of one.
    """

    folds: Mapping[str, Fold]
    interval: float
    multipliers: int
    engines: tuple[Engine, ...] = ()
    copies: int = 1

    @property
    def single(self) -> Folding:
        """The folding of one copy."""
        each = round(self.interval * self.copies), self.multipliers // self.copies
        return replace(self, interval=each[0], multipliers=each[1], copies=1)

    def repeat(self, copies: int) -> Folding:
        """As many copies of this folding."""
        return replace(self, interval=self.interval / copies, multipliers=self.multipliers * copies, copies=copies)

    @property
    def busy(self) -> Mapping[str, float]:
        """The cycles of a sample for which the multipliers of each operation work, for it or for others: of several
        copies, on average."""
        found = {name: fold.cycles for name, fold in self.folds.items()}
        for engine in self.engines:
            found |= dict.fromkeys(engine.operations, sum(self.folds[name].held for name in engine.operations))
        if self.reads:
            # The layers with weights from outside share the memory's port.
            found |= {name: max(found[name], self.reads) for name, fold in self.folds.items() if fold.reads}
        return {name: cycles / self.copies for name, cycles in found.items()}

    @property
    def work(self) -> float:
        """The cycles of a sample for which the busiest engine works, waits not counted: no interval is shorter."""
        engines = ([self.folds[name] for name in engine.operations] for engine in self.engines)
        return max((sum(min(fold.cycles, fold.held) for fold in folds) for folds in engines), default=0) / self.copies

    @property
    def reads(self) -> int:
        """Cycles of a sample in which the outside memory gives weights."""
        return sum(fold.reads for fold in self.folds.values())

    @property
    def waiting(self) -> tuple[str, ...]:
        """The layers that wait for their weights from outside: for the memory, or for each other at its port."""
        shared = self.reads >= self.interval
        return tuple(name for name, fold in self.folds.items() if fold.reads and (shared or fold.reads >= fold.cycles))

    @property
    def bottlenecks(self) -> tuple[str, ...]:
        """The slowest operations; all of an engine that is as slow."""
        return tuple(name for name, cycles in self.busy.items() if cycles == self.interval)


def round_interval(interval: float) -> float:
    """Whole cycles, or tenths of one where they matter: copies in turn give a sample every 4.5 cycles on average."""
    return round(interval) if interval >= 100 or interval == round(interval) else round(interval, 1)


@dataclass(frozen=True, slots=True)
class Streamed:
    """The way of weights from a memory outside, `options["streamed"]` of an operation.

    rows: the vectors that they are read for at a time.  width: bits of a beat of the memory's port.  pace: beats
    that the memory gives in a cycle, up to 1.
    """

    rows: int
    width: int
    pace: float

    def fold(self, operation: Operation, fold: Fold) -> Fold:
        """A fold, as fast as the weights come."""
        weight, words = operation.constants["weight"], fold.par_in * fold.par_out
        vectors, count = operation.out.size // weight.shape[0], -(-weight.given.numel() // words)
        beats = vectors // self.rows * count_beats(count, words * weight.format.width, self.width)
        reads = ceil(beats / self.pace)
        cycles = max(fold.cycles, reads)
        return replace(fold, cycles=cycles, reads=reads, delay=cycles * self.rows // vectors if self.rows > 1 else 0)


def count_beats(words: int, bits: int, width: int) -> int:
    """Beats of words of so many bits: whole words stand in one, or one takes several."""
    return -(-words // (width // bits)) if bits <= width else words * -(-bits // width)


def can_stream(operation: Operation) -> bool:
    """Can the weights of an operation come from outside? Of linear layers and convolutions without groups."""
    return operation.kind in ("linear", "conv2d") and operation.options.get("groups", 1) == 1


def stream_weights(design: Design, names: Sequence[str], width: int, pace: float, room: float | None = None) -> Design:
    """The design with the weights of some operations outside.

    width, pace: as in `Streamed`.  room: bits for buffers of the vectors that share a reading, and of their
    results; a quarter of these weights by default.
    """
    rows = _rows_at_a_time(design, names, room)

    def streamed(operation: Operation) -> Operation:
        way = Streamed(rows[operation.name], width, pace)
        return replace(operation, options={**operation.options, "streamed": way})

    operations = design.operations.items()
    return replace(design, operations={name: streamed(each) if name in rows else each for name, each in operations})


def _rows_at_a_time(design: Design, names: Sequence[str], room: float | None) -> dict[str, int]:
    """The vectors for which each operation's weights are read at a time: with them least is read in all.

    With r rows v / r times w bits are read, and r * b bits are buffered. For a given sum of the latter the sum of the
    former is least where r is proportional to sqrt(v * w / b), but for operations whose v is less.
    """
    sizes = {name: _size_of_rows(design, design.operations[name]) for name in names}
    left = sum(weight for _, weight, _ in sizes.values()) / 4 if room is None else room
    wanted = {name: sqrt(vectors * weight / buffer) for name, (vectors, weight, buffer) in sizes.items()}
    rows: dict[str, int] = {}
    while others := [name for name in names if name not in rows]:
        scale = left / sum(sizes[name][2] * wanted[name] for name in others)
        whole = [name for name in others if scale * wanted[name] >= sizes[name][0]]
        if not whole:
            return rows | {name: _largest_divisor(sizes[name][0], scale * wanted[name]) for name in others}
        rows |= {name: sizes[name][0] for name in whole}
        left -= sum(sizes[name][0] * sizes[name][2] for name in whole)
    return rows


def _largest_divisor(number: int, most: float) -> int:
    return max(each for each in find_divisors(number) if each <= max(1, most))


def _size_of_rows(design: Design, operation: Operation) -> tuple[int, int, int]:
    """Vectors of a sample, bits of the weights, and bits that a vector takes in the buffers."""
    weight, before = operation.constants["weight"], design.operations[operation.inputs[0]].out
    results, elements = weight.shape[0], prod(weight.shape[1:])
    buffer = 2 * (elements * before.format.width + results * operation.out.format.width)
    return operation.out.size // results, weight.given.numel() * weight.format.width, buffer


def products_of_mean(count: int) -> int:
    """Multiplications in a mean of `count` numbers: one by the reciprocal; a power of two is a shift."""
    return 0 if count & (count - 1) == 0 else 1


#: Lanes beyond which what multiplies bit by bit costs more than the multipliers that are spared.
MOST_SERIAL = 4


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream between two operations: one tensor for each sample. shape: without the batch.

    order: the row-major index of each element in the order in which they flow; None for row-major order.
    """

    format: FixedPoint
    shape: tuple[int, ...]
    order: Tensor | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Elements of a sample."""
        return prod(self.shape)

    def flowing(self, values: Tensor) -> Tensor:
        """Samples, [samples, ...], as rows of elements in the order in which they flow."""
        rows = values.reshape(values.shape[0], self.size)
        return rows if self.order is None else rows[:, self.order]

    def same_order(self, other: Stream) -> bool:
        """Do the elements of two streams flow in the same order?"""
        return torch.equal(self.indices, other.indices)

    @property
    def indices(self) -> Tensor:
        """`order`, with row-major order written out."""
        return torch.arange(self.size) if self.order is None else self.order

    def moved(self, places: Tensor, shape: tuple[int, ...]) -> Stream:
        """The same elements under other indices, in the same order in time.

        places: for each row-major index of the new shape, the old index of its element; a permutation.
        """
        now = torch.empty(self.size, dtype=torch.int64)
        now[places] = torch.arange(self.size)
        return Stream(self.format, shape, row_major(now[self.indices]))


def row_major(order: Tensor) -> Tensor | None:
    """The order; None if it is row-major."""
    return None if torch.equal(order, torch.arange(len(order))) else order


@dataclass(frozen=True, eq=False)
class Constant:
    """Integers stored in the hardware: weights, biases, tables.

    given: the integers, int64, or real values without NaN, which are rounded when the integers are first read: a
    constant that is too large to be emitted is refused before that.
    """

    given: Tensor
    format: FixedPoint

    @cached_property
    def integers(self) -> Tensor:
        """The integers, int64."""
        return self.format.encode(self.given) if self.given.is_floating_point() else self.given

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the integers."""
        return tuple(self.given.shape)

    def moved(self, function: Callable[[Tensor], Tensor]) -> Constant:
        """The constant with its elements rearranged by a function."""
        return Constant(function(self.given), self.format)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. kind: a key of `kinds.KINDS`.  inputs: names of operations.  nodes: the graph's nodes that it
    implements.

    name is an identifier, and the instance's name in the hardware.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    out: Stream
    nodes: tuple[str, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A node that has no hardware. why: the reason, and a remedy."""

    node: str
    operator: str
    why: str


@dataclass(frozen=True, slots=True)
class Design:
    """All operations in the order of the data; those of kind "input" come first. outputs: names of operations.

    unsupported: nodes that are missing; `operations` is then only a part of the model.
    cut: the inputs that replace a missing node's result, and the outputs that a missing node would read.
    """

    operations: Mapping[str, Operation]
    outputs: tuple[str, ...]
    unsupported: tuple[Unsupported, ...] = ()
    cut: frozenset[str] = frozenset()
    _users: Mapping[str, tuple[Operation, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        users: dict[str, tuple[Operation, ...]] = {}
        for operation in self.operations.values():
            for source in operation.inputs:
                users[source] = (*users.get(source, ()), operation)
        object.__setattr__(self, "_users", users)

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """The operations that stand for the model's inputs."""
        return tuple(each for each in self.operations.values() if each.kind == "input")

    def users(self, name: str) -> tuple[Operation, ...]:
        """The operations that read another one's result, once for each reading."""
        return self._users.get(name, ())


# Errors of a kind while hardware is made: the operation is blamed, and the rest is made without it.


class OperationError(Exception):
    """Making hardware of an operation failed, by an exception or for a known reason. The text is one line."""

    def __init__(self, operation: Operation, error: Exception | str) -> None:
        super().__init__(error if isinstance(error, str) else describe_failure(error))
        self.operation = operation

    def node(self, design: Design) -> str | None:
        """The graph's node that the operation implements; for an inserted one, that of its first reader. None if there
        is none."""
        operation = self.operation
        while not operation.nodes and (users := design.users(operation.name)):
            operation = users[0]
        return operation.nodes[0] if operation.nodes else None


@contextmanager
def blame_operation(operation: Operation) -> Iterator[None]:
    """Raise any inner exception as an OperationError."""
    try:
        yield
    # The border to kinds: one that fails must not take the others with it.
    except Exception as error:
        raise OperationError(operation, error) from error


def describe_failure(error: Exception) -> str:
    """An unexpected error, as a reason."""
    return f"its lowering failed with {type(error).__name__}: {error}".partition("\n")[0]


# A part of a design as a design of its own: the streams that flow into it become its inputs.


def cut_part(design: Design, names: Container[str], nodes: Container[str] = ()) -> Design:
    """The operations of these names, with the buffers and constants before them that serve only them.

    Streams keep format, shape and order.  Streams that others read, or that the whole design gives, are its outputs.
    nodes: the nodes without hardware that belong to the part.
    """
    kept = _kept_operations(design, names)
    operations: dict[str, Operation] = {}
    for operation in kept.values():
        for source in operation.inputs:
            if source not in kept:
                operations.setdefault(source, _input_in_place_of(design.operations[source]))
        operations[operation.name] = operation
    outputs = [name for name in kept if _is_read_outside(design, kept, name)]
    missing = tuple(each for each in design.unsupported if each.node in nodes)
    cut = design.cut.intersection(operations) if missing else frozenset[str]()
    return Design(operations, tuple(outputs), missing, cut)


def _kept_operations(design: Design, names: Container[str]) -> dict[str, Operation]:
    kept: dict[str, Operation] = {}
    for operation in reversed(list(design.operations.values())):
        serves = operation.kind == "constant" or not operation.nodes
        if operation.name in names or (serves and any(user.name in kept for user in design.users(operation.name))):
            kept[operation.name] = operation
    return dict(reversed(list(kept.items())))


def _input_in_place_of(operation: Operation) -> Operation:
    """An input that gives the same stream as an operation."""
    options = operation.options if operation.kind == "input" else {}
    return Operation(operation.name, "input", (), operation.out, operation.nodes, options=options)


def _is_read_outside(design: Design, kept: Container[str], name: str) -> bool:
    """Does something outside read this? A buffer that serves both sides is no result."""
    if not design.operations[name].nodes or design.operations[name].kind == "constant":
        return False
    users = design.users(name)
    return name in design.outputs or not users or any(user.name not in kept for user in users)
