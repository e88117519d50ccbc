"""The times at which beats are offered and taken, and the processes that wait for each other's times.

A process is a generator: it adds times as they become known, and yields the `Times` that it has to wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass

# The parameters of an instance as numbers.

Given = Mapping[str, int]


def clog2(number: int) -> int:
    """The bits needed to count up to a number, as $clog2."""
    return (number - 1).bit_length() if number > 1 else 0


def beat_of_serial_mean(width: int, shift: int, divisor: int) -> int:
    """Cycles of a beat in `fixed_mean` with SERIAL. width: of the sums.  shift: bits that are added to the fraction."""
    divisor, width = divisor << max(-shift, 0), width + max(shift, 0)
    offset = -(-(1 << (width - 1)) // divisor)
    return clog2((1 << width) + 2 * offset * divisor + divisor) + 2


@dataclass(frozen=True, slots=True)
class NormWidths:
    """Bits inside `fixed_norm`, as the module computes them."""

    centred: int
    total: int
    root: int
    quotient: int

    @classmethod
    def of(cls, given: Given) -> NormWidths:
        """The widths of an instance."""
        size, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
        bits = clog2(size)
        centred = given["DATA_IN_0_PRECISION_0"] + (bits + 1 if given["MEAN"] else 0)
        summed = 2 * centred + clog2(size // lanes) + clog2(lanes)
        total = max(summed, clog2(given["EPSILON"] + 1)) + 1
        root = (total + 1) // 2 + given["ROOT_FRACTION"]
        return cls(centred, total, root, (bits + 1) // 2 + 2 + given["NORM_FRACTION"])


Process = Generator["Times", None, None]
Queue = deque[Process]


class Times(list[int]):
    """The cycles of an event, in order; a process that waits for the next one continues once it is known."""

    __slots__ = ("_queue", "_waiting")

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue
        self._waiting: list[Process] = []

    def add(self, cycle: int) -> None:
        """Add the next one."""
        self.append(cycle)
        if self._waiting:
            self._queue.extend(self._waiting)
            self._waiting.clear()

    def wake(self, process: Process) -> None:
        """Continue a process once there is another time."""
        self._waiting.append(process)


class Link:
    """A stream between two components. offered: the earliest time of each beat; taken: the time at which it moved."""

    __slots__ = ("offered", "queue", "taken")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.offered, self.taken = Times(queue), Times(queue)

    def there(self, index: int) -> int:
        """The first cycle in which a beat is on offer, which is after the beat before it has left."""
        return max(self.offered[index], self.taken[index - 1] + 1) if index else self.offered[0]

    def take(self, ready: int = 0) -> int:
        """Let the next beat move, as soon as it is there, from the cycle `ready` on; return the cycle."""
        taken = self.taken
        index = len(taken)
        cycle = max(self.offered[index], taken[index - 1] + 1, ready) if index else max(self.offered[0], ready)
        taken.add(cycle)
        return cycle


def run_processes(queue: Queue) -> None:
    """Run all processes until each of them waits for a time that no process adds."""
    while queue:
        process = queue.popleft()
        wanted = next(process, None)
        if wanted is not None:
            wanted.wake(process)
