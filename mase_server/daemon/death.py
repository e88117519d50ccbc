"""How a worker died, and at which line of the user's code, as a diagnostic."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from mase_server.observe.records import within
from mase_server.snapshot import Problem
from mase_server.wire import BROKEN, LOST_WIRE

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
#: Frames of a stack that the log gets.
_FRAMES = 20
_STACK = "(most recent call first):"
_NEXT = "It is not traced again until the file changes or a retrace is asked for."
#: code -> the next step; with " in", where it happened inside a function.
_STEPS = {
    "time-limit": "If it only needs longer, raise the setting mase.limits.seconds. ",
    "memory-limit": "If it only needs more, raise the setting mase.limits.memory. ",
    "process-limit": "Start fewer, or none while the file is imported and a model is built or run. ",
    "exited": 'If no model needs it, put it under `if __name__ == "__main__":`. ',
    "exited in": "Raise an exception instead, so that the shapes up to it can be shown. ",
}
_CONTAINED = "If it only needs more, give the container more. "

_SPOILT = "The code closed or wrote to file descriptors that it did not open, among them the connection of its process"
#: What the statuses mean that the process ends itself with.
_OWN = {
    LOST_WIRE: _SPOILT,
    BROKEN: "The process that ran this file could not go on, perhaps because the code changes what everything uses, "
    "such as a builtin or a function of the standard library",
}
_MEANING = {
    signal.SIGSEGV: "a segmentation fault in native code",
    signal.SIGABRT: "an abort in native code",
    signal.SIGBUS: "a bus error in native code",
    signal.SIGFPE: "an arithmetic fault in native code",
    signal.SIGILL: "an illegal instruction in native code",
    signal.SIGKILL: "killed from outside, perhaps because the machine ran out of memory",
    signal.SIGTERM: "ended from outside",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, and the function it is in ("" where that is not known)."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Breach:
    """Why the server ended a child: code `time-limit` (limit in seconds), `memory-limit` (bytes), `process-limit`, or
    `crashed` with what it did, as `Heartbeat.look` says it.
    """

    code: str
    limit: float = 0.0
    did: str = ""

    def text(self) -> str:
        """What happened, as the beginning of a sentence."""
        if self.did:
            return f"The process that ran this file {self.did}, and was ended"
        if self.code == "time-limit":
            return f"Tracing took longer than {self.limit:g} s and was stopped"
        if self.code == "process-limit":
            return f"The code started more than {self.limit:g} processes and was stopped"
        return f"Tracing used more than {self.limit / (1 << 30):.3g} GiB and was stopped"


def last_place(fault: str, path: str, folder: str) -> Place | None:
    """The innermost frame of the workspace in the last stack of `fault.txt` that has one."""
    # The last one may have been cut off: then an earlier one is the best known.
    for stack in reversed(fault.split(_STACK)[1:]):
        for found in _FRAME.finditer(stack):
            file = _unescape(found["file"])
            if file == path or _is_own(file, folder):
                return Place(file, int(found["line"]), found["function"])
    return None


def stack_of(fault: str, folder: str) -> list[str]:
    """The last stack that `fault.txt` holds, the innermost frame first, as the log has it: no line of source."""
    frames = _FRAME.finditer(fault.rpartition(_STACK)[2])
    return [f"{within(_unescape(each['file']), folder)}:{each['line']} {each['function']}" for each in frames][:_FRAMES]


def _unescape(name: str) -> str:
    # faulthandler writes what is not ASCII as Python escapes.
    return name.encode("ascii").decode("unicode_escape") if "\\" in name else name


def _is_own(file: str, folder: str) -> bool:
    path = Path(file)
    return path.is_relative_to(folder) and not {"site-packages", "dist-packages"} & set(path.parts)


def read_fault(scratch: str) -> str:
    """What the worker's fault handlers wrote, "" where nothing."""
    try:
        return (Path(scratch) / "fault.txt").read_text("ascii", "backslashreplace")
    except OSError:
        return ""


def how_it_ended(status: int) -> tuple[str, str]:
    """(code, sentence start) for a wait status."""
    if os.WIFEXITED(status) and (own := _OWN.get(os.WEXITSTATUS(status))):
        return "crashed", own
    if os.WIFEXITED(status):
        return "exited", f"The code ended its own process with exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    meaning = _MEANING.get(number)  # type: ignore[call-overload]
    return "crashed", f"The process that ran this file died of {name}" + (f" ({meaning})" if meaning else "")


def container_text(limit: int) -> str:
    """What happened where the system killed a child for want of memory, as the beginning of a sentence."""
    return f"The container's {limit / (1 << 30):.3g} GiB of memory were used up, and the system ended the process"


def spoilt(why: str) -> str:
    """What happened where bytes came from a process that are no message of ours, as the beginning of a sentence."""
    return f"{_SPOILT} ({why})"


def tells_the_end(fault: str) -> bool:
    """Was what the fault file says last written as the process ended, not at a look some time before?"""
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
    """The diagnostic for a worker that ended: where it was, and when it is started again.

    exact: is the place where it ended, or only where it was seen last?
    contained: was it the container's memory that ran out, so that no setting of the server helps?
    """
    where = place or Place(path, 1)
    seen = "at" if exact else "last seen at"
    at = f", {seen} line {place.line} of {Path(place.file).name}" if place else ", at a line that is not known"
    inside = f" in {place.function}" if place and place.function not in ("", "<module>") else ""
    said = f"\nIts last output: {output.strip()[-300:]}" if output.strip() else ""
    step = _STEPS.get(f"{code} in" if inside else code, _STEPS.get(code, "")) if not contained else _CONTAINED
    message = f"{text}{at}{inside}. {step}{_NEXT}{said}"
    return Problem(where.file, where.line, 0, where.line + 1, 0, "error", code, message)
