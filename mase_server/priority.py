"""Who goes first on a busy machine, and how long who does not has waited. Standard library only."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

#: What `nice` gives a program by itself.
LOW = 10


def lower(process: int = 0) -> None:
    """Give `process`, or this one, and what it starts from now on a low priority; nothing where it is gone.

    Linux may share its processors between sessions first (autogroup, on by default on desktops): niceness then only
    counts among the tasks of one session, so a process that leads a session has to have it for the session as well.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, LOW)
    with contextlib.suppress(OSError):
        leader = process or os.getpid()
        if sys.platform == "linux" and os.getsid(leader) == leader:  # else it would be all that the person started
            Path(f"/proc/{leader}/autogroup").write_text(str(LOW))


def waited(process: int = 0) -> float:
    """Seconds in which the main thread of `process`, or of this one, was ready and had no processor.

    0.0 where the system does not tell: it is Linux's /proc/PID/schedstat.
    """
    try:
        return int(Path(f"/proc/{process or 'self'}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
