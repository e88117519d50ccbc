"""What counts as a program's own time."""

import sys
from pathlib import Path

import pytest

from mase_server.inputs import patience
from mase_server.inputs.patience import Patience

FOLDER = str(Path(__file__).parent)


class Clock:
    """Both clocks of `time`, moved by hand."""

    wall = processor = 0.0

    def monotonic(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.processor

    def pass_by(self, wall: float, processor: float) -> None:
        self.wall, self.processor = self.wall + wall, self.processor + processor


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(patience, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("wall", "processor", "over", "excused"),
    [
        (10.0, 10.0, True, 0.0),  # it computes
        (10.0, 0.0, True, 0.0),  # it sleeps
        (10.0, 2.0, False, 8.0),  # it is given a fifth of a processor
        (50.0, 10.5, True, 39.5),  # it computes, slowly
    ],
)
def test_seconds_without_a_processor_are_excused(clock, wall, processor, over, excused):
    told = []
    waiting = Patience(9.5, FOLDER, told.append)
    clock.pass_by(wall, processor)
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
