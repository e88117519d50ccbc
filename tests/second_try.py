"""Run pytest, and what failed once more, alone: `python -m tests.second_try ARGUMENTS`.

One unlucky test among eleven thousand is to hold up nobody, and is still to be seen: both runs are in the log, and a
line at the end names what passed only alone. Nothing else is tried again: not too few lines, a file that cannot be
collected, a process that died, a run that was interrupted, nor more failures than `MOST`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: More failures than this are no bad luck.
MOST = 5


class _Failures:
    """The tests that failed, and whether something else went wrong."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}
        self.others = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None
            self.others |= report.when not in ("setup", "call", "teardown")  # pytest-xdist tells a death so

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.others |= report.failed


def run_twice(words: list[str]) -> int:
    """The exit status: 0 also where all that failed has passed alone."""
    failures = _Failures()
    status = int(pytest.main(words, plugins=[failures]))
    lines = sys.modules.get("tests.line_coverage")
    too_few = lines is not None and not lines.has_enough_lines()
    if status != pytest.ExitCode.TESTS_FAILED or failures.others or too_few or not 0 < len(failures.tests) <= MOST:
        return status
    names = list(failures.tests)
    print(f"\nsecond try: {len(names)} failed, each is tried once more without the others", flush=True)
    settings = {key: value for key, value in os.environ.items() if key != "MASE_LINES"}
    for name in names:
        if status := subprocess.run([sys.executable, "-m", "pytest", name], env=settings, check=False).returncode:
            print(f"second try: {name} failed again", flush=True)
            return status
    print(f"second try: {len(names)} failed first and passed alone, to be mended: {', '.join(names)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_twice(sys.argv[1:]))
