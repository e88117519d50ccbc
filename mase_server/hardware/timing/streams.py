"""The times of beats in components that store and move them: registers, fifos, forks, converters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from mase_server.hardware.timing.times import Link, Process, Times

#: Beats of a `fifo` above which it has block memory, and two more cycles of latency.
MOST_DISTRIBUTED = 32


def offer_beats(out: Link, beats: int, samples: Times, first: int = 0) -> Process:
    """Offer `beats` beats for each available sample, as fast as they are accepted, from the cycle `first` on."""
    for sample in count():
        while len(samples) <= sample:
            yield samples
        for _ in range(beats):
            out.offered.add(first)


def take_all_beats(link: Link) -> Process:
    """Take every beat at once."""
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        link.take()


def register_process(link: Link, out: Link, cycles: int = 1) -> Process:
    """One beat of storage; it is replaced in the cycle in which it leaves. cycles: until it may."""
    for index in count():
        while index and len(out.taken) < index:
            yield out.taken
        while len(link.offered) <= index:
            yield link.offered
        out.offered.add(link.take(out.taken[index - 1] if index else 0) + cycles)


def fifo_process(link: Link, out: Link, depth: int) -> Process:
    """`depth` beats of storage, with a registered ready. A skid buffer is one of two."""
    cycles = 1 if depth <= MOST_DISTRIBUTED else 3
    for index in count():
        ready = 0
        if index >= depth:
            while len(out.taken) <= index - depth:
                yield out.taken
            ready = out.taken[index - depth] + 1
        while len(link.offered) <= index:
            yield link.offered
        out.offered.add(link.take(ready) + cycles)


def fill_ring(link: Link, freed: Times, depth: int) -> Process:
    """The filling of a memory of `depth` beats, whose places are freed in order."""
    for index in count():
        ready = 0
        if index >= depth:
            while len(freed) <= index - depth:
                yield freed
            ready = freed[index - depth] + 1
        while len(link.offered) <= index:
            yield link.offered
        link.take(ready)


def pipeline_processes(link: Link, out: Link, stages: int) -> Iterator[Process]:
    """Stages that move together: all of them stop while the last one offers a beat that is not taken."""
    if stages == 1:
        return iter((register_process(link, out),))
    return iter((_fill_pipeline(link, out, stages), _out_of(link, out, stages)))


def _fill_pipeline(link: Link, out: Link, stages: int) -> Process:
    """Accept nothing while a beat is offered but not taken."""
    left = 0
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        cycle = link.there(index)
        while left < index and link.taken[left] + stages <= cycle:
            while len(out.offered) <= left:
                yield out.offered
            if out.there(left) > cycle:
                break
            while len(out.taken) <= left:
                yield out.taken
            cycle = max(cycle, out.taken[left])
            left += 1
        link.take(cycle)


def _out_of(link: Link, out: Link, stages: int) -> Process:
    """Each beat leaves `stages` moves after it entered."""
    stalls, passed, first = [0], 0, 0  # stalls[j]: cycles for which the beats before j stood still
    for index in count():
        while len(link.taken) <= index:
            yield link.taken
        while index and len(out.taken) < index:
            yield out.taken
        if index:
            stalls.append(stalls[-1] + out.taken[index - 1] - passed)
        came = link.taken[index]
        while first < index and out.taken[first] <= came:
            first += 1
        out.offered.add(came + stages + stalls[index] - stalls[first])
        passed = out.there(index)


def fork_beats(link: Link, outs: Sequence[Link]) -> Process:
    """Each reader takes a beat when it is ready; the next beat follows when all have taken it."""
    moved = -1
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        there = max(link.offered[index], moved + 1)
        for out in outs:
            out.offered.add(there)
        for out in outs:
            while len(out.taken) <= index:
                yield out.taken
        moved = link.take(max(out.taken[index] for out in outs))


def join_beats(links: Sequence[Link], both: Link) -> Process:
    """One beat of each of several streams together, as one beat."""
    for index in count():
        for link in links:
            while len(link.offered) <= index:
                yield link.offered
        both.offered.add(max(link.there(index) for link in links))
        while len(both.taken) <= index:
            yield both.taken
        for link in links:
            link.take(both.taken[index])


def delay_beats(link: Link, out: Link, cycles: int) -> Process:
    """Each beat is taken once it has been on offer for some cycles, and moves on in the cycle in which it is."""
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        out.offered.add(link.there(index) + cycles)
        while len(out.taken) <= index:
            yield out.taken
        link.take(out.taken[index])


def beats_one_by_one(link: Link, out: Link, turns: int, cycles: int) -> Process:
    """Beats of a component that works on one at a time: each takes `turns` further cycles to enter, the last of them no
    earlier than the one before leaves, and is offered `cycles` later."""
    offered = left = -1
    for index in count():
        while len(out.taken) < index:
            yield out.taken
        while len(link.offered) <= index:
            yield link.offered
        first = link.there(index)
        if index:
            # Until the beat before is offered, the other turns move ahead of it; then they wait with it.
            first, left = max(first, offered - turns), out.taken[index - 1]
        entered = link.take(max(first, left) + turns - max(0, offered - first))
        offered = entered + cycles
        out.offered.add(offered)


def concat_beats(links: Sequence[Link], beats: Sequence[int], out: Link) -> Process:
    """`beats` beats of one stream, then of the next, in turns; nothing is stored."""
    moved = 0
    while True:
        for link, number in zip(links, beats, strict=True):
            for _ in range(number):
                while len(link.offered) <= len(link.taken):
                    yield link.offered
                out.offered.add(link.there(len(link.taken)))
                while len(out.taken) <= moved:
                    yield out.taken
                link.take(out.taken[moved])
                moved += 1


def split_beats(link: Link, outs: Sequence[Link], beats: Sequence[int]) -> Process:
    """`beats` beats to one stream, then to the next, in turns; nothing is stored."""
    moved = 0
    while True:
        for out, number in zip(outs, beats, strict=True):
            for _ in range(number):
                while len(link.offered) <= moved:
                    yield link.offered
                out.offered.add(link.there(moved))
                while len(out.taken) < len(out.offered):
                    yield out.taken
                link.take(out.taken[-1])
                moved += 1


def narrow_beats(link: Link, out: Link, ratio: int, length: int | None = None) -> Process:
    """Split each beat into several. length: narrow beats of a vector, whose last wide one may have fewer."""
    given, size = 0, length or ratio
    for index in count():
        last = 0
        if index:
            while len(out.taken) < given:
                yield out.taken
            last = out.taken[-1]
        while len(link.offered) <= index:
            yield link.offered
        came = link.take(last)
        number = min(ratio, size - given % size)
        for _ in range(number):
            out.offered.add(came + 1)
        given += number


def widen_beats(link: Link, out: Link, ratio: int, length: int | None = None) -> Process:
    """Join several beats into one. length: beats of a vector, whose last wide one may have fewer."""
    group = 0
    for index in count():
        while len(out.taken) < group:
            yield out.taken
        while len(link.offered) <= index:
            yield link.offered
        came = link.take(out.taken[group - 1] if group else 0)
        place = index % (length or ratio)
        if place % ratio == ratio - 1 or place + 1 == length:
            out.offered.add(came + 1)
            group += 1


def rows_of_table(link: Link, out: Link, beats: int) -> Process:
    """`beats` beats for each index, read one a cycle."""
    read = -1
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        # The next index is taken in the cycle of the last read.
        came = link.take(max(read, 0))
        for _ in range(beats):
            number = len(out.offered)
            while len(out.taken) < number:
                yield out.taken
            read = max(came + 1, read + 1, out.taken[-1] if number else 0)
            out.offered.add(read + 1)
