"""Proving quick fixes: the edited text is traced in a fork of this process, and what it then complains of is counted.

Only fixes that were traced are offered. The first one that leaves fewer problems is the preferred one; one that only
leads to the next error is offered, but not preferred. A template, a comment with blanks to fill in, says nothing that
could be tried: it is offered as it is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mase_server.inputs.comments import is_template
from mase_server.snapshot import Problem
from mase_server.tracing.loading.source import EDITED, decode, read_source, show_lines
from mase_server.worker import processes

#: Seconds of work for one proof, and for all of a file's; of waiting at most `PATIENCE` times as many.
ONE, ALL, PATIENCE = 4.0, 8.0, 3.0

Fix = dict[str, Any]
#: Traces the file as `EDITED` has it: how many errors and warnings there are, how many models ran to their end.
Judge = Callable[[], tuple[int, int]]


@dataclass(slots=True)
class Proofs:
    """Proves the quick fixes of one file's problems.

    told: how many errors and warnings it has as it is. left: seconds of work for all that is still to be proved; what
    other programs do at the time counts little, so that a busy machine offers the same fixes.
    """

    judge: Judge
    told: int
    left: float

    @classmethod
    def of(cls, judge: Judge, told: int) -> Proofs:
        """With the usual time."""
        return cls(judge, told, ALL)

    def proved(self, problem: Problem) -> Problem:
        """The problem with those of its fixes that were traced; the first that proved right is first, and preferred."""
        fixes: list[Fix] = []
        for fix in problem.fixes:
            if _is_template(fix):
                fixes.append(fix)
                continue
            right = self._mends(fix)
            # Of a comment that cannot be read nobody knows what was meant: only what runs is offered.
            if right or (right is False and problem.code != "bad-comment"):
                first = right and fix["preferred"] and not any(each["preferred"] for each in fixes)
                fixes.append({**fix, "preferred": first})
        return replace(problem, fixes=sorted(fixes, key=lambda fix: not fix["preferred"]))

    def _mends(self, fix: Fix) -> bool | None:
        """Does the edited file have fewer problems? None where it was not traced to its end, or has more."""
        if self.left <= 0 or not fix["edits"] or not can_fork():
            return None
        right, spent = forked(lambda: self._is_better(fix), min(ONE, self.left))
        self.left -= spent
        return right

    def _is_better(self, fix: Fix) -> bool | None:
        for path in dict.fromkeys(edit["file"] for edit in fix["edits"]):
            show_edited(path, applied(decode(read_source(path)), [e for e in fix["edits"] if e["file"] == path]))
        told, models = self.judge()
        # With several mistakes, mending one lets no model run to its end yet.
        return None if told > self.told else told < self.told and (models > 0 or told > 0)


def needs_proof(problem: Problem) -> bool:
    """Does a problem have a quick fix that is offered only once it was traced?"""
    return not all(map(_is_template, problem.fixes))


def unproved(problem: Problem) -> Problem:
    """The problem with what may be offered of it before its fixes were traced."""
    return replace(problem, fixes=list(filter(_is_template, problem.fixes)))


def _is_template(fix: Fix) -> bool:
    return bool(fix["edits"]) and all(is_template(edit["new_text"]) for edit in fix["edits"])


def applied(text: str, edits: Sequence[dict[str, Any]]) -> str:
    """A text after its edits."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda edit: (edit["line"], edit["column"]), reverse=True):
        before, after = lines[edit["line"] - 1][: edit["column"]], lines[edit["end_line"] - 1][edit["end_column"] :]
        lines[edit["line"] - 1 : edit["end_line"]] = (before + edit["new_text"] + after).split("\n")
    return "\n".join(lines)


def show_edited(path: str, text: str) -> None:
    """From now on this process sees another text of a file."""
    EDITED[path] = text.encode()
    show_lines(path, text)


def can_fork() -> bool:
    """Is a fork of a process that has run tensor operations safe here?"""
    return sys.platform == "linux"


#: Statuses with which a fork says yes and no; any other one says that it did not get to its end.
_YES, _NO = 76, 77


def forked(judge: Callable[[], bool | None], seconds: float) -> tuple[bool | None, float]:
    """The verdict of `judge` in a fork of this process, and its seconds; None if the fork fails or takes longer.

    seconds: of the fork's own work; if it waits, it has three times as many by the clock.
    """
    pid = processes.fork()
    if pid == 0:
        said = None
        try:
            _be_quiet()
            said = judge()
        finally:
            os.kill(os.getpid(), signal.SIGKILL) if said is None else os._exit(_YES if said else _NO)
    started, spent, found = time.monotonic(), 0.0, 0
    try:
        while spent < seconds:
            found, status, used = os.wait4(pid, os.WNOHANG)
            if found:
                said = {_YES: True, _NO: False}.get(os.waitstatus_to_exitcode(status))
                return said, used.ru_utime + used.ru_stime
            time.sleep(0.002)
            spent = max(_work(pid), (time.monotonic() - started) / PATIENCE)
        return None, spent
    finally:
        if not found:  # a Ctrl-C, or a limit's signal, may have come meanwhile
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _work(pid: int) -> float:
    """Seconds that a child has computed, 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _be_quiet() -> None:
    """The fork says nothing, not even at which line it is, and ends when it is told to."""
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def forget(paths: Sequence[str]) -> None:
    """Unload the modules of these files, so that they are imported anew."""
    for name, module in list(sys.modules.items()):
        # Asking a lazy module for an attribute would import it.
        if getattr(module, "__dict__", {}).get("__file__") in paths:
            del sys.modules[name]
