"""Quick fixes are tried before they are preferred, and a try never harms the process that makes it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mase_server.protocol.snapshot import Problem
from mase_server.tracing.importing.source import EDITED
from mase_server.worker import proof
from mase_server.worker.proof import MOST_STEPS, Proofs, apply_edits, judge_in_fork, show_edited
from tests.worker.jobs import Job

TWO = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, {out}), nn.Linear(12, 4)

    def forward(self, x):
        h = self.first(x)
        return self.second(h) + x


if __name__ == "__main__":
    Net()(torch.randn(3, {width}))
"""


def edit(line: int, column: int, end: int, text: str) -> dict[str, Any]:
    return {
        "file": "model.py", "line": line, "column": column, "end_line": line, "end_column": end, "new_text": text
    }  # fmt: skip


def test_a_fix_that_mends_the_file_is_preferred(tmp_path: Path):
    job = Job(tmp_path, TWO.format(out=16, width=8).replace(" + x", ""))
    (problem,) = job.problems
    (fix,) = problem["fixes"]
    assert (fix["title"], fix["preferred"]) == (f"Change `12` to `16` (line {fix['edits'][0]['line']})", True)


def test_a_fix_that_only_leads_to_the_next_error_is_offered_but_not_preferred(tmp_path: Path):
    job = Job(tmp_path, TWO.format(out=16, width=8))
    (problem,) = job.problems
    (fix,) = problem["fixes"]
    assert fix["title"].startswith("Change `12` to `16` (line ")
    assert not fix["preferred"]


def test_a_fix_of_another_file_names_it(tmp_path: Path):
    (tmp_path / "parts.py").write_text("from torch import nn\n\n\ndef head():\n    return nn.Linear(12, 4)\n")
    text = TWO.format(out=16, width=8).replace(" + x", "").replace("nn.Linear(12, 4)", "parts.head()")
    job = Job(tmp_path, f"import parts\n{text}")
    (problem,) = job.problems
    assert [fix["title"] for fix in problem["fixes"]] == ["Change `12` to `16` (parts.py, line 5)"]


def test_the_text_on_disk_and_in_this_process_stays_as_it_was(tmp_path: Path):
    job = Job(tmp_path, TWO.format(out=16, width=8))
    assert job.path.read_text(encoding="utf-8") == job.text
    assert EDITED == {}


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (lambda: (True, 12), (True, 12)),
        (lambda: (False, 12), (False, 12)),
        (lambda: (None, 12), (None, 12)),
        (lambda: (1 / 0, 12), (None, 0)),
        (lambda: os._exit(7), (None, 0)),
        (lambda: os._exit(0), (None, 0)),
    ],
)
def test_what_a_fork_says(judge: Any, expected: tuple[bool | None, int]):
    assert judge_in_fork(judge) == expected


def test_a_fork_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: made.append(fork()) or made[-1])
    for judge in (lambda: time.sleep(600) is None, lambda: any(iter(int, 1))):
        assert judge_in_fork(judge, 0.05) == (None, math.inf)
        with pytest.raises(ChildProcessError):
            os.waitpid(made.pop(), os.WNOHANG)


def test_what_comes_while_a_fork_is_waited_for_ends_the_fork(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: made.append(fork()) or made[-1])
    monkeypatch.setattr(proof.system, "stat_of", lambda pid: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        judge_in_fork(lambda: time.sleep(600) is None)
    with pytest.raises(ChildProcessError):
        os.waitpid(made.pop(), os.WNOHANG)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a process waited for a processor")
def test_a_fork_that_gets_no_processor_is_waited_for():
    """Otherwise the fixes of text that is typed, whose trace has a low priority, would depend on other programs."""
    alone = min(os.sched_getaffinity(0))
    busy = f"import os, time\nos.sched_setaffinity(0, {{{alone}}})\nwhile time.process_time() < 5: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(4)]

    def worked() -> tuple[bool, int]:
        os.sched_setaffinity(0, {alone})
        os.nice(4)
        started = time.process_time()
        while time.process_time() - started < 0.15:
            pass
        return True, 1

    try:
        assert judge_in_fork(worked, 0.3) == (True, 1)
    finally:
        for each in others:
            each.kill()
            each.wait()


def test_once_the_steps_are_spent_only_templates_are_offered(tmp_path: Path):
    proofs = Proofs(lambda: (0, 1, 1), 2, 0.0)
    templates = ["# mase: Net(dim=..., name='a')\n", "    # mase: x: ...; y: f32[3]\n", "# mase: x: ?\n"]
    given = fixes("a", "# mase: x: f32[2, 3]\n", *templates, "# mase: Net(dim=3)\n")
    problem = Problem("model.py", 1, 0, 1, 1, "error", "shape-mismatch", "", [], given)
    assert [fix["edits"][0]["new_text"] for fix in proofs.proved(problem).fixes] == templates


def test_a_fix_that_does_not_come_to_its_end_or_makes_it_worse_is_not_offered(tmp_path: Path):
    told = {"a": 3, "c": 2}
    assert proved(("a", "b", "c"), told, tmp_path) == [("c", False)]


def test_the_same_fixes_are_tried_however_long_they_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Steps count, as in the search for models: a clock would offer other fixes on a busy machine."""
    told = {"a": 0, "b": 0, "c": 0}
    seconds = iter(range(1000))
    monkeypatch.setattr(proof.time, "monotonic", lambda: float(next(seconds)))
    assert [title for title, _ in proved(("a", "b", "c"), told, tmp_path, steps=2)] == ["a", "b"]


def test_before_a_fix_was_traced_it_is_not_offered(tmp_path: Path):
    job = Job(tmp_path, TWO.format(out=16, width=8).replace(" + x", ""))
    *early, last = [event["payload"]["problems"] for event in job.events if event["event"] == "snapshot"]
    assert early
    assert not any(problem["fixes"] for problems in early for problem in problems)
    assert last[0]["fixes"]


def fixes(*titles: str) -> list[dict[str, Any]]:
    return [{"title": title, "preferred": True, "edits": [edit(1, 0, 1, title)]} for title in titles]


def proved(
    titles: tuple[str, ...], told: dict[str, int], tmp_path: Path, steps: float = MOST_STEPS
) -> list[tuple[str, bool]]:
    """The fixes of a problem where an edited file that begins with a letter is told so many problems, in one step."""
    path = tmp_path / "model.py"
    path.write_text("x = 1\n")
    given = fixes(*titles)
    for fix in given:
        fix["edits"][0]["file"] = str(path)
    problem = Problem(str(path), 1, 0, 1, 1, "error", "shape-mismatch", "", [], given)
    proofs = Proofs(lambda: (told[EDITED[str(path)][:1].decode()], 1, 1), 2, steps)
    return [(fix["title"], fix["preferred"]) for fix in proofs.proved(problem).fixes]


def test_the_first_fix_that_proves_right_comes_first(tmp_path: Path):
    told = {"a": 2, "b": 1, "c": 0}
    assert proved(("a", "b", "c"), told, tmp_path) == [("b", True), ("a", False), ("c", False)]
    assert proved(("a",), told, tmp_path) == [("a", False)]


def test_edits_are_applied_from_the_end(tmp_path: Path):
    assert apply_edits("abc\ndef", [edit(1, 0, 1, "X"), edit(2, 3, 3, "\ng"), edit(1, 1, 2, "YY")]) == "XYYc\ndef\ng"


def test_an_edited_text_is_what_inspection_reads(tmp_path: Path):
    import linecache

    path = tmp_path / "code.py"
    path.write_text("one\n")
    try:
        show_edited(str(path), "two\n")
        linecache.checkcache(str(path))
        assert linecache.getline(str(path), 1) == "two\n"
    finally:
        EDITED.clear()
        linecache.clearcache()
