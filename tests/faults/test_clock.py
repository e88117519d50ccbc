"""The wall clock may jump by hours, when summer time ends or a laptop wakes: nothing that waits may read it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "mase_server"
WALL = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}
#: Where the age of something on disk is asked, which only that clock knows: a jump costs a cleaning up.
AGES = {"daemon/tracked.py": 1, "simulation/building.py": 1}
PARTS = ("daemon", "lsp", "rpc", "worker", "client", "simulation", "telemetry")


def looks(path):
    """How often a file asks for the time of day."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [each.func for each in ast.walk(tree) if isinstance(each, ast.Call)]
    named = [each for each in calls if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
    return sum((each.value.id, each.attr) in WALL for each in named)


@pytest.mark.parametrize("part", PARTS)
def test_nothing_that_waits_or_limits_reads_the_wall_clock(part):
    files = sorted((PACKAGE / part).rglob("*.py"))
    assert files
    told = {path.relative_to(PACKAGE).as_posix(): looks(path) for path in files}
    assert {path: count for path, count in told.items() if count} == {
        path: count for path, count in AGES.items() if path.startswith(f"{part}/")
    }


def test_a_look_at_the_wall_clock_is_seen(tmp_path):
    path = tmp_path / "late.py"
    path.write_text("import time\nend = time.time() + 3\nwhile time.monotonic() < 1 or time.time() < end: pass\n")
    assert looks(path) == 2
