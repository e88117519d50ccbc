"""One trace of a text in place of a clean file, and whether its diagnostic is the one that a bug should have."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.worker.job import trace
from tests.bugs.bugs import MENDED, UNDONE, Bug, clean_text
from tests.worker.jobs import undisturbed


@dataclass(frozen=True, slots=True)
class Traced:
    """What a trace told: its problems, and the names of the models that ran to their end."""

    problems: list[dict[str, Any]]
    models: list[str]

    @property
    def told(self) -> list[dict[str, Any]]:
        """The errors, and what may be one: a forward that fails with inputs that are only likely."""
        return [problem for problem in self.problems if problem["severity"] in ("error", "warning")]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The problems that say that the code is wrong."""
        return [problem for problem in self.problems if problem["severity"] == "error"]


def traced(text: str, folder: Path) -> Traced:
    """Trace a text as the only file of a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "scratch").mkdir(parents=True)
    path = folder / "model.py"
    path.write_text(text, encoding="utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    request = TraceRequest(str(path), str(folder), digest, 1, TraceOptions(), scratch=str(folder / "scratch"))
    events: list[dict[str, Any]] = []
    with undisturbed():
        models = trace(request, events.append).traced
    payload = [event["payload"] for event in events if event["event"] == "snapshot"][-1]
    return Traced(payload["problems"], [one.name for one in models if one.error is None])


def applied(text: str, fix: dict[str, Any]) -> str:
    """The text after a quick fix."""
    lines = text.split("\n")
    for edit in sorted(fix["edits"], key=lambda edit: (edit["line"], edit["column"]), reverse=True):
        before, after = lines[edit["line"] - 1][: edit["column"]], lines[edit["end_line"] - 1][edit["end_column"] :]
        lines[edit["line"] - 1 : edit["end_line"]] = (before + edit["new_text"] + after).split("\n")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one bug was told. `fix`: "" without one, else "right", "wrong" (with what) ."""

    bug: Bug
    problems: Sequence[dict[str, Any]]
    placed: bool
    told: bool
    fix: str

    @property
    def good(self) -> bool:
        """Is there one error, at the right line, that says what it should, with the fix that it should have?"""
        return self.placed and self.told and (self.fix == "right" if self.bug.fix else self.fix in ("", "right"))


def judge(bug: Bug, folder: Path) -> Verdict:
    """Trace a seeded file; where the only error has a preferred quick fix, apply it and trace again."""
    text = bug.seeded()
    found = traced(text, folder)
    if len(found.told) != 1:
        return Verdict(bug, found.problems, False, False, "")
    (error,) = found.told
    placed = error["line"] in bug.lines()
    told = re.search(bug.says, error["message"].replace("\n", " ")) is not None
    preferred = [fix for fix in error["fixes"] if fix.get("preferred")]
    return Verdict(
        bug, found.problems, placed, told, _fix_verdict(bug, text, preferred[0], folder) if preferred else ""
    )


def _fix_verdict(bug: Bug, text: str, fix: dict[str, Any], folder: Path) -> str:
    mended = applied(text, fix)
    again = traced(mended, folder)
    if again.told or not again.models:
        return f"wrong: {fix['title']}: {[problem['message'] for problem in again.problems]}"
    right = mended == clean_text(bug.file) if bug.fix == UNDONE else bug.fix in (MENDED, "") or bug.fix in mended
    return "right" if right else f"other: {fix['title']}"
