"""Seeded bugs, one in each copy of a clean file: where they are told, in what words, and whether the fix mends them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bugs.bugs import FOLDERS, Bug, clean_text
from tests.bugs.running import judge, traced
from tests.bugs.table import BUGS

CLEAN = sorted({bug.file for bug in BUGS} | {f"clean/{path.stem}" for path in FOLDERS["clean"].glob("*.py")})
#: Shares that are promised.
PLACED, FIXED = 0.95, 0.5


@pytest.mark.parametrize("bug", [bug for bug in BUGS if not bug.missed], ids=lambda bug: bug.name)
def test_a_bug_is_told_once_at_its_line_in_the_right_words_with_a_fix_that_mends_it(bug: Bug, tmp_path: Path) -> None:
    verdict = judge(bug, tmp_path / "job")
    assert verdict.placed, verdict.problems
    assert verdict.told, verdict.problems
    assert verdict.good, verdict.fix


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.missed], ids=lambda bug: bug.name)
def test_a_bug_that_is_missed_is_not_told_as_an_error_elsewhere(bug: Bug, tmp_path: Path) -> None:
    assert traced(bug.seeded(), tmp_path / "job").errors == []


@pytest.mark.parametrize("file", CLEAN)
def test_a_clean_file_has_no_error(file: str, tmp_path: Path) -> None:
    found = traced(clean_text(file), tmp_path / "job")
    assert found.errors == []
    assert found.models


def test_the_promised_shares() -> None:
    assert len(BUGS) >= 60
    assert len({bug.seeded() for bug in BUGS}) == len(BUGS)
    assert sum(not bug.missed for bug in BUGS) >= PLACED * len(BUGS)
    assert sum(bug.fix != "" for bug in BUGS) >= FIXED * len(BUGS)
