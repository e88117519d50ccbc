"""Every seeded bug of the tests: what is told of it, where, and whether the quick fix mends it.

Usage: python benchmarks/bugs.py [REGEX]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["OMP_NUM_THREADS"] = "1"

from figures import tell
from rich.console import Console
from rich.table import Table

from tests.bugs.running import Verdict, judge
from tests.bugs.table import BUGS


def main(pattern: str = "") -> None:
    folder = Path(tempfile.mkdtemp()) / "job"
    started = time.perf_counter()
    verdicts = [judge(bug, folder) for bug in BUGS if re.search(pattern, bug.name)]
    table = Table("bug", "line", "words", "fix", "told", title=f"{len(verdicts)} seeded bugs")
    for verdict in verdicts:
        table.add_row(*row(verdict))
    console = Console(width=200)
    console.print(table)
    shares = [
        sum(map(bool, each)) for each in zip(*((v.placed, v.told, v.fix == "right") for v in verdicts), strict=True)
    ]
    tell("bugs/line", 100 * shares[0] / len(verdicts))
    tell("bugs/fixed", 100 * shares[2] / len(verdicts))
    placed, told, fixed = (f"{count} ({100 * count / len(verdicts):.1f} %)" for count in shares)
    seconds = time.perf_counter() - started
    console.print(f"At the right line {placed}, in the right words {told}, mended by the fix {fixed}; {seconds:.0f} s.")


def row(verdict: Verdict) -> tuple[str, ...]:
    """One line of the table."""
    told = verdict.problems[0]["message"].replace("\n", " ") if verdict.problems else ""
    marks = ("yes" if mark else "NO" for mark in (verdict.placed, verdict.told))
    return (verdict.bug.name, *marks, verdict.fix or "-", told)


if __name__ == "__main__":
    main(*sys.argv[1:2])
