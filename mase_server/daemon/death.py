"""Diagnostics for workers that died or could not start: how, and at which line of the user's code."""

from __future__ import annotations

import errno
import os
import re
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mase_server.paths import is_library
from mase_server.protocol.snapshot import Problem
from mase_server.protocol.wire import BROKEN, LOST_WIRE
from mase_server.telemetry.records import path_in_log

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
#: Number of stack frames that are logged.
_FRAMES = 20
_STACK = "(most recent call first):"
_NEXT = "It is not traced again until the file changes or a retrace is asked for."
#: code -> the next step; the key with " in" applies if it happened inside a function.
_STEPS = {
    "time-limit": "If it only needs more time, raise the setting mase.limits.seconds. ",
    "memory-limit": "If it only needs more, raise the setting mase.limits.memory. ",
    "process-limit": "Start fewer, or none while the file is imported and a model is built or run. ",
    "exited": 'If no model needs it, put it under `if __name__ == "__main__":`. ',
    "exited in": "Raise an exception instead, so that the shapes up to it can be shown. ",
}
_CONTAINED = "If it only needs more, give the container more. "

_SPOILT = "The code closed or wrote to file descriptors that it did not open, among them the connection of its process"
#: The exit statuses with which a worker process ends itself.
_OWN = {
    LOST_WIRE: _SPOILT,
    BROKEN: "The process that ran this file could not go on, perhaps because the code changes what everything uses, "
    "such as a builtin or a function of the standard library",
}
#: Larger statuses are Windows' own, for faults: some of them are what signals are elsewhere.
_LAST_STATUS = 0xFFFF
_FAULTS = {0xC0000005: "SIGSEGV", 0xC000001D: "SIGILL", 0xC0000094: "SIGFPE", 0xC0000409: "SIGABRT"}
_MEANING = {
    "SIGSEGV": "a segmentation fault in native code",
    "SIGABRT": "an abort in native code",
    "SIGBUS": "a bus error in native code",
    "SIGFPE": "an arithmetic fault in native code",
    "SIGILL": "an illegal instruction in native code",
    "SIGKILL": "killed from outside, perhaps because the machine ran out of memory",
    "SIGTERM": "ended from outside",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, and the function around it ("" if unknown)."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Breach:
    """Why the server ended a child: code `time-limit` (limit in seconds), `memory-limit` (bytes), `process-limit`, or
    `crashed` with a description of its behaviour from `Heartbeat.look`.
    """

    code: str
    limit: float = 0.0
    did: str = ""

    def text(self) -> str:
        """The beginning of a sentence that says what happened."""
        if self.did:
            return f"The process that ran this file {self.did}, and was ended"
        if self.code == "time-limit":
            return f"Tracing took longer than {self.limit:g} s and was stopped"
        if self.code == "process-limit":
            return f"The code started more than {self.limit:g} processes and was stopped"
        return f"Tracing used more than {self.limit / (1 << 30):.3g} GiB and was stopped"


def last_place(fault: str, path: str, folder: str) -> Place | None:
    """The innermost frame inside the workspace, from the last stack in `fault.txt` that has one."""
    # The last stack may have been cut off: then an earlier one is the best information.
    for stack in reversed(fault.split(_STACK)[1:]):
        for found in _FRAME.finditer(stack):
            file = _unescape_name(found["file"])
            if file == path or _is_own(file, folder):
                return Place(file, int(found["line"]), found["function"])
    return None


def stack_of(fault: str, folder: str) -> list[str]:
    """The last stack in `fault.txt`, the innermost frame first, in the form for the log: without source lines."""
    frames = _FRAME.finditer(fault.rpartition(_STACK)[2])
    return [
        f"{path_in_log(_unescape_name(each['file']), folder)}:{each['line']} {each['function']}" for each in frames
    ][:_FRAMES]


def _unescape_name(name: str) -> str:
    # faulthandler writes non-ASCII characters as Python escapes.
    return name.encode("ascii").decode("unicode_escape") if "\\" in name else name


def _is_own(file: str, folder: str) -> bool:
    return Path(file).is_relative_to(folder) and not is_library(file)


def read_fault(scratch: str) -> str:
    """The text that the worker's fault handlers wrote; "" if none."""
    try:
        return (Path(scratch) / "fault.txt").read_text("ascii", "backslashreplace")
    except OSError:
        return ""


def how_it_ended(status: int) -> tuple[str, str]:
    """(code, beginning of a sentence) for a wait status."""
    code = os.waitstatus_to_exitcode(status)
    if own := _OWN.get(code):
        return "crashed", own
    if 0 <= code <= _LAST_STATUS:
        return "exited", f"The code ended its own process with exit status {code}"
    try:
        name = _FAULTS.get(code & 0xFFFFFFFF) or signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}" if code > -0x1000 else f"status {code & 0xFFFFFFFF:#x}"
    meaning = _MEANING.get(name)
    return "crashed", f"The process that ran this file died of {name}" + (f" ({meaning})" if meaning else "")


def container_text(limit: int) -> str:
    """The beginning of a sentence: the system killed a child because the memory ran out."""
    return f"The container's {limit / (1 << 30):.3g} GiB of memory were used up, and the system ended the process"


def describe_spoilt_stream(why: str) -> str:
    """The beginning of a sentence about a process that sent bytes which are not a valid message."""
    return f"{_SPOILT} ({why})"


def tells_the_end(fault: str) -> bool:
    """Was the last entry of the fault file written when the process ended, and not by an earlier look?"""
    return "Fatal Python error" in fault or "os._exit(" in fault


def death_problem(
    code: str,
    text: str,
    place: Place | None,
    path: str,
    output: str = "",
    *,
    exact: bool = True,
    contained: bool = False,
) -> Problem:
    """The diagnostic for a worker that ended: where it was, and when it will be started again.

    exact: is the place where it ended, or only where it was last seen?
    contained: did the container's memory run out, so that no setting of the server helps?
    """
    where = place or Place(path, 1)
    seen = "at" if exact else "last seen at"
    at = f", {seen} line {place.line} of {Path(place.file).name}" if place else ", at a line that is not known"
    inside = f" in {place.function}" if place and place.function not in ("", "<module>") else ""
    said = f"\nIts last output: {output.strip()[-300:]}" if output.strip() else ""
    step = _CONTAINED if contained else _STEPS.get(f"{code} in" if inside else code, _STEPS.get(code, ""))
    message = f"{text}{at}{inside}. {step}{_NEXT}{said}"
    return Problem(where.file, where.line, 0, where.line + 1, 0, "error", code, message)


def explain_late_end(code: str, text: str) -> str:
    """Sentences about a worker that ended after its trace. text: the beginning of a sentence that says how."""
    return f"{text}. {_STEPS.get(code, '')}Its shapes stay; the next save or retrace starts another."


# Resources that the system refuses to a trace: open files, processes, disk space. Each becomes a diagnostic.

_FILES = "as many files are open as may be. Close files in the editor, or raise the limit: `ulimit -n 4096`"
_PROCESSES = "no more processes can be started. End some, or raise the limit: `ulimit -u`"
_REASONS = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: "the machine has no memory left. End other programs",
}


def is_of_the_system(error: OSError) -> bool:
    """Would the system refuse every interpreter in the same way?"""
    return error.errno in _REASONS


def make_refused_problem(path: str, error: OSError) -> Problem:
    """The diagnostic for a file whose trace could not be started, on its first line."""
    why = _REASONS.get(error.errno or 0) or _no_room(error)
    text = f"This file cannot be traced now: {why}. Then save again."
    return Problem(path, 1, 0, 2, 0, "error", "system-limit", text)


def _no_room(error: OSError) -> str:
    """The reason when a trace's temporary folder, the only place it must write to, cannot be made."""
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
