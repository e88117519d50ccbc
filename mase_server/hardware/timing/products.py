"""When dot products are ready.

A burst is a vector that goes once through the multipliers; of each, the last beat counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from mase_server.hardware.timing.streams import ring
from mase_server.hardware.timing.times import Link, Process, Times


def repeats(link: Link, bursts: Link, length: int, passes: int, depth: int | None = None) -> Iterator[Process]:
    """A ring that gives each vector of so many beats in so many bursts."""
    freed = Times(link.queue)
    yield ring(link, freed, depth or 2 * length)
    yield _repeated(link, bursts, freed, length, passes)


def _repeated(link: Link, bursts: Link, freed: Times, length: int, passes: int) -> Process:
    taken = bursts.taken
    for vector in count():
        for number in range(passes):
            done = vector * passes + number
            while len(taken) < done:
                yield taken
            before = taken[-1] if done else -1
            if number:
                bursts.offered.add(before + length)
            first = before  # each beat is read as the one ahead of it moves
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
    """The same where somebody else than multipliers reads: beat by beat."""
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


def once(link: Link, bursts: Link, length: int) -> Process:
    """Vectors of so many beats that are read once, out of two places."""
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
    """The results of bursts of so many beats, behind an adder tree of so many levels, in the places kept for them."""
    places = -(-(8 + levels) // length) + 1
    for index in count():
        ready = 0
        if index >= places:
            while len(out.taken) <= index - places:
                yield out.taken
            ready = out.taken[index - places] + 1
        while len(bursts.offered) <= index:
            yield bursts.offered
        out.offered.add(bursts.take(ready) + 7 + levels)


def banks(link: Link, ends: Times, done: Times, beats: int) -> Process:
    """Two matrices of so many beats. ends: when each was whole; done: when each was read for the last time."""
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


def gated(bursts: Link, out: Link, ends: Times, done: Times, sizes: tuple[int, int]) -> Process:
    """Bursts that wait for a whole matrix. sizes: beats of a burst, bursts of a matrix."""
    length, number = sizes
    for index in count():
        matrix, at = divmod(index, number)
        while len(bursts.offered) <= index:
            yield bursts.offered
        offered = bursts.there(index)
        if at == 0:
            while len(ends) <= matrix:
                yield ends
            # Its beats go on one by one once the matrix is there.
            offered = max(offered, ends[matrix] + length)
        out.offered.add(offered)
        while len(out.taken) <= index:
            yield out.taken
        bursts.take(out.taken[index])
        if at == number - 1:
            done.add(out.taken[index])


def swapped(out: Link, ends: Times, done: Times, beats: int) -> Process:
    """A matrix in another order, in so many beats, once it is whole."""
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
