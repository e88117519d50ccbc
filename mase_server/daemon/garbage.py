"""When Python looks for cycles: the old generation is looked through while nobody waits, never in the middle of a turn.

A snapshot of a big model is a hundred thousand objects. Looking through them took the event loop 50 to 200 ms, several
times while one arrived. So the old generation is left alone while the server works. Once nobody has wanted anything for
half a minute it is looked through, and what is in use is set aside (`gc.freeze`): the next look is at what is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
import time

#: Seconds between two looks at whether the server is quiet, and CPU seconds that it may have used in them.
_PERIOD = 5.0
_QUIET = 0.05
#: Quiet periods in a row, after which it is done; after the second number of them also what was set aside is looked at.
_AFTER, _ALL_AFTER = 6, 60
#: Periods after which it is done also where the server is never quiet.
_LONGEST = 24
_NEVER = 1_000_000
#: Looks at the young generation for each at the middle one: Python's ten take up to six milliseconds at once.
_MIDDLE = 4
#: Parameters of the C library's `mallopt`: from which size memory is the system's own, and how much is kept when free.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 128 << 10


async def collect_when_quiet() -> None:
    """Run as long as the server does."""
    young, _, _ = gc.get_threshold()
    gc.set_threshold(young, _MIDDLE, _NEVER)
    collector = Collector()
    while True:
        worked = time.thread_time()
        await asyncio.sleep(_PERIOD)
        collector.period(time.thread_time() - worked)


def give_back_memory() -> None:
    """Have the C library give memory back: it would raise these bounds itself, and keep an arena for each thread.

    Two thousand saves made the server a sixth larger, though it held no more objects. Does nothing where there is no
    glibc.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((_TRIM_THRESHOLD, _LARGE), (_MMAP_THRESHOLD, _LARGE), (_ARENA_MAX, 1)):
            mallopt(parameter, value)


class Collector:
    """Decides when to look for cycles. `period` is told the CPU seconds of each period."""

    def __init__(self) -> None:
        self._periods = 0
        self._quiet = 0

    def period(self, worked: float) -> None:
        """Another period has gone by."""
        self._periods += 1
        self._quiet = self._quiet + 1 if worked < _QUIET else 0
        if self._quiet == _ALL_AFTER:
            gc.unfreeze()
        if self._quiet in (_AFTER, _ALL_AFTER) or self._periods >= _LONGEST:
            self._periods = 0
            gc.collect()
            gc.freeze()
