"""One count of steps for everything that a file is searched for."""

import time

import pytest
from searching import problems_in

from mase_server.tracing.inputs import showing
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import Found
from mase_server.tracing.models.workspace import Budget
from tests.inputs.test_inputs_repairs import HEAD, looked_at


class Counter:
    """Steps that pass when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_budget_is_spent_when_its_steps_are_over():
    counter = Counter()
    budget = Budget.of(2.0, counter)
    counter.now += 1.5
    assert (budget.left(), budget.is_spent()) == (0.5, False)
    counter.now += 1.0
    assert (budget.left(), budget.is_spent()) == (0.0, True)


@pytest.mark.parametrize(("share", "most", "steps"), [(0.5, 9.0, 2.0), (1.0, 3.0, 3.0), (1.0, 9.0, 4.0)])
def test_a_part_of_a_budget_ends_no_later_than_the_whole(share, most, steps):
    part = Budget.of(4.0, Counter()).part(share, most)
    assert part.left() == steps


def test_what_is_spent_has_no_parts():
    counter = Counter()
    budget = Budget.of(1.0, counter)
    counter.now += 5.0
    assert budget.part().is_spent()


def test_the_time_limit_of_a_trace_ends_every_budget():
    late = []
    budget = Budget.of(4.0, Counter(), lambda: bool(late))
    part = budget.part(0.5)
    assert not part.is_spent()
    late.append(True)
    assert (budget.is_spent(), part.is_spent()) == (True, True)


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


def test_without_any_steps_the_likeliest_of_every_class_is_still_tried(workspace, monkeypatch):
    monkeypatch.setattr(showing, "FILE_STEPS", 0)
    items = looked_at(workspace, HEAD + HARD + "".join(EASY.format(index=index) for index in range(3)))
    assert [item.name for item in items if isinstance(item, Found)] == ["Easy0", "Easy1", "Easy2"]
    assert [problem.code for problem in problems_in(items)] == ["no-arguments"]


def test_the_first_of_many_classes_has_half_of_the_steps_and_the_last_all_that_are_left():
    shown = showing.Showing.__new__(showing.Showing)
    counter = Counter()
    shown.budget = Budget.of(8.0, counter)
    given = []
    for waiting in (3, 2, 1):
        shown.take_turn(waiting)
        given.append(shown.turn.left())
        counter.now += shown.turn.left()
    assert given == [4.0, 2.0, 2.0]


SEARCHED = (
    HEAD
    + """class Deep(nn.Module):
    def __init__(self, dim, heads, depth, num_classes):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, heads, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, num_classes)

    def forward(self, left, right):
        x = torch.cat([left, right], dim=1)
        assert left.shape[1] == 3 * right.shape[1]
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


"""
)


def run_faster(clock, times):
    """A clock that goes so many times as fast from now on."""
    began = clock()
    return lambda: began + times * (clock() - began)


def test_a_slow_machine_finds_the_same_models_with_the_same_inputs(workspace, monkeypatch):
    """The clocks of the second run go two hundred times as fast."""
    outcomes = []
    for faster in (1, 200):
        for name in ("process_time", "thread_time", "monotonic", "perf_counter"):
            monkeypatch.setattr(time, name, run_faster(getattr(time, name), faster))
        items = looked_at(workspace, SEARCHED, seconds=1000.0 * faster)
        outcomes.append([(item.name, format_inputs(item.spec)) for item in items if isinstance(item, Found)])
        monkeypatch.undo()
    assert outcomes[0] == outcomes[1]
    assert [name for name, _ in outcomes[0]] == ["Deep"]
