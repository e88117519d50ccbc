"""What stops a file's own run, and what is still found of it."""

import ast
import collections
import urllib.error

import pytest
from searching import problems_in

from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.tracing.execution.guard import RefusedError
from mase_server.tracing.inputs.trouble import find_failed_constructor, find_refusal, is_under_main_guard
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, plain_hooks
from mase_server.tracing.recording.shadow import Shadows

HEAD = "import torch\nfrom torch import nn\n\n"
NET = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, 2)

    def forward(self, x):
        return self.layer(x)
"""
COUNT = "import collections\ncollections.runs = getattr(collections, 'runs', 0) + 1\n"
LOOP = "while True:\n    pass\n"


@pytest.fixture
def look(tmp_path, monkeypatch):
    """A function that gives what is found in a text, and its problems; `seconds` is the limit of the whole trace."""
    monkeypatch.setattr(collections, "runs", 0, raising=False)

    def run(text, seconds=0.9, **options):
        path = tmp_path / "workspace" / "models.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + text)
        folder, scratch = str(path.parent), str(tmp_path / "scratch")
        request = TraceRequest(str(path), folder, "", 1, TraceOptions(**options), scratch=scratch, seconds=seconds)
        items = list(find_models(request, path.read_text(), plain_hooks(Shadows())))
        return [item.name for item in items if isinstance(item, Found)], list(problems_in(items))

    return run


def test_an_endless_loop_is_met_once_and_what_stands_before_it_is_found(look):
    names, [problem] = look(COUNT + NET + LOOP)
    assert names == ["Net"]
    assert (problem.code, problem.severity) == ("time-limit", "error")
    assert (HEAD + COUNT + NET + LOOP).splitlines()[problem.line - 1] in LOOP.splitlines()
    assert problem.message.startswith("This file had run for 0.6 s without calling a model when it was stopped here.")
    assert collections.runs == 1


def test_the_place_is_the_innermost_line_of_the_file_with_its_calls(look):
    text = NET + "\nimport time\ndef wait():\n    time.sleep(1000)\nwait()\n"
    _, [problem] = look(text)
    lines = (HEAD + text).splitlines()
    assert lines[problem.line - 1][problem.column : problem.end_column] == "time.sleep(1000)"
    assert [lines[place["line"] - 1] for place in problem.related] == ["wait()"]


def test_a_long_program_is_a_warning_and_may_be_left_out(look):
    text = NET + "\nif __name__ == '__main__':\n    while True:\n        pass\n"
    names, [problem] = look(text)
    assert (names, problem.severity) == (["Net"], "warning")
    assert "turn the setting mase.runMain off" in problem.message
    assert look(text, run_main=False) == (["Net"], [])


def test_a_constructor_without_an_end_is_not_tried_again(look):
    names, [problem] = look(
        COUNT + NET.replace("        self.layer", f"        {'while True: pass'}\n        self.layer") + "Net()\n"
    )
    assert (names, problem.code, problem.severity) == ([], "time-limit", "error")
    assert collections.runs == 1


def test_a_loop_before_all_classes_is_the_only_problem(look):
    assert [problem.code for problem in look(LOOP + NET)[1]] == ["time-limit"]


@pytest.mark.parametrize(
    ("end", "code"), [("raise SystemExit(2)\n", "exited"), ("import os\nos.remove(__file__)\n", "refused")]
)
def test_what_ends_the_run_without_an_error_leaves_what_was_defined(look, end, code):
    names, [problem] = look(NET + end)
    assert (names, problem.code, problem.severity) == (["Net"], code, "warning")


@pytest.mark.parametrize(
    ("end", "severity"),
    [("raise ValueError('no')\n", "error"), ("Net(width='two')\n", "error"), ("import not_there_at_all\n", "warning")],
)
def test_an_error_of_the_run_is_told_once_and_leaves_what_was_defined(look, end, severity):
    names, [problem] = look(NET + end)
    assert (names, problem.severity) == (["Net"], severity)


def raised(text, name="f.py"):
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile(text, name, "exec"), {"__name__": "f"})
    return caught.value


def test_a_refusal_is_found_inside_the_errors_that_libraries_make_of_it():
    refused = RefusedError("a network connection was refused")
    assert find_refusal(refused) is refused
    assert find_refusal(urllib.error.URLError(refused)) is refused
    by_library = ConnectionError("cannot connect")
    by_library.__cause__ = refused
    assert find_refusal(by_library) is refused
    assert find_refusal(OSError("disk full")) is None


def test_the_class_being_constructed_is_the_outermost_one():
    text = HEAD + "class In(nn.Module):\n    def __init__(self):\n        super().__init__()\n        1 / 0\n"
    text += "class Out(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = In()\n"
    assert find_failed_constructor(raised(text + "Out()\n")) == "Out"
    assert find_failed_constructor(raised(text + "In()\n")) == "In"
    assert find_failed_constructor(raised("1 / 0")) is None


def test_only_code_under_the_question_for_its_name_is_guarded():
    for text, expected in {
        "if __name__ != 'g':\n    1 / 0\n": True,
        "1 / 0\nif __name__ == '__main__':\n    pass\n": False,
        "if True:\n    1 / 0\n": False,
        "def main():\n    1 / 0\nif __name__:\n    main()\n": True,
    }.items():
        assert is_under_main_guard("f.py", raised(text), ast.parse(text)) == expected, text
