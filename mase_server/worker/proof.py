"""Proving quick fixes: the edited text is traced in a fork of this process, and its problems are counted.

Only fixes that were traced are offered. The first one that leaves fewer problems is preferred; one that merely leads
to the next error is offered, but not preferred. A template, a comment with blanks to fill in, cannot be tried: it is
offered as it is.

A proved fix is one with which the file runs; it need not be the one that the person meant.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mase_server import system
from mase_server.protocol.records import Edit, Fix
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.importing.source import EDITED, decode_source, read_source, show_lines
from mase_server.tracing.inputs.comments import is_template
from mase_server.tracing.models.workspace import FILE_STEPS

#: Steps for all proofs of a file. They are counted as the steps of a search for models are: the same file gets the same
#: fixes whatever the load.
MOST_STEPS = 2 * FILE_STEPS
#: Seconds of work after which a proof is given up, and every later one; waiting may take `PATIENCE` times as long.
LONGEST, PATIENCE = 30.0, 3.0

#: Traces the edited file; returns the number of its errors and warnings, of models that ran to their end, and of steps.
Judge = Callable[[], tuple[int, int, int]]


@dataclass(slots=True)
class Proofs:
    """Proves the quick fixes of one file's problems.

    told: the number of errors and warnings in the unedited file. left: steps for all remaining proofs.
    """

    judge: Judge
    told: int
    left: float = MOST_STEPS

    def proved(self, problem: Problem) -> Problem:
        """The problem with those of its fixes that were traced; the first proved one comes first and is preferred."""
        fixes: list[Fix] = []
        for fix in problem.fixes:
            if _is_template(fix):
                fixes.append(fix)
                continue
            right = self._is_proved_fix(fix)
            # The meaning of an unreadable comment is unknown: only a fix that runs is offered.
            if right or (right is False and problem.code != "bad-comment"):
                first = right and fix["preferred"] and not any(each["preferred"] for each in fixes)
                fixes.append({**fix, "preferred": first})
        return replace(problem, fixes=sorted(fixes, key=lambda fix: not fix["preferred"]))

    def _is_proved_fix(self, fix: Fix) -> bool | None:
        """Does the edited file have fewer problems? None if it was not traced to its end, or has more."""
        if self.left <= 0 or not fix["edits"] or not system.HAS_FORK:
            return None
        right, steps = judge_in_fork(lambda: self._is_better(fix))
        self.left -= steps
        return right

    def _is_better(self, fix: Fix) -> tuple[bool | None, int]:
        for path in dict.fromkeys(edit["file"] for edit in fix["edits"]):
            show_edited(
                path, apply_edits(decode_source(read_source(path)), [e for e in fix["edits"] if e["file"] == path])
            )
        told, models, steps = self.judge()
        # With several mistakes, fixing one does not let any model run to its end yet.
        right = told < self.told and (models > 0 or told > 0)
        return None if told > self.told else right, steps


def needs_proof(problem: Problem) -> bool:
    """Does a problem have a quick fix that is offered only after it was traced?"""
    return not all(map(_is_template, problem.fixes))


def unproved(problem: Problem) -> Problem:
    """The problem with the fixes that may be offered before they are traced."""
    return replace(problem, fixes=list(filter(_is_template, problem.fixes)))


def _is_template(fix: Fix) -> bool:
    return bool(fix["edits"]) and all(is_template(edit["new_text"]) for edit in fix["edits"])


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """A text after its edits."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda edit: (edit["line"], edit["column"]), reverse=True):
        before, after = lines[edit["line"] - 1][: edit["column"]], lines[edit["end_line"] - 1][edit["end_column"] :]
        lines[edit["line"] - 1 : edit["end_line"]] = (before + edit["new_text"] + after).split("\n")
    return "\n".join(lines)


def show_edited(path: str, text: str) -> None:
    """Make this process see another text of a file."""
    EDITED[path] = text.encode()
    show_lines(path, text)


#: Seconds between two looks at the work of a fork.
_POLL = 0.1


def judge_in_fork(judge: Callable[[], tuple[bool | None, int]], seconds: float = LONGEST) -> tuple[bool | None, float]:
    """The verdict and the steps of `judge` in a fork of this process; None if the fork fails or works longer.

    seconds: of the fork's own work; including waiting, but not for a processor, it has three times as many. The steps
    of a fork that worked longer are infinite.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    said, say = os.pipe()
    pid = system.fork_process()
    if pid == 0:
        try:
            _be_quiet()
            right, steps = judge()
            os.write(say, f"{right} {steps}".encode())
        finally:
            os.kill(os.getpid(), system.KILL)
    os.close(say)
    started = time.monotonic()
    try:
        while not select.select([said], [], [], _POLL)[0]:
            passed = time.monotonic() - started - system.seconds_waited(pid)
            if max(system.stat_of(pid)[1], passed / PATIENCE) >= seconds:
                return None, math.inf
        verdict, _, taken = os.read(said, 100).decode().partition(" ")
        return {"True": True, "False": False}.get(verdict), int(taken or 0)
    finally:  # a Ctrl-C, or a limit's signal, may have arrived meanwhile
        os.close(said)
        os.kill(pid, system.KILL)
        os.waitpid(pid, 0)


def _be_quiet() -> None:
    """Silence the fork, including reports of its current line, and let SIGTERM and SIGALRM end it."""
    for number in system.signals_named("SIGALRM", "SIGTERM"):
        signal.signal(number, signal.SIG_DFL)
    for number in system.signals_named("SIGUSR1", "SIGUSR2"):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def unload_modules(paths: Sequence[str]) -> None:
    """Unload the modules of these files, so that they are imported anew."""
    for name, module in list(sys.modules.items()):
        # Asking a lazy module for an attribute would import it.
        if getattr(module, "__dict__", {}).get("__file__") in paths:
            del sys.modules[name]
