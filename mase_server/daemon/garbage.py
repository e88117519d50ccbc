"""Run Python's cycle collector on the old generation only while the server is quiet, never during a request.

A snapshot of a big model is a hundred thousand objects. Scanning them blocked the event loop for 50 to 200 ms, several
times while one arrived. So the old generation is not scanned while the server works. After half a minute without
requests it is scanned once, and the surviving objects are set aside (`gc.freeze`): the next scan covers new ones only.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
import time

#: Length of a period in seconds, and the CPU seconds that the server may use in a quiet one.
_PERIOD = 5.0
_QUIET = 0.05
#: Quiet periods in a row before a collection; after the second number of them, frozen objects are scanned too.
_AFTER, _ALL_AFTER = 6, 60
#: Periods after which a collection runs even if the server is never quiet.
_LONGEST = 24
_NEVER = 1_000_000
#: Scans of the young generation per scan of the middle one: Python's default of ten takes up to six milliseconds.
_MIDDLE = 4
#: Parameters of the C library's `mallopt`: when free memory is returned, what is mapped alone, how many arenas exist.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 128 << 10


async def collect_when_quiet() -> None:
    """Decide about collections for as long as the server runs."""
    young, _, _ = gc.get_threshold()
    gc.set_threshold(young, _MIDDLE, _NEVER)
    collector = Collector()
    while True:
        worked = time.thread_time()
        await asyncio.sleep(_PERIOD)
        collector.period(time.thread_time() - worked)


def give_back_memory() -> None:
    """Make the C library return free memory: by default it raises these bounds itself and keeps an arena per thread.

    Without this, two thousand saves made the server a sixth larger, though it held no more objects. Does nothing
    without glibc.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((_TRIM_THRESHOLD, _LARGE), (_MMAP_THRESHOLD, _LARGE), (_ARENA_MAX, 1)):
            mallopt(parameter, value)


class Collector:
    """Decides when to collect. `period` receives the CPU seconds used in each period."""

    def __init__(self) -> None:
        self._periods = 0
        self._quiet = 0

    def period(self, worked: float) -> None:
        """Note that another period has passed; collect if it is time."""
        self._periods += 1
        self._quiet = self._quiet + 1 if worked < _QUIET else 0
        if self._quiet == _ALL_AFTER:
            gc.unfreeze()
        if self._quiet in (_AFTER, _ALL_AFTER) or self._periods >= _LONGEST:
            self._periods = 0
            gc.collect()
            gc.freeze()
