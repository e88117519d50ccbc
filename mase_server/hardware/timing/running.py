"""A netlist in time: samples follow each other as fast as they are taken, and results are taken at once."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mase_server.hardware.timing.components import TIMINGS, Place
from mase_server.hardware.timing.parameters import given
from mase_server.hardware.timing.streams import sink, source
from mase_server.hardware.timing.times import Link, Process, Queue, Times, run
from mase_server.hardware.wiring import Instance, Netlist

_SAMPLES = 6
_MOST_SAMPLES = 40


@dataclass(slots=True)
class Running:
    """A netlist whose beats move. links: by the expression of their valid wire.

    results: for each output its stream and the beats of a sample.
    """

    links: dict[str, Link] = field(default_factory=dict)
    inputs: list[Link] = field(default_factory=list)
    results: list[tuple[Link, int]] = field(default_factory=list)
    queue: Queue = field(default_factory=deque)
    samples: Times = field(init=False)

    def __post_init__(self) -> None:
        self.samples = Times(self.queue)

    def send(self, samples: int) -> None:
        """Let so many more samples come, and everything move that can."""
        for _ in range(samples):
            self.samples.add(0)
        run(self.queue)

    def ends(self) -> list[int]:
        """When the last beat of each result moved."""
        whole = min(len(link.taken) // beats for link, beats in self.results)
        return [max(link.taken[(sample + 1) * beats - 1] for link, beats in self.results) for sample in range(whole)]

    @property
    def begins(self) -> int:
        """When the first beat came in."""
        return min((link.taken[0] for link in self.inputs if link.taken), default=0)

    def link(self, valid: str) -> Link:
        """The stream with a valid wire."""
        return self.links.setdefault(valid, Link(self.queue))


def running(made: Netlist, beats_in: Sequence[int], beats_out: Sequence[int]) -> Running:
    """A netlist, ready to run. beats_in, beats_out: of a sample at each input and output."""
    found = Running()
    for tap, beats in zip(made.inputs, beats_in, strict=True):
        found.inputs.append(found.link(tap.valid))
        found.queue.append(source(found.inputs[-1], beats, found.samples))
    for instance in made.instances:
        found.queue.extend(_processes(found, instance))
    for tap in made.dropped:
        found.queue.append(sink(found.link(tap.valid)))
    for tap, beats in zip(made.outputs, beats_out, strict=True):
        found.results.append((found.link(tap.valid), beats))
        found.queue.append(sink(found.link(tap.valid)))
    return found


def _processes(found: Running, instance: Instance) -> Iterator[Process]:
    numbers = given(instance)
    links, outs = (tuple(map(found.link, wires(instance, way))) for way in ("in", "out"))
    yield from TIMINGS[instance.module](numbers, Place(found.queue, links, outs, found.samples))


def wires(instance: Instance, way: str) -> list[str]:
    """The valid wires of all streams of an instance, "in" or "out"."""
    ports = sorted(name for name in instance.ports if re.fullmatch(rf"data_{way}_\d+_valid", name))
    found = [instance.ports[name] for name in ports]
    if way == "out" and instance.module == "stream_fork":
        count = instance.parameters["COUNT"]
        assert isinstance(count, int)
        return [f"{found[0]}[{index}]" for index in range(count)]
    return found


def steady(found: Running) -> tuple[float, int] | None:
    """Cycles from one result to the next, once that does not change any more, and from the first beat in to the last of
    the first result. None where it stands still."""
    found.send(_SAMPLES)
    while True:
        ends = found.ends()
        if len(ends) < len(found.samples):
            return None
        apart = [after - before for before, after in pairwise(ends)]
        if apart[-3:] == [apart[-1]] * 3 or len(ends) >= _MOST_SAMPLES:
            later = apart[len(apart) // 2 :] if apart[-3:] != [apart[-1]] * 3 else apart[-1:]
            return sum(later) / len(later), ends[0] - found.begins
        found.send(len(found.samples))
