"""After an error: what else is told, what is still shown, and what is kept quiet; against eager PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mase_server.ir.session import Session
from mase_server.tracing.diagnosis.recovery import RecoveringRecorder, handled_lines
from tests.worker.jobs import Job

BRANCHES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a1, self.a2 = nn.Linear(8, 16), nn.Linear({a}, 4)
        self.b1, self.b2 = nn.Conv1d(8, 6, 3), nn.Conv1d({b}, 4, 3)
        self.out = nn.Linear({out}, 2)

    def forward(self, x):
        a = self.a1(x)
        a = self.a2(a)
        b = self.b1(x.transpose(1, 2))
        b = self.b2(b)
        c = x * 2
        d = torch.cat([a.mean(1), b.mean(2)], dim=1)
        return self.out(d), c


if __name__ == "__main__":
    Net()(torch.randn(3, 20, 8))
"""
RIGHT = {"a": 16, "b": 6, "out": 8}


def eager(text: str) -> str:
    """What running the file raises; "" if nothing."""
    names: dict[str, Any] = {"__name__": "__main__", "torch": torch, "nn": nn}
    try:
        exec(text, names)
    except RuntimeError as error:
        return str(error)
    return ""


def told(job: Job) -> list[tuple[int, str]]:
    """The line's text and the severity of each problem."""
    lines = job.text.split("\n")
    return [(lines[problem["line"] - 1].strip(), problem["severity"]) for problem in job.problems]


def test_the_right_file_is_right_and_each_mistake_is_one_for_eager_too():
    assert eager(BRANCHES.format(**RIGHT)) == ""
    for wrong in ({"a": 12}, {"b": 5}, {"out": 99}):
        assert eager(BRANCHES.format(**RIGHT | wrong)) != ""


def test_independent_mistakes_are_told_together(tmp_path: Path):
    job = Job(tmp_path, BRANCHES.format(**RIGHT | {"a": 12, "b": 5}))
    assert told(job) == [("a = self.a2(a)", "error"), ("b = self.b2(b)", "error")]
    assert [[fix["preferred"] for fix in problem["fixes"]] for problem in job.problems] == [[True], [True]]


def test_what_rests_on_a_stand_in_is_not_told(tmp_path: Path):
    job = Job(tmp_path, BRANCHES.format(**RIGHT | {"a": 12, "out": 99}))
    assert told(job) == [("a = self.a2(a)", "error")]


def test_branches_that_do_not_meet_the_error_keep_their_shapes_and_the_others_show_none(tmp_path: Path):
    job = Job(tmp_path, BRANCHES.format(**RIGHT | {"a": 12}))
    shapes = [(name, value[1]) for _, kind, name, value in job.rows() if kind == "binding" and isinstance(value, list)]
    assert sorted(shapes) == [("a", [3, 20, 16]), ("b", [3, 4, 16]), ("b", [3, 6, 18]), ("c", [3, 20, 8])]


class Caught(nn.Module):
    """A forward that tries one way and then another, as code for several versions of a model does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.first(x)
        except RuntimeError:
            return self.second(x)


class ReadsSizes(nn.Module):
    """What is read off a stand-in's sizes may be wrong, and so may all that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = self.first(x).shape[1] + 1
        return x.view(7, width)


class Twice(nn.Module):
    """Two mistakes, the second of which nobody can go on after."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first(x)
        return x.view(7, 3)


def recorded(model: nn.Module) -> RecoveringRecorder:
    session = Session(model, {"x": torch.randn(3, 4)}, recorder=RecoveringRecorder)
    if isinstance(model, Caught):
        session.record()
    else:
        with pytest.raises((RuntimeError, ValueError)):
            session.record()
    assert isinstance(session.base, RecoveringRecorder)
    return session.base


def test_an_error_that_the_forward_handles_itself_is_none():
    recorder = recorded(Caught())
    assert recorder.recovered == []
    assert [call.target for call in recorder.calls if call.kind == "call_module"] == ["second"]


@pytest.mark.parametrize(("kind", "count"), [(ReadsSizes, 1), (Twice, 2)])
def test_only_what_cannot_follow_from_an_earlier_error_counts(kind: type[nn.Module], count: int):
    recorder = recorded(kind())
    assert len(recorder.recovered) == count
    assert recorder.failure is recorder.recovered[0]


def test_the_error_that_is_raised_is_the_first_with_the_frames_of_the_person():
    recorder = recorded(Twice())
    trace = recorder.recovered[0].error.__traceback__
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "forward" in names


def test_lines_on_which_exceptions_are_handled(tmp_path: Path):
    path = tmp_path / "code.py"
    path.write_text("a\ntry:\n    b\n    c\nexcept E:\n    d\ntry:\n    e\nfinally:\n    f\n")
    assert handled_lines(str(path)) == {3, 4}
    assert 12 in handled_lines(str(tmp_path / "nowhere.py"))


STAND_INS = {
    "matmul": "x @ torch.randn(5, 6)",
    "cat": "torch.cat([x, x[:2]], dim=1)",
    "add": "x + torch.randn(5)",
    "view": "x.view(5, 2)",
    "loss": "nn.functional.binary_cross_entropy(x, x[:2])",
    "linear": "nn.functional.linear(x, torch.randn(6, 5))",
    "layer_norm": "nn.functional.layer_norm(x, (5,))",
}


@pytest.mark.parametrize("name", STAND_INS)
def test_recording_goes_on_after_each_kind_of_call(name: str):
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = eval(STAND_INS[name])
            y = y * 2
            return y, x.view(7, 3)

    with pytest.raises((RuntimeError, ValueError)):
        eval(STAND_INS[name], {"torch": torch, "nn": nn, "x": torch.rand(3, 4)})
    assert [failure.func.__name__ for failure in recorded(Net()).recovered[1:]] == ["view"]
