"""Times at which beats are offered and taken, and processes that wait for those of each other.

A process is a generator: it adds times as it comes to know them, and yields the `Times` that it has to wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

Process = Generator["Times", None, None]
Queue = deque[Process]


class Times(list[int]):
    """Cycles in which something happened, in its order; who waits for the next one goes on once it is known."""

    __slots__ = ("_queue", "_waiting")

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue
        self._waiting: list[Process] = []

    def add(self, cycle: int) -> None:
        """The next one."""
        self.append(cycle)
        if self._waiting:
            self._queue.extend(self._waiting)
            self._waiting.clear()

    def wake(self, process: Process) -> None:
        """Let a process go on once there is another one."""
        self._waiting.append(process)


class Link:
    """A stream between two components. offered: when each beat may be there at the earliest; taken: when it moved."""

    __slots__ = ("offered", "queue", "taken")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.offered, self.taken = Times(queue), Times(queue)

    def there(self, index: int) -> int:
        """The first cycle in which a beat is on offer: none is before the one ahead of it has left."""
        return max(self.offered[index], self.taken[index - 1] + 1) if index else self.offered[0]

    def take(self, ready: int = 0) -> int:
        """Let the next beat move, as soon as it is there, from the cycle `ready` on; when that is."""
        taken = self.taken
        index = len(taken)
        cycle = max(self.offered[index], taken[index - 1] + 1, ready) if index else max(self.offered[0], ready)
        taken.add(cycle)
        return cycle


def run(queue: Queue) -> None:
    """Let all processes go on, until each of them waits for what nobody adds."""
    while queue:
        process = queue.popleft()
        wanted = next(process, None)
        if wanted is not None:
            wanted.wake(process)
