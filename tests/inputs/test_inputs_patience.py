"""What counts as a program's own time."""

import sys
from pathlib import Path

import pytest

from mase_server.protocol.request import TraceRequest
from mase_server.tracing.execution import guard, running
from mase_server.tracing.execution.guard import Patience
from mase_server.tracing.execution.running import run_main
from mase_server.worker.job import trace

FOLDER = str(Path(__file__).parent)


class Clock:
    """Both clocks of `time`, and what was waited for a processor, moved by hand."""

    wall = processor = queued = 0.0

    def monotonic(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.processor

    def pass_by(self, wall: float, processor: float, queued: float = 0.0) -> None:
        self.wall, self.processor, self.queued = self.wall + wall, self.processor + processor, self.queued + queued


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(guard, "time", clock)
    monkeypatch.setattr(guard, "seconds_waited", lambda: clock.queued)
    return clock


@pytest.mark.parametrize(
    ("wall", "processor", "queued", "over", "excused"),
    [
        (10.0, 10.0, 0.0, True, 0.0),  # it computes
        (10.0, 0.0, 0.0, True, 0.0),  # it sleeps
        (10.0, 2.0, 0.0, False, 8.0),  # it is given a fifth of a processor
        (50.0, 10.5, 0.0, True, 39.5),  # it computes, slowly
        (10.0, 0.25, 9.5, False, 9.5),  # it is given a fortieth of a processor: that is no sleep
        (50.0, 0.0, 40.0, True, 40.0),  # it sleeps, and waits when it wakes
    ],
)
def test_seconds_without_a_processor_are_excused(clock, wall, processor, queued, over, excused):
    told = []
    waiting = Patience(9.5, FOLDER, told.append)
    clock.pass_by(wall, processor, queued)
    assert (waiting.is_over(sys._getframe()), sum(told)) == (over, excused)


def test_the_import_of_a_library_is_excused_and_that_of_a_neighbour_is_not(clock, tmp_path, monkeypatch):
    (tmp_path / "library").mkdir()
    (tmp_path / "own").mkdir()
    ask = "import builtins\nbuiltins.ask_patience()\n"
    (tmp_path / "library" / "slow_library_p.py").write_text(ask)
    (tmp_path / "own" / "neighbour_p.py").write_text(ask)
    (tmp_path / "own" / "main_p.py").write_text("import slow_library_p\nimport neighbour_p\n")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    told, answers = [], []
    waiting = Patience(5.0, str(tmp_path / "own"), told.append)

    def ask_patience():
        clock.pass_by(6.0, 6.0)
        answers.append(waiting.is_over(sys._getframe()))

    monkeypatch.setattr("builtins.ask_patience", ask_patience, raising=False)
    __import__("main_p")
    assert (answers, told) == ([False, True], [6.0])


LOOP = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear({width}, 5)

    def forward(self, x):
        return self.layer(x)

if __name__ == "__main__":
    while {condition}:
        pass
    Net()(torch.randn(3, Net().layer.in_features))
"""


def saved(folder, text, monkeypatch, fit=None, seconds=1.5):
    """A trace of a text: the seconds that its runs were given, and the payload."""
    given = []

    def run(*args, **kwargs):
        given.append(args[6])
        return run_main(*args, **kwargs)

    monkeypatch.setattr(running, "run_main", run)
    (folder / "net.py").write_text(text)
    (folder / "scratch").mkdir(exist_ok=True)
    path, sent = folder / "net.py", []
    options = {"scratch": str(folder / "scratch"), "fit": fit, "seconds": seconds}
    trace(TraceRequest(str(path), str(folder), "", 1, **options), sent.append)
    return given, next(message["payload"] for message in reversed(sent) if "payload" in message)


def test_a_program_that_never_ends_gets_less_time_until_it_changes(tmp_path, monkeypatch):
    endless = LOOP.format(width=4, condition="True")
    first, payload = saved(tmp_path, endless, monkeypatch)
    second, payload = saved(tmp_path, LOOP.format(width=6, condition="True"), monkeypatch, payload["fit"])
    assert [each["code"] for each in payload["problems"]] == ["time-limit"]
    assert payload["models"][0]["inputs"]["x"][1] == [2, 6]
    third, payload = saved(tmp_path, LOOP.format(width=4, condition="False"), monkeypatch, payload["fit"])
    assert (payload["models"][0]["inputs_from"], payload["problems"]) == ("main", [])
    assert first == third == [1.0]
    assert second[0] < 0.1


def test_what_never_ends_in_a_constructor_is_not_remembered(tmp_path, monkeypatch):
    text = LOOP.format(width=4, condition="False")
    text = text.replace("        super()", "        while True:\n            pass\n        super()")
    _, payload = saved(tmp_path, text, monkeypatch)
    given, payload = saved(tmp_path, LOOP.format(width=4, condition="False"), monkeypatch, payload["fit"])
    assert (given, payload["models"][0]["inputs_from"]) == ([1.0], "main")


SLOW = """
import math

sizes = {"tokens": 7}
table = [math.sin(number) for _ in range(10**9) for number in range(10**9)]
largest = max(table)
width = 5
"""
AFTER_IT = """
from torch import nn

from tables_p import largest, sizes, width

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(sizes["tokens"], width), nn.Linear(width, 3)

    def forward(self, tokens):
        return self.layer(self.table(tokens))
"""


def test_an_imported_file_that_computes_for_long_hides_no_model(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tables_p.py").write_text(SLOW)
    _, payload = saved(tmp_path, AFTER_IT, monkeypatch, seconds=9)
    assert [model["name"] for model in payload["models"]] == ["Net"]
    problem = payload["problems"][0]
    assert (problem["code"], problem["severity"], problem["line"]) == ("time-limit", "warning", 4)
    assert problem["message"].startswith("Line 5 of tables_p.py was ended after ")
