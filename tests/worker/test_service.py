"""A trace child while passes run: it answers, cancels, holds to limits, and outlives whatever a pass does."""

from __future__ import annotations

import os
import signal

import pytest

from mase_server.worker.transforms.ask import in_units
from tests.worker.jobs import Job
from tests.worker.serving import Answer, Child, alive, children, gone, room

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        y = self.fc2(F.relu(self.fc1(x)))
        return y


if __name__ == "__main__":
    Net()(torch.randn(3, 8))
"""
PASSES = '''
import ctypes
import os
import subprocess
import sys
import time


def endless_transform_pass(graph, pass_args={}):
    """Never comes back."""
    while True:
        time.sleep(0.01)


def lingers_transform_pass(graph, pass_args={}):
    """Never comes back from a model with values."""
    while not any(parameter.is_meta for parameter in graph.module.parameters()):
        time.sleep(0.01)
    return graph, {}


def hungry_transform_pass(graph, pass_args={}):
    """Wants ever more memory."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 32))


def exits_transform_pass(graph, pass_args={}):
    """Leaves."""
    sys.exit(3)


def vanishes_transform_pass(graph, pass_args={}):
    """Leaves without a word."""
    os._exit(7)


def crashes_transform_pass(graph, pass_args={}):
    """Reads what is not there."""
    ctypes.string_at(0)


def prints_transform_pass(graph, pass_args={}):
    """Talks, and starts a program that talks."""
    print("hello" * 1000)
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "from outside"], check=True)
    return graph, {"said": 2}


def raises_transform_pass(graph, pass_args={}):
    """Divides by nothing."""
    return 1 / 0


def ruins_transform_pass(graph, pass_args={}):
    """Leaves half of a graph and raises."""
    for node in list(graph.fx_graph.nodes)[::-1][1:3]:
        node.args = ()
    raise ValueError("half done")


def closes_transform_pass(graph, pass_args={}):
    """Closes all files and goes on for ever."""
    os.closerange(3, 1000)
    while True:
        time.sleep(0.01)


def spawns_transform_pass(graph, pass_args={}):
    """Leaves a process behind."""
    if os.fork() == 0:
        time.sleep(600)
    return graph, {}
'''
FIXED = "quantize(default='fixed(8,4)')"


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Job:
    folder = tmp_path_factory.mktemp("passes")
    (folder / "my_passes.py").write_text(PASSES)
    return Job(folder, NET)


@pytest.fixture
def child(job: Job):
    made = Child(job.live)
    yield made
    below = made.forks()
    if alive(made.pid):
        made.close()
    assert gone(below)


def still_works(child: Child) -> bool:
    answer = child.call("transform", FIXED, measure=True)
    return answer.error == "" and answer.last["summary"]["sqnr"] is not None


def begun(child: Child, *steps: str, **params: object) -> int:
    """A call whose first step is under way."""
    ident = child.ask("transform", *steps, **params)
    child.wait(ident, lambda message: message.get("event") == "progress")
    return ident


def begun_on_values(child: Child, **params: object) -> int:
    """A call under way on the real model, on meta it is done."""
    ident = child.ask("transform", "lingers()", **params)
    for _ in range(2):
        child.wait(ident, lambda message: message.get("message", "").startswith("lingers"))
    return ident


def test_calls_are_answered_while_a_pass_runs(child: Child):
    slow = begun(child, "endless()")
    assert child.call("ping").value == "pong"
    assert still_works(child)
    child.send({"op": "cancel", "id": slow})
    answer = child.wait(slow)
    assert (answer.kind, answer.error) == ("cancelled", "it was cancelled")


def test_what_is_cancelled_ends_at_once(child: Child):
    slow = begun(child, "endless()")
    (fork,) = children(child.pid)
    child.send({"op": "cancel", "id": slow})
    assert child.wait(slow).kind == "cancelled"
    assert gone([fork])
    child.send({"op": "cancel", "id": slow})
    child.send({"op": "cancel", "id": 99})
    assert child.call("ping").value == "pong"


def test_what_is_cancelled_on_the_real_model_ends_and_the_model_stays(child: Child):
    assert still_works(child)
    (holder,) = children(child.pid)
    slow = begun_on_values(child, measure=True)
    (fork,) = children(holder)
    child.send({"op": "cancel", "id": slow})
    assert child.wait(slow).kind == "cancelled"
    assert gone([fork])
    assert still_works(child)
    assert children(child.pid) == [holder]
    assert gone(children(holder))


def test_a_pass_that_takes_too_long_is_stopped(child: Child):
    answer = child.call("transform", "endless()", seconds=0.5)
    assert answer.kind == "limit"
    assert answer.error.startswith("stopped during endless: it took more than 0.5 s; ")
    assert still_works(child)


def test_a_pass_that_takes_too_much_memory_is_stopped(child: Child):
    memory = room(1 << 29)
    answer = child.call("transform", "hungry()", memory=memory)
    assert answer.kind == "limit"
    assert answer.error.startswith(f"stopped during hungry: it took more than {in_units(memory)} of memory; ")
    assert still_works(child)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("exits()", "SystemExit: 3"),
        ("raises()", "ZeroDivisionError: division by zero"),
        ("vanishes()", "the process that ran the passes ended with status 7 during vanishes (2 of 2)"),
        ("crashes()", "was ended by SIGSEGV during crashes (2 of 2), at File "),
        ("ruins()", "half done"),
    ],
)
def test_a_pass_that_goes_wrong_says_how_and_where(child: Child, step: str, told: str):
    answer = child.call("transform", FIXED, step, measure=False)
    assert answer.kind == "pass"
    assert told in answer.error
    assert "my_passes.py" in answer.error or "vanishes" in step
    assert still_works(child)


def test_a_step_that_ruins_the_graph_leaves_what_came_before(child: Child):
    answer = child.call("transform", FIXED, "ruins()", measure=True)
    assert answer.last["failed"] == 1
    assert [step["pass"] for step in answer.last["steps"]] == ["quantize"]
    assert answer.last["summary"]["sqnr"] == child.call("transform", FIXED, measure=True).last["summary"]["sqnr"]


def test_a_pass_that_prints_and_starts_programs_does_not_disturb(child: Child):
    answer = child.call("transform", "prints()")
    assert answer.error == ""
    assert answer.last["steps"][0]["info"] == "said 2"


def test_a_fork_that_is_killed_is_answered_for(child: Child):
    slow = begun(child, "endless()")
    os.kill(children(child.pid)[0], signal.SIGKILL)
    answer = child.wait(slow)
    assert answer.kind == "pass"
    assert answer.error == "the process that ran the passes was ended by SIGKILL during endless"
    assert still_works(child)


STOPPED = "the process that ran the passes was stopped by a signal, and was ended"


def test_a_fork_that_is_stopped_is_ended_and_answered_for(child: Child):
    slow = begun(child, "endless()")
    os.kill(children(child.pid)[0], signal.SIGSTOP)
    answer = child.wait(slow)
    assert (answer.kind, answer.error) == ("pass", STOPPED)
    assert still_works(child)


def test_a_fork_on_the_real_model_that_is_stopped_is_ended_and_answered_for(child: Child):
    assert still_works(child)
    slow = begun_on_values(child, measure=True)
    (holder,) = children(child.pid)
    os.kill(children(holder)[0], signal.SIGSTOP)
    assert child.wait(slow).error == STOPPED
    assert still_works(child)
    assert children(child.pid) == [holder]


def test_a_holder_that_is_stopped_is_ended_with_its_forks_and_made_anew(child: Child):
    assert still_works(child)
    slow = begun_on_values(child, measure=True)
    (holder,) = children(child.pid)
    os.kill(holder, signal.SIGSTOP)
    answer = child.wait(slow)
    assert (answer.kind, "SIGKILL" in answer.error) == ("internal", True)
    assert gone([holder])
    assert still_works(child)


def test_a_killed_holder_of_the_real_model_is_answered_for_and_made_anew(child: Child):
    assert still_works(child)
    (holder,) = children(child.pid)
    os.kill(holder, signal.SIGKILL)
    assert gone([holder])
    assert still_works(child)
    assert children(child.pid) != [holder]


def test_a_fork_on_the_real_model_that_is_killed_is_answered_for(child: Child):
    assert still_works(child)
    slow = begun_on_values(child, measure=True)
    (holder,) = children(child.pid)
    os.kill(children(holder)[0], signal.SIGKILL)
    answer = child.wait(slow)
    assert answer.error == "the process that ran the passes was ended by SIGKILL during lingers"
    assert still_works(child)
    assert children(child.pid) == [holder]


def test_a_holder_that_is_killed_while_a_pass_runs_is_answered_for(child: Child):
    assert still_works(child)
    slow = begun_on_values(child, measure=True)
    (holder,) = children(child.pid)
    os.kill(holder, signal.SIGKILL)
    answer = child.wait(slow)
    assert answer.kind == "internal"
    assert "SIGKILL" in answer.error
    assert gone([holder])
    assert still_works(child)


def test_a_fork_that_closes_its_files_is_ended(child: Child):
    answer = child.call("transform", "closes()")
    assert answer.kind == "pass"
    assert gone(child.forks())


def test_no_fork_is_left_when_the_server_goes(job: Job):
    child = Child(job.live)
    assert still_works(child)
    begun(child, "endless()")
    below = child.forks()
    assert len(below) >= 2
    child.close()
    assert gone(below)


def test_no_fork_is_left_when_the_child_is_killed(job: Job):
    child = Child(job.live)
    assert still_works(child)
    begun_on_values(child, measure=True)
    below = child.forks()
    assert len(below) == 2
    child.kill()
    assert gone(below)


def test_two_pipelines_may_run_side_by_side(child: Child):
    one = child.ask("transform", FIXED, measure=True)
    other = child.ask("transform", "quantize(default='fixed(16,8)')", measure=True)
    results: list[Answer] = [child.wait(other), child.wait(one)]
    errors = [answer.last["summary"]["sqnr"] for answer in results]
    assert errors[0] > errors[1] > 0


def test_errors_are_the_same_every_time(child: Child):
    found = [child.call("transform", FIXED, measure=True).last["nodes"] for _ in range(2)]
    assert found[0] == found[1]
