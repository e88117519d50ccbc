"""Engines that measure many points: the workers of this machine, or a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mase_server.sweep.bench import Bench
from mase_server.sweep.points import Point, Result

Measured = tuple[Point, Result]
#: Looks at the passes that there are for a point's file before it is measured; raises where it has a mistake.
Check = Callable[[Point, list[dict[str, Any]]], Point]


class Engine(Protocol):
    """Measures points, in whatever order they are done."""

    def run(self, points: Sequence[Point]) -> AsyncGenerator[Measured, None]:
        """Each point with its result."""


def usual_jobs() -> int:
    """As many points at once as there are processors for this process."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Local:
    """This machine. jobs: points at once.  wanted: asked just before a point is begun.  check: see `Check`."""

    jobs: int
    python: str | None = None
    wanted: Callable[[Point], bool] = lambda point: True
    check: Check = lambda point, passes: point

    async def run(self, points: Sequence[Point]) -> AsyncGenerator[Measured, None]:
        """Each point with its result; what `check` raises ends it."""
        bench = Bench(self.python)
        queue = list(reversed(points))
        news = asyncio.Queue[Measured | asyncio.Task[None]]()

        async def work() -> None:
            while queue:
                point = queue.pop()
                checked = self.check(point, await bench.passes(point))
                if self.wanted(point):
                    news.put_nowait((point, await bench.measure(checked)))

        workers = [asyncio.create_task(work()) for _ in range(min(self.jobs, len(points)))]
        for worker in workers:
            worker.add_done_callback(news.put_nowait)
        try:
            running = len(workers)
            while running:
                if isinstance(found := await news.get(), asyncio.Task):
                    running -= 1
                    found.result()
                else:
                    yield found
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await bench.close()
