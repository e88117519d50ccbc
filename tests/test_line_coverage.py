"""Which lines the tests run: as Python's own tracing tells it, and with exit status 1 where they are too few."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.line_coverage import LINE, compile_marked

ROOT = Path(__file__).parents[1]

STATEMENTS = '''\
"""Not a statement that runs."""
from __future__ import annotations
import contextlib
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import torch
@contextlib.contextmanager
def manage(label: str):
    """Nor is this."""
    global managed
    try:
        yield label
    except ValueError:
        managed = label
    else:
        managed = (
            label + "!"
        )
    finally:
        print(label)
class Point:
    """A point."""
    x: int = 0
    def __init__(self, x): self.x = x
    @property
    def double(self):
        return 2 * self.x
    def empty(self): ...
    async def later(self):
        async with contextlib.AsyncExitStack():
            pass
        return self.x
def choose(value):
    match value:
        case Point(x=0):
            return "origin"
        case [first, *_] if first:
            return "list"
        case _:
            pass
    if value == 1:
        return "one"
    elif value == 2:
        return "two"
    else:
        def nested():
            nonlocal value
            value += 1
            raise KeyError(value)
    for each in range(2):
        while each:
            each -= 1
            continue
        else:
            assert not each
    try:
        nested()
    except* KeyError:
        del each
    return None
    print("never")
with manage("with") as label:
    [choose(each) for each in (Point(0), [1], 1, 5)]
with contextlib.suppress(KeyError), manage("error"):
    raise KeyError
with manage("value"):
    raise ValueError
with contextlib.suppress(StopIteration):
    Point(3).later().send(None)
'''


def count_marks(source: str) -> tuple[set[int], set[int]]:
    """The lines that can be marked, and those that are after the source has run."""
    code, lines = compile_marked(source.encode(), "statements.py")
    space = {"__name__": "statements"}
    exec(code, space)
    return set(lines), {line for line in lines if LINE.format(line) in space}


def trace_lines(source: str) -> set[int]:
    """The lines of which Python's own tracing tells."""
    ran = set()

    def trace(frame, event, _):
        if frame.f_code.co_filename != "statements.py":
            return None
        if event == "line":
            ran.add(frame.f_lineno)
        return trace

    code = compile(source, "statements.py", "exec")
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        exec(code, {"__name__": "statements"})
    finally:
        sys.settrace(before)
    return ran


def test_the_marked_lines_are_those_that_python_traces():
    lines, marked = count_marks(STATEMENTS)
    assert marked == trace_lines(STATEMENTS) & lines
    rows = STATEMENTS.splitlines()
    assert [rows[line - 1].strip() for line in sorted(lines - marked)] == [
        "return 2 * self.x",
        'return "two"',
        'print("never")',
    ]
    uncounted = [row.strip() for line, row in enumerate(rows, 1) if line not in lines]
    assert uncounted == [
        '"""Not a statement that runs."""',
        "from __future__ import annotations",
        "import torch",
        "@contextlib.contextmanager",
        '"""Nor is this."""',
        "global managed",
        "except ValueError:",
        "else:",
        'label + "!"',
        ")",
        "finally:",
        '"""A point."""',
        "@property",
        "case Point(x=0):",
        "case [first, *_] if first:",
        "case _:",
        "else:",
        "nonlocal value",
        "else:",
        "except* KeyError:",
    ]


def test_what_a_file_defines_is_what_it_defines_without_marks():
    spaces = [{"__name__": "statements"}, {"__name__": "statements"}]
    exec(compile(STATEMENTS, "statements.py", "exec"), spaces[0])
    code, lines = compile_marked(STATEMENTS.encode(), "statements.py")
    exec(code, spaces[1])
    plain, marked = spaces
    assert [name for name in marked if name not in map(LINE.format, lines)] == list(plain)
    assert marked["__doc__"] == plain["__doc__"]
    for name in ("manage", "Point", "choose"):
        assert marked[name].__doc__ == plain[name].__doc__
    assert list(vars(marked["Point"])) == list(vars(plain["Point"]))


def test_torch_compile_sees_through_marks_and_sets_them():
    source = "def step(x):\n    if x.shape[0] > 2:\n        return x + 1\n    return x - 1\n"
    code, _ = compile_marked(source.encode(), "step.py")
    space = {"__name__": "step"}
    exec(code, space)
    compiled = torch.compile(space["step"], fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.zeros(3)), torch.ones(3))
    assert [line for line in range(1, 5) if LINE.format(line) in space] == [1, 2, 3]


TESTS = {
    "test_reload.py": """
import importlib
from mase_server import suggestions

def test_a_module_that_is_loaded_again_keeps_its_marks():
    assert suggestions.suggest("ranks", []) == "; there are none"
    assert suggestions.describe_unreadable(ValueError("no")) == ": no"
    importlib.reload(suggestions)
""",
    "test_fork.py": """
import os
import re
from mase_server import suggestions, visible

def test_a_fork_runs_and_reports_nothing():
    assert suggestions.suggest("ranks", ["rank"])
    child = os.fork()
    if not child:
        os._exit(visible.reveal_prompt("[a](b)") != "[a] (b)")
    assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize(("processes", "least", "status"), [(0, "0", 0), (2, "99.5", 1)])
def test_the_report_adds_up_what_all_processes_ran_and_fails_if_it_is_too_little(tmp_path, processes, least, status):
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-p", "tests.line_coverage"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-n", str(processes), str(tmp_path)]
    environment = os.environ | {"MASE_LINES": least}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    demand = ", at least 99.5 % are wanted" if status else ""
    packages = r"small modules [1-9] %, cli 0 %, client 0 %, .*, worker 0 %"
    assert re.search(rf"^0\.\d\d % of \d{{5}} lines ran{demand}: {packages}$", done.stdout, re.M)
    missing = (tmp_path / "tests" / "output" / "lines.txt").read_text()
    assert not re.search(r"^mase_server/suggestions.py", missing, re.M)
    [ranges] = re.findall(r"^mase_server/visible.py: \d+ %, without (.*)$", missing, re.M)
    rows = (ROOT / "mase_server" / "visible.py").read_text().splitlines()
    line = 1 + rows.index('    return reveal_lines(text).replace("](", "] (")')
    assert str(line) in ranges.split(", ")  # its `def` ran, and so did the next one
