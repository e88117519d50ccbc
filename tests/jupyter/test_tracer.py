"""Who traces a cell: the workspace's daemon, unless it cannot, or would in another environment than the kernel's."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mase_server.cli.attached import Detached
from mase_server.jupyter import tracer
from mase_server.jupyter.tracer import NotStarted, NotTraced, OwnDaemon, Tracer
from mase_server.rpc.registry import Registration

HERE = Path(sys.executable).parent
WORKSPACE, OWN = (Registration("/w", f"unix:/{name}", 1, "", "serve", "0") for name in ("workspace", "own"))


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A tracer and whom it asks, of whom the answers are made up: an interpreter, or an exception."""
    answers = {WORKSPACE.address: f"{HERE}/python3", OWN.address: sys.executable}
    asked = SimpleNamespace(answers=answers, whom=[], started=0, texts=[])

    def answer(self, registration, source, patience=None):
        asked.whom.append(registration.address)
        if isinstance(told := answers[registration.address], Exception):
            raise told
        return SimpleNamespace(told={"interpreter": told})

    class Started:
        registration, runs = OWN, True

        def __init__(self, folder):
            assert folder == str(tmp_path)
            asked.started += 1

        def close(self):
            self.runs = False

    monkeypatch.setattr(tracer, "daemon_of", lambda path: WORKSPACE)
    monkeypatch.setattr(tracer, "OwnDaemon", Started)
    monkeypatch.setattr(Tracer, "_asked", answer)
    asked.tracer = Tracer(str(tmp_path))
    return asked


def test_the_workspaces_daemon_is_asked_alone(asked):
    for _ in range(2):
        asked.tracer.trace("x = 1")
    assert (asked.whom, asked.started) == ([WORKSPACE.address] * 2, 0)


def test_one_that_traces_with_another_environment_is_asked_once(asked):
    asked.answers[WORKSPACE.address] = "/another/bin/python"
    for _ in range(2):
        assert asked.tracer.trace("x = 1").told["interpreter"] == sys.executable
    assert (asked.whom, asked.started) == ([WORKSPACE.address, OWN.address, OWN.address], 1)


def test_one_that_cannot_is_asked_again_as_it_may_be_able_the_next_time(asked):
    asked.answers[WORKSPACE.address] = Detached("the daemon of /w does not trust this folder")
    asked.tracer.trace("x = 1")
    asked.answers[WORKSPACE.address] = sys.executable
    asked.tracer.trace("x = 1")
    assert asked.whom == [WORKSPACE.address, OWN.address, WORKSPACE.address]


def test_an_own_one_that_ended_is_started_again(asked, monkeypatch):
    monkeypatch.setattr(tracer, "daemon_of", lambda path: None)
    asked.tracer.trace("x = 1")
    asked.tracer._own.runs = False
    asked.tracer.trace("x = 1")
    assert (asked.whom, asked.started) == ([OWN.address] * 2, 2)


def test_where_nobody_answers_it_is_told_why(asked):
    asked.answers |= {WORKSPACE.address: Detached("busy"), OWN.address: Detached("the daemon of /w does not answer")}
    with pytest.raises(NotTraced, match=r"^the daemon of /w does not answer$"):
        asked.tracer.trace("x = 1")


def test_a_folder_that_is_gone_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tracer, "daemon_of", lambda path: WORKSPACE)
    with pytest.raises(NotTraced, match=r"traced as a file of its folder, but there is no folder .*nowhere"):
        Tracer(str(tmp_path / "nowhere")).trace("x = 1")


def test_a_daemon_that_does_not_start_says_what_it_said(monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(NotStarted, match=r"serve \. .*did not start: [^$]+nowhere"):
        OwnDaemon(".")
