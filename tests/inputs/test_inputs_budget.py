"""One clock for everything that a file is searched for."""

import pytest
from searching import problems_in

from mase_server.tracing.inputs import showing
from mase_server.tracing.models import workspace as budgets
from mase_server.tracing.models.found import Found
from mase_server.tracing.models.workspace import Budget, start_stopwatch
from tests.inputs.test_inputs_repairs import HEAD, looked_at


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_budget_is_spent_when_its_seconds_are_over():
    clock = Clock()
    budget = Budget.of(2.0, clock)
    clock.now += 1.5
    assert (budget.left(), budget.is_spent()) == (0.5, False)
    clock.now += 1.0
    assert (budget.left(), budget.is_spent()) == (0.0, True)


@pytest.mark.parametrize(("share", "most", "seconds"), [(0.5, 9.0, 2.0), (1.0, 3.0, 3.0), (1.0, 9.0, 4.0)])
def test_a_part_of_a_budget_ends_no_later_than_the_whole(share, most, seconds):
    clock = Clock()
    part = Budget.of(4.0, clock).part(share, most)
    assert part.left() == seconds


def test_what_is_spent_has_no_parts():
    clock = Clock()
    budget = Budget.of(1.0, clock)
    clock.now += 5.0
    assert budget.part().is_spent()


def test_the_work_of_others_spends_no_budget_and_waiting_spends_half(monkeypatch):
    work, wall = Clock(), Clock()
    monkeypatch.setattr(budgets.time, "process_time", work)
    monkeypatch.setattr(budgets.time, "monotonic", wall)
    elapsed = start_stopwatch()
    work.now, wall.now = work.now + 1.0, wall.now + 1.5
    assert elapsed() == 1.0
    wall.now += 6.5
    assert elapsed() == 4.0


EASY = """class Easy{index}(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = nn.Conv2d(3, dim, 3)

    def forward(self, x):
        return self.layer(x)


"""
HARD = """class Hard(nn.Module):
    def __init__(self, dim):
        super().__init__()
        raise ValueError(f"never {dim}")

    def forward(self, x):
        return x


"""


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_without_any_time_the_likeliest_of_every_class_is_still_tried(workspace, monkeypatch):
    monkeypatch.setattr(showing, "FILE_SECONDS", 0.0)
    items = looked_at(workspace, HEAD + HARD + "".join(EASY.format(index=index) for index in range(3)))
    assert [item.name for item in items if isinstance(item, Found)] == ["Easy0", "Easy1", "Easy2"]
    assert [problem.code for problem in problems_in(items)] == ["no-arguments"]


def test_the_first_of_many_classes_has_half_of_the_time_and_the_last_all_that_is_left():
    shown = showing.Showing.__new__(showing.Showing)
    clock = Clock()
    shown.budget = Budget.of(8.0, clock)
    given = []
    for waiting in (3, 2, 1):
        shown.take_turn(waiting)
        given.append(shown.turn.left())
        clock.now += shown.turn.left()
    assert given == [4.0, 2.0, 2.0]
