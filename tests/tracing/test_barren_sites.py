"""Loops over things that are no tensors: a tokenizer's tables do not hold up a trace, and hide nothing."""

from __future__ import annotations

import gc
import weakref

from mase_server.tracing.recording import calls
from mase_server.tracing.recording.calls import PATIENCE, Reports
from tests.worker.jobs import Job

TABLES = """
def table(words):
    merged = []
    for word in words:
        pair = (word, word)
        merged.append(pair)
    return merged


MERGES = table([str(number) for number in range(20000)])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        pair = (x, self.fc(x))
        return pair
"""

LATE = """
class Net(nn.Module):
    def forward(self, x):
        held = []
        for step in range(40):
            state = [] if step < 39 else [x]
            held.append(state)
        return state
"""


def looked_at(monkeypatch):
    """The containers that were searched for tensors."""
    seen = []
    search = calls.holds_tensor
    monkeypatch.setattr(calls, "holds_tensor", lambda value: bool(seen.append(type(value))) or search(value))
    return seen


def test_a_site_is_given_up_after_enough_containers_without_a_tensor(tmp_path, monkeypatch):
    seen = looked_at(monkeypatch)
    job = Job(tmp_path, TABLES)
    assert 0 < len(seen) < 12 * PATIENCE
    assert job.value("pair") == {"tuple": [["f32", [2, 4], ["B", "4"]], ["f32", [2, 3], ["B", "3"]]]}


def test_a_tensor_that_comes_late_is_shown(tmp_path):
    assert Job(tmp_path, LATE).value("state")["tuple"][0][0] == "f32"


def test_a_type_that_was_met_is_freed():
    met = type("Met", (), {})
    Reports().reporter("net.py", ())(0, met())
    left = weakref.ref(met)
    del met
    gc.collect()
    assert left() is None
