"""What the system refuses a trace: open files, processes, room on a disk. Told as a diagnostic that says what to do."""

from __future__ import annotations

import errno
import tempfile

from mase_server.snapshot import Problem

_FILES = "as many files are open as may be. Close files in the editor, or raise the limit: `ulimit -n 4096`"
_PROCESSES = "no more processes can be started. End some, or raise the limit: `ulimit -u`"
_REASONS = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: "the machine has no memory left. End other programs",
}


def is_of_the_system(error: OSError) -> bool:
    """Would every interpreter be refused alike?"""
    return error.errno in _REASONS


def refused(path: str, error: OSError) -> Problem:
    """The diagnostic of a file whose trace could not be started, on its first line."""
    why = _REASONS.get(error.errno or 0) or _no_room(error)
    text = f"This file cannot be traced now: {why}. Then save again."
    return Problem(path, 1, 0, 2, 0, "error", "system-limit", text)


def _no_room(error: OSError) -> str:
    """Of a trace's temporary folder, which is all that it needs to write."""
    try:
        folder = tempfile.gettempdir()
    except OSError:
        folder = "any temporary folder"
    what = error.strerror or str(error)
    what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else what[:1].lower() + what[1:]
    return (
        f"it needs a temporary folder, and none can be made in {folder} ({what}). Make room there, "
        "or start the server with TMPDIR set to another one"
    )
