"""Passes in the real worker, as a server starts it."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from mase_server.daemon.channel import CallFailed
from mase_server.daemon.launcher import ForkLauncher
from mase_server.daemon.process import DEFAULT_JOB
from mase_server.daemon.supervisor import Events, Limits, TraceWorker
from mase_server.protocol.request import TraceOptions, TraceRequest

from .conftest import tasks
from .serving import children, gone

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = [{"pass": "quantize", "arguments": {"default": "fixed(16,8)"}}]


class Session:
    """One traced example: its payloads, its worker, and what a call told."""

    def __init__(self, launcher: ForkLauncher, worker: TraceWorker, payloads: list[Any]) -> None:
        self.launcher, self.worker, self.payloads = launcher, worker, payloads

    async def call(self, method: str, **params: Any) -> tuple[list[Any], Any]:
        events: list[Any] = []
        value = await self.worker.call(method, params, events.append)
        return [event["transform"] for event in events if "transform" in event], value


async def traced(python: str, folder: Path, name: str, **options: Any) -> Session:
    shutil.copy(EXAMPLES / name, folder / name)
    path = folder / name
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    launcher = await ForkLauncher.start(python, str(folder), DEFAULT_JOB)
    request = TraceRequest(str(path), str(folder), sha256, 1, TraceOptions(**options), scratch=str(folder / "scratch"))
    payloads: list[Any] = []
    worker = TraceWorker(await launcher.launch(), request, Limits(120), Events(payloads.append, lambda *stage: None))
    outcome = await worker.trace()
    assert outcome.state == "ready", outcome
    return Session(launcher, worker, payloads)


@pytest.fixture
async def session(tmp_path: Path):
    found = await traced(sys.executable, tmp_path, "mlp.py", pipelines={"MLP": STEPS})
    yield found
    await found.worker.stop()
    await found.launcher.close()


async def test_a_pipeline_comes_with_the_trace_and_its_errors_when_asked(session: Session):
    (with_trace,) = session.payloads[-1]["transforms"]
    assert with_trace["summary"]["parameter_bytes"][0] == 2 * with_trace["summary"]["parameter_bytes"][1]
    assert not with_trace["complete"]
    transforms, value = await session.call("transform", model="MLP", steps=STEPS, measure=True)
    assert value == {}
    assert transforms[0]["rows"] == with_trace["rows"] == transforms[-1]["rows"]
    assert transforms[-1]["summary"]["sqnr"] > 20
    assert transforms[-1]["complete"]


async def test_the_warm_parent_still_has_one_thread_with_every_pass_imported(session: Session):
    await session.call("transform", steps=STEPS, measure=True)
    _, listed = await session.call("passes")
    assert len(listed) > 20
    assert tasks(session.launcher.handshake.pid) == 1


async def test_the_child_and_its_holder_keep_one_thread(session: Session):
    await session.call("transform", steps=STEPS, measure=True)
    child = session.worker.child.pid
    (holder,) = children(child)
    assert [tasks(pid) for pid in (child, holder)] == [1, 1]


async def test_nothing_is_left_when_the_child_is_stopped(session: Session):
    await session.call("transform", steps=STEPS, measure=True)
    below = children(session.worker.child.pid)
    assert below
    await session.worker.stop()
    assert gone(below)


async def test_an_answer_says_what_was_wrong(session: Session):
    with pytest.raises(CallFailed, match="no pass 'quantise'") as failed:
        await session.call("transform", steps=[{"pass": "quantise", "arguments": {}}], measure=True)
    assert failed.value.kind == "argument"


async def test_passes_run_where_there_is_torch_alone(torch_only_python: str, tmp_path: Path):
    session = await traced(torch_only_python, tmp_path, "lstm_classifier.py")
    transforms, _ = await session.call("transform", steps=STEPS, measure=True)
    assert transforms[-1]["summary"]["sqnr"] > 15
    await session.worker.stop()
    await session.launcher.close()
