"""The runner tries a few failed tests once more, each alone, and fails at once for all that is no bad luck."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOOD = "def test_good(): pass\n"
ONCE = """
import pathlib
def test_once():
    mark = pathlib.Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""
ALWAYS = "def test_always(): assert 0\n"
SIX = "".join(f"def test_{each}(): assert 0\n" for each in range(6))
DEATH = "import os\ndef test_death(): os._exit(3)\n"


@pytest.mark.parametrize(
    ("text", "least", "status", "tried"),
    [
        (GOOD, None, 0, 0),
        (ONCE, None, 0, 1),
        (ALWAYS, None, 1, 1),
        (ONCE + SIX, None, 1, 0),
        (DEATH, None, 1, 0),
        ("import nothing_of_this_name\n", None, 1, 0),
        ("def test_stop(): raise KeyboardInterrupt\n", None, 2, 0),
        (ONCE, "99", 1, 0),
        (GOOD, "99", 1, 0),
        (ONCE, "0", 0, 1),
    ],
    ids=["good", "once", "always", "many", "death", "collection", "stop", "once few", "few", "once enough"],
)
def test_only_a_few_failures_are_tried_again(tmp_path, text, least, status, tried):
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "test_other.py").write_text(GOOD)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = [sys.executable, "-m", "tests.second_try", "-p", "no:cacheprovider"]
    words += ["-n", "2"] if least is not None or "assert" not in text else []
    settings = {key: value for key, value in os.environ.items() if key != "MASE_LINES"} | {"PYTHONPATH": str(ROOT)}
    if least is not None:
        words += ["-p", "tests.line_coverage"]
        settings["MASE_LINES"] = least
    done = subprocess.run(words, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("each is tried once more")) == (status, tried), done.stdout + done.stderr
    assert ("to be mended: " in done.stdout) == bool(tried and not status)
