"""How long the turns of the server's event loop are: the real server, with every callback of its loop timed.

Usage: python benchmarks/turns.py REPORT mase-server's arguments ...

REPORT gets one JSON line for each turn that took long, as it ends: {"cpu", "wall" (ms), "gc" (ms of `cpu` in garbage
collections), "what", "at" (time.monotonic), "stacks"}. CPU time is that of the loop's own thread: other processes and
other threads of the server do not make a turn look longer. MASE_TURNS_STACKS=1 samples what a long turn was at, which
slows everything a little.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import runpy
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

#: Milliseconds of a turn, in CPU time or by the clock, from which it is written down.
LONG = 2.0
_SAMPLE = 0.001
_DEPTH = 12
_INSIDE = {"turns.py", "events.py", "base_events.py", "runners.py"}


@dataclass(slots=True)
class Turns:
    """Writes down the long turns of this process's event loop."""

    report: int
    stacks: Counter[str] = field(default_factory=Counter)
    sampled: bool = False
    collected: float = 0.0
    _gc_began: float = 0.0

    def install(self) -> None:
        """Time every callback from now on."""
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            self.collected, wall, cpu = 0.0, time.perf_counter(), time.thread_time()
            run(handle)
            cpu, wall = 1000 * (time.thread_time() - cpu), 1000 * (time.perf_counter() - wall)
            if max(cpu, wall) >= LONG:
                self._tell(handle, cpu, wall)
            elif self.sampled:
                self.stacks.clear()

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]
        gc.callbacks.append(self._on_gc)

    def sample(self) -> None:
        """Look every millisecond what the main thread is at."""
        self.sampled = True
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, _SAMPLE, _SAMPLE)

    def _on_alarm(self, _: int, frame: FrameType | None) -> None:
        names = []
        while frame is not None and len(names) < _DEPTH:
            file = Path(frame.f_code.co_filename).name
            if file in _INSIDE:
                break
            names.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        self.stacks[" < ".join(names)] += 1

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self._gc_began = time.thread_time()
        else:
            self.collected += 1000 * (time.thread_time() - self._gc_began)

    def _tell(self, handle: asyncio.Handle, cpu: float, wall: float) -> None:
        told: dict[str, Any] = {
            "cpu": round(cpu, 2),
            "wall": round(wall, 2),
            "gc": round(self.collected, 2),
            "what": name_of(handle),
            "at": time.monotonic(),
            "stacks": self.stacks.most_common(6),
        }
        self.stacks.clear()
        os.write(self.report, json.dumps(told).encode() + b"\n")


def name_of(handle: asyncio.Handle) -> str:
    """What a callback is: of a task its coroutine, of a partial call what is called."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    callback = getattr(callback, "func", callback)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine: Any = owner.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    return str(getattr(callback, "__qualname__", callback))


def main() -> None:
    """Be the server."""
    turns = Turns(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    turns.install()
    if os.environ.get("MASE_TURNS_STACKS"):
        turns.sample()
    sys.argv = ["mase-server", *sys.argv[2:]]
    runpy.run_module("mase_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
