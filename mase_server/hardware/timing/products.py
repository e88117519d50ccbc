"""The times at which dot products are ready, and at which beats pass through components that work on whole rows.

A burst is a vector that passes once through the multipliers; its time is that of its last beat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from math import ceil

from mase_server.hardware.timing.streams import fill_ring
from mase_server.hardware.timing.times import Link, Process, Times


def repeat_vectors(link: Link, bursts: Link, length: int, passes: int, depth: int | None = None) -> Iterator[Process]:
    """A ring that repeats each vector of `length` beats in `passes` bursts."""
    freed = Times(link.queue)
    yield fill_ring(link, freed, depth or 2 * length)
    yield _repeat_from_ring(link, bursts, freed, length, passes)


def _repeat_from_ring(link: Link, bursts: Link, freed: Times, length: int, passes: int) -> Process:
    taken = bursts.taken
    for vector in count():
        for number in range(passes):
            done = vector * passes + number
            while len(taken) < done:
                yield taken
            before = taken[-1] if done else -1
            if number:
                bursts.offered.add(before + length)
            first = before  # each beat is read when the one before it moves
            for index in range(length if number == 0 or number == passes - 1 else 0):
                if number == 0:
                    while len(link.taken) <= vector * length + index:
                        yield link.taken
                    first = max(first, link.taken[vector * length + index] + 1)
                if number == passes - 1:
                    freed.add(first)
                first += 1
            if number == 0:
                bursts.offered.add(first)


def beat_by_beat(link: Link, out: Link, freed: Times, length: int, passes: int) -> Process:
    """The same for a reader that is no multiplier: beat by beat."""
    read = -1
    for index in count():
        vector, at = divmod(index, length * passes)
        beat = vector * length + at % length
        while len(link.taken) <= beat:
            yield link.taken
        while len(out.taken) < index:
            yield out.taken
        read = max(read + 1, link.taken[beat] + 1, out.taken[-1] if index else 0)
        out.offered.add(read + 1)
        if at >= length * (passes - 1):
            freed.add(read)


def read_once(link: Link, bursts: Link, length: int) -> Process:
    """Vectors of `length` beats that are read once, from two places."""
    steps: list[int] = []
    for index in count():
        burst, place = divmod(index, length)
        while len(bursts.taken) < burst:
            yield bursts.taken
        if place == 0 and burst:
            steps[-1] = bursts.taken[burst - 1]
        while len(link.offered) <= index:
            yield link.offered
        came = link.take(steps[index - 2] + 1 if index > 1 else 0)
        steps.append(max(came, steps[-1] if steps else -1) + 1)
        if place == length - 1:
            bursts.offered.add(steps[-1])


def dot_products(bursts: Link, out: Link, length: int, levels: int) -> Process:
    """The results of bursts of `length` beats, after an adder tree of `levels` levels, in the places reserved for
    them."""
    places = -(-(9 + levels) // length) + 1
    for index in count():
        ready = 0
        if index >= places:
            while len(out.taken) <= index - places:
                yield out.taken
            ready = out.taken[index - places] + 1
        while len(bursts.offered) <= index:
            yield bursts.offered
        out.offered.add(bursts.take(ready) + 8 + levels)


def dot_products_of_beats(link: Link, out: Link, length: int, levels: int) -> Process:
    """The same for vectors whose beats may come with pauses between them."""
    places = -(-(9 + levels) // length) + 1
    for index in count():
        vector, place = divmod(index, length)
        ready = 0
        if place == length - 1 and vector >= places:
            while len(out.taken) <= vector - places:
                yield out.taken
            ready = out.taken[vector - places] + 1
        while len(link.offered) <= index:
            yield link.offered
        cycle = link.take(ready)
        if place == length - 1:
            out.offered.add(cycle + 8 + levels)


def feed_back(link: Link, out: Link, beats: int) -> Process:
    """A vector of `beats` beats of zeros, then a stream; nothing is stored."""
    for _ in range(beats):
        out.offered.add(0)
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        out.offered.add(link.there(index))
        while len(out.taken) <= index + beats:
            yield out.taken
        link.take(out.taken[-1])


# Multipliers that several layers use in turn: `shared_linear` and `fixed_engine`.


def repeat_whole_vectors(link: Link, bursts: Link, length: int, passes: int) -> Iterator[Process]:
    """The same as `repeat_vectors` for vectors that are repeated only once they are whole."""
    freed = Times(link.queue)
    yield fill_ring(link, freed, 2 * length)
    yield _repeat_whole(link, bursts, freed, length, passes)


def _repeat_whole(link: Link, bursts: Link, freed: Times, length: int, passes: int) -> Process:
    taken = bursts.taken
    for burst in count():
        vector, number = divmod(burst, passes)
        while len(taken) < burst:
            yield taken
        # The first beat is read when the burst before has moved, the others as each moves.
        first = taken[-1] if burst else -1
        if number == 0:
            last = (vector + 1) * length - 1
            while len(link.taken) <= last:
                yield link.taken
            first = max(first, link.taken[last] + 1)
        bursts.offered.add(first + length)
        if number == passes - 1:
            freed.add(first)
            while length > 1 and len(taken) <= burst:
                yield taken
            for index in range(1, length):
                freed.add(taken[-1] - length + index)


def take_turns(bursts: Link, turns: Link, out: Link, length: int, levels: int) -> Process:
    """The results of bursts in an engine's multipliers. turns: the bursts that have a place for their result, as the
    engine takes them."""
    places = (9 + levels + length) // length + 2
    for index in count():
        ready = 0
        if index >= places:
            while len(out.taken) <= index - places:
                yield out.taken
            ready = out.taken[index - places] + length
        while len(bursts.offered) <= index:
            yield bursts.offered
        turns.offered.add(max(bursts.there(index), ready))
        while len(turns.taken) <= index:
            yield turns.taken
        bursts.take(turns.taken[index])
        out.offered.add(turns.taken[index] + 10 + levels)


@dataclass(slots=True)
class Engine:
    """An engine between its layers: one burst after another, the highest layer first.

    turns: by the number of a layer, its bursts and the cycles of one.  free: the first cycle in which another burst may
    begin.
    """

    turns: dict[int, tuple[Link, int]] = field(default_factory=dict)
    free: int = 0

    def begins(self) -> int | None:
        """The cycle in which the next burst begins; None if no layer has one."""
        firsts = self._firsts().values()
        return max(self.free, min(firsts)) if firsts else None

    def grant(self) -> None:
        """Let that burst move."""
        cycle = self.begins()
        assert cycle is not None
        link, length = self.turns[max(layer for layer, first in self._firsts().items() if first <= cycle)]
        self.free = link.take(cycle + length - 1) + 1

    def _firsts(self) -> dict[int, int]:
        """The first cycle in which the next burst of each layer that has one could begin."""
        return {
            layer: link.offered[len(link.taken)] - length + 1
            for layer, (link, length) in self.turns.items()
            if len(link.taken) < len(link.offered)
        }


@dataclass(slots=True)
class Reader:
    """`axi_reader` before the memory of simulations: one burst after another, for the highest layer with room.

    links: the beats of each layer.  beats: of all its weights.  pace: beats of the memory in a cycle, up to 1.  picked:
    the beats that each layer was read so far.  free: the first cycle in which another burst may be chosen.  ends: the
    cycles in which bursts ended.  last: the cycle of the last beat.  credit: beats that may come at once behind it.
    """

    links: list[Link]
    beats: list[int]
    pace: float
    picked: list[int] = field(init=False)
    free: int = 2
    ends: list[int] = field(default_factory=list)
    last: int = 0
    credit: float = 1.0

    def __post_init__(self) -> None:
        self.picked = [0] * len(self.links)

    def begins(self) -> int | None:
        """The cycle in which the next burst is chosen; None if there is no room."""
        firsts = [first for first in map(self._room, range(len(self.links))) if first is not None]
        return max(self.free, min(firsts)) if firsts else None

    def grant(self) -> None:
        """Let its beats come."""
        cycle = self.begins()
        assert cycle is not None
        index = max(
            each for each in range(len(self.links)) if (first := self._room(each)) is not None and first <= cycle
        )
        number = min(_BURST, self.beats[index] - self.picked[index] % self.beats[index])
        self.picked[index] += number
        asked = cycle + 1
        if len(self.ends) >= _OUTSTANDING:
            asked = max(asked, self.ends[-_OUTSTANDING] + 1)
        self.free = asked + 1
        due = asked + 1 + _MEMORY_LATENCY
        for _ in range(number):
            due = self._give(due)
            # It stands in the memory's register, then in the fifo for three cycles.
            self.links[index].offered.add(due + 4)
        self.ends.append(due + 1)

    def _room(self, index: int) -> int | None:
        """The first cycle in which a layer has room for a burst; None if that is not known."""
        needed, taken = self.picked[index] + _BURST - READER_ROOM, self.links[index].taken
        return 0 if needed <= 0 else taken[needed - 1] + 1 if len(taken) >= needed else None

    def _give(self, due: int) -> int:
        """The cycle in which the next beat leaves the memory."""
        cycle = max(due, self.last + 1)
        if self.pace < 1:
            self.credit += self.pace * min(cycle - self.last, max(0, ceil((_MOST_CREDIT - self.credit) / self.pace)))
            late = max(0, ceil((1 - self.credit) / self.pace))
            cycle, self.credit = cycle + late, self.credit + late * self.pace - 1
        self.last = cycle
        return cycle


#: Of `axi_reader` and `axi_memory`: beats of a layer's fifo and of a burst, bursts under way, cycles from an address to
#: its first beat, from the first burst's choice to its stream, and beats that a slow memory saves up.
READER_ROOM, _BURST, _OUTSTANDING, _MEMORY_LATENCY, READER_LATENCY, _MOST_CREDIT = 64, 16, 8, 24, 32, 2.0


def fill_banks(link: Link, ends: Times, done: Times, beats: int) -> Process:
    """Two matrices of `beats` beats. ends: when each was complete; done: when each was read for the last time."""
    for matrix in count():
        ready = 0
        if matrix > 1:
            while len(done) < matrix - 1:
                yield done
            ready = done[matrix - 2] + 1
        for index in range(matrix * beats, matrix * beats + beats):
            while len(link.offered) <= index:
                yield link.offered
            last = link.take(ready)
        ends.add(last)


def gate_bursts(bursts: Link, out: Link, ends: Times, done: Times, sizes: tuple[int, int]) -> Process:
    """Bursts that wait for a complete matrix. sizes: beats of a burst, bursts of a matrix."""
    length, number = sizes
    for index in count():
        matrix, at = divmod(index, number)
        while len(bursts.offered) <= index:
            yield bursts.offered
        offered = bursts.there(index)
        if at == 0:
            while len(ends) <= matrix:
                yield ends
            # Its beats continue one by one once the matrix is there.
            offered = max(offered, ends[matrix] + length)
        out.offered.add(offered)
        while len(out.taken) <= index:
            yield out.taken
        bursts.take(out.taken[index])
        if at == number - 1:
            done.add(out.taken[index])


def give_swapped(out: Link, ends: Times, done: Times, beats: int) -> Process:
    """A matrix in another order, in `beats` beats, once it is complete."""
    read = -1
    for matrix in count():
        while len(ends) <= matrix:
            yield ends
        for _ in range(beats):
            number = len(out.offered)
            while len(out.taken) < number:
                yield out.taken
            read = max(read + 1, ends[matrix] + 1, out.taken[-1] if number else 0)
            out.offered.add(read + 1)
        done.add(read)


# Beats through components that work on whole rows: sums and maxima, softmax, norms.


def pass_rows(link: Link, out: Link, beats: int) -> Process:
    """The beats of rows as they enter `row_statistic`, where they wait until their row's statistic is known."""
    depth = 2 * beats + 4
    for index in count():
        ready, row = 0, index // beats
        if index >= depth:
            while len(out.taken) <= index - depth:
                yield out.taken
            ready = out.taken[index - depth] + 1
        if row >= 4:  # the statistics of up to four rows may wait for their turn
            last = (row - 3) * beats - 1
            while len(out.taken) <= last:
                yield out.taken
            ready = max(ready, out.taken[last] + 1)
        while len(link.offered) <= index:
            yield link.offered
        link.take(ready)


def number_rows(link: Link, out: Link, beats: int) -> Process:
    """The same beats as they leave, beside their row's statistic."""
    for index in count():
        last = (index // beats + 1) * beats - 1
        while len(link.taken) <= last:
            yield link.taken
        out.offered.add(max(link.taken[index] + 1, link.taken[last] + 3))


def root_rows(link: Link, out: Link, beats: int, width: int, roots: int, serial: int = 0) -> Process:
    """The beats of rows with the root of their sum of squares, of `width` bits: the inside of `fixed_norm`.

    roots: at a time.  serial: further cycles of a square.
    """
    depth = 2 * beats + width + 6
    summed = -1  # the time at which the last beat entered the sum
    begun: list[int] = []  # the times at which each root was begun, and handed on
    given: list[int] = []
    for index in count():
        ready, (row, place) = 0, divmod(index, beats)
        if index >= depth:
            while len(out.taken) <= index - depth:
                yield out.taken
            ready = out.taken[index - depth] + 1
        while len(link.offered) <= index:
            yield link.offered
        came = link.take(max(ready, summed))
        summed = max(came + 1 + serial, summed + 1, begun[row - 2] if row > 1 else 0)
        if place < beats - 1:
            continue
        begun.append(max(summed + 2, begun[-1] + 1 if row else 0, given[row - roots] + 1 if row >= roots else 0))
        ready = 0
        if row > 1:
            while len(out.taken) < (row - 1) * beats:
                yield out.taken
            ready = out.taken[(row - 1) * beats - 1] + 1
        given.append(max(begun[-1] + width + 1, ready, given[-1] + 1 if given else 0))
        for each in range(index - beats + 1, index + 1):
            out.offered.add(max(link.taken[each] + 1, given[-1] + 1))
