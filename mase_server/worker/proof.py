"""Proving quick fixes: the edited text is traced in a fork of this process, and what it then complains of is counted.

A fix that was proved is the preferred one. One that only leads to the next error is still offered, but not preferred.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
        """The problem with its fixes in the order in which they proved right; the first of those is preferred."""
        if not is_preferred(problem):
            return problem
        if not can_fork():
            return replace(problem, fixes=[]) if problem.code == "bad-comment" else problem
        fixes: list[Fix] = []
        for fix in problem.fixes:
            right = fix["preferred"] and not any(each["preferred"] for each in fixes) and self._mends(fix)
            # Of a comment that cannot be read nobody knows what was meant: only what runs is offered.
            if right or problem.code != "bad-comment":
                fixes.append({**fix, "preferred": right})
        return replace(problem, fixes=sorted(fixes, key=lambda fix: not fix["preferred"]))

    def _mends(self, fix: Fix) -> bool:
        if self.left <= 0 or not fix["edits"]:
            return False
        right, spent = forked(lambda: self._is_better(fix), min(ONE, self.left))
        self.left -= spent
        return right

    def _is_better(self, fix: Fix) -> bool:
        for path in dict.fromkeys(edit["file"] for edit in fix["edits"]):
            show_edited(path, applied(decode(read_source(path)), [e for e in fix["edits"] if e["file"] == path]))
        told, models = self.judge()
        # With several mistakes, mending one lets no model run to its end yet.
        return told < self.told and (models > 0 or told > 0)


def is_preferred(problem: Problem) -> bool:
    """Does a problem have a quick fix that is to be preferred if it proves right?"""
    return any(fix["preferred"] for fix in problem.fixes)


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


def forked(judge: Callable[[], bool], seconds: float) -> tuple[bool, float]:
    """What `judge` says in a fork of this process, and the seconds that it took; no if it fails or takes longer.

    seconds: of the fork's own work, or a third of those on the wall where it waits.
    """
    pid = processes.fork()
    if pid == 0:
        status = 1
        try:
            _be_quiet()
            status = 0 if judge() else 1
        finally:
            os.kill(os.getpid(), signal.SIGKILL) if status else os._exit(0)
    started, spent, found = time.monotonic(), 0.0, 0
    try:
        while spent < seconds:
            found, status, used = os.wait4(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status) == 0, used.ru_utime + used.ru_stime
            time.sleep(0.002)
            spent = max(_work(pid), (time.monotonic() - started) / PATIENCE)
        return False, spent
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
