"""When beats pass through what goes over whole rows: sums and maxima, softmax, norms."""

from __future__ import annotations

from itertools import count

from mase_server.hardware.timing.times import Link, Process


def filling(link: Link, out: Link, beats: int) -> Process:
    """The beats of rows wait until the number of their row is found: `row_statistic`, as they come."""
    depth = 2 * beats + 4
    for index in count():
        ready, row = 0, index // beats
        if index >= depth:
            while len(out.taken) <= index - depth:
                yield out.taken
            ready = out.taken[index - depth] + 1
        if row >= 4:  # numbers of four rows may wait for their turn
            last = (row - 3) * beats - 1
            while len(out.taken) <= last:
                yield out.taken
            ready = max(ready, out.taken[last] + 1)
        while len(link.offered) <= index:
            yield link.offered
        link.take(ready)


def numbered(link: Link, out: Link, beats: int) -> Process:
    """The same beats as they leave, beside their row's number."""
    for index in count():
        last = (index // beats + 1) * beats - 1
        while len(link.taken) <= last:
            yield link.taken
        out.offered.add(max(link.taken[index] + 1, link.taken[last] + 3))


def rooted(link: Link, out: Link, beats: int, width: int) -> Process:
    """The beats of rows, and the root of their squares' sum, of so many bits: what `fixed_norm` does between both."""
    depth = 2 * beats + width + 6
    summed = -1  # when the last beat went into the sum
    begun: list[int] = []  # when each root was begun, and when it was given away
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
        summed = max(came + 1, summed + 1, begun[row - 2] if row > 1 else 0)
        if place < beats - 1:
            continue
        begun.append(max(summed + 2, given[-1] + 1 if given else 0))
        ready = 0
        if row > 1:
            while len(out.taken) < (row - 1) * beats:
                yield out.taken
            ready = out.taken[(row - 1) * beats - 1] + 1
        given.append(max(begun[-1] + width + 1, ready))
        for each in range(index - beats + 1, index + 1):
            out.offered.add(max(link.taken[each] + 1, given[-1] + 1))
