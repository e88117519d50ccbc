"""A guess may take some memory, not all that its process may: one that asks for more fails, and the next is tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Bytes that one guess may add to its process.
ROOM = 2 << 30
_SIZE = Path("/proc/self/statm")


@contextmanager
def sparing(room: int = ROOM) -> Iterator[None]:
    """MemoryError for what asks for more than `room` further bytes, where the system can say so (Linux)."""
    if sys.platform != "linux":
        yield
        return
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = int(_SIZE.read_text().split()[0]) * resource.getpagesize() + room
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_least(before, most, wanted), most))
    try:
        yield
    except MemoryError as error:
        if error.args:
            raise
        raise MemoryError(f"it takes more than {room / (1 << 30):g} GiB of memory") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def _least(*limits: int) -> int:
    """The lowest of the limits that are set (-1 is none)."""
    return min(limit for limit in limits if limit >= 0)
