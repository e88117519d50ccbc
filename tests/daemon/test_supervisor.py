"""The supervisor against a child that is played by hand: whatever it sends, there is one outcome."""

import asyncio
import hashlib
import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mase_server.daemon import supervisor
from mase_server.daemon.channel import Channel
from mase_server.daemon.launcher import ChildProcess
from mase_server.daemon.process import OutputLog
from mase_server.daemon.supervisor import Events, Limits, TraceWorker, WorkerGone
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import split_payload
from mase_server.protocol.wire import encode

from .stub_job import payload_of

NO_PROCESS = 2**22 + 1  # above any process id, so that no signal can hit anybody


class Played:
    """A worker whose other end the test holds."""

    def __init__(self, seconds=30.0, pid=NO_PROCESS):
        ours, self.theirs = socket.socketpair()
        self.exited = asyncio.get_running_loop().create_future()
        self.log = OutputLog()
        self.payloads, self.stages = [], []
        child = ChildProcess(pid, Channel(ours), self.log, self.exited)
        events = Events(self.payloads.append, lambda *stage: self.stages.append(stage))
        self.worker = TraceWorker(child, TraceRequest("/w/net.py", "/w", "", 1), Limits(seconds), events)

    def say(self, *messages):
        for message in messages:
            self.theirs.sendall(encode(message))

    def die(self, status):
        self.theirs.close()
        self.exited.set_result(status)

    async def end(self):
        await self.worker.stop()
        self.theirs.close()


async def test_stages_payloads_and_the_end_are_taken_in_order():
    played = Played()
    payload = payload_of("/w/net.py", b"x = 1  # shape f32[2]\n" * 900)
    played.say({"event": "stage", "stage": "import", "message": "net"})
    played.say(*({"event": "snapshot", "frame": frame} for frame in split_payload(payload)))
    played.say({"event": "done", "seconds": 0.5})
    outcome = await played.worker.trace()
    assert (outcome.state, outcome.seconds, outcome.problems) == ("ready", 0.5, ())
    assert played.payloads == [payload]
    assert played.stages == [("import", "net")]
    assert played.worker.live
    await played.end()
    assert not played.worker.live


async def test_a_failure_ends_as_failed_with_its_problem():
    played = Played()
    problem = {"file": "/w/net.py", "line": 2, "column": 0, "end_line": 2, "end_column": 1, "severity": "error",
               "code": "x", "message": "m", "related": [], "fixes": []}  # fmt: skip
    played.say({"event": "failed", "problem": problem}, {"event": "done", "seconds": 0.1})
    outcome = await played.worker.trace()
    assert (outcome.state, [one.line for one in outcome.problems]) == ("failed", [2])
    await played.end()


NONSENSE = [
    {"event": "snapshot", "frame": {"table": "sites", "start": 0, "columns": {}}},
    {"event": "snapshot", "frame": {"tail": {}}},
    {"event": "done"},
    {"event": "failed", "problem": {"odd": 1}},
    {"nothing": 1},
]


@pytest.mark.parametrize("message", NONSENSE, ids=range(len(NONSENSE)))
async def test_nonsense_from_a_worker_is_a_crash_of_that_worker(message):
    played = Played()
    played.say(message)
    played.exited.set_result(9)
    outcome = await played.worker.trace()
    assert (outcome.state, outcome.problems[0].code) == ("crashed", "crashed")
    assert played.payloads == []
    await played.end()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=60))
def test_garbage_bytes_are_a_crash_of_that_worker(garbage):
    async def play():
        played = Played()
        played.theirs.sendall(garbage)
        played.die(11)
        outcome = await played.worker.trace()
        await played.end()
        return outcome

    outcome = asyncio.run(play())
    assert outcome.state == "crashed"
    assert "SIGSEGV" in outcome.problems[0].message


async def test_the_end_of_the_wire_without_done_is_told_by_the_exit_status():
    played = Played()
    played.die(3 << 8)
    outcome = await played.worker.trace()
    assert (outcome.state, outcome.problems[0].code) == ("crashed", "exited")
    assert "exit status 3" in outcome.problems[0].message
    await played.end()


async def test_silence_is_stopped_at_the_time_limit():
    played = Played(seconds=0.2)
    outcome = await played.worker.trace()
    assert outcome.problems[0].code == "time-limit"
    await played.end()


async def test_seconds_without_a_processor_do_not_count(monkeypatch):
    """They are told by the system, so those of a child that cannot tell of itself are, too."""
    clock = asyncio.get_running_loop().time
    monkeypatch.setattr(supervisor, "seconds_waited", lambda child: clock() if child == NO_PROCESS else 0.0)
    played = Played(seconds=0.3)
    started = clock()
    outcome = await played.worker.trace()
    assert outcome.problems[0].code == "time-limit"
    assert clock() - started > 0.6, "it was given more than its limit"
    await played.end()


async def test_seconds_that_are_excused_do_not_count_but_never_without_end():
    played = Played(seconds=0.3)
    started = asyncio.get_running_loop().time()
    played.say({"event": "excused", "seconds": 1e6})
    outcome = await played.worker.trace()
    assert outcome.problems[0].code == "time-limit"
    assert asyncio.get_running_loop().time() - started > 0.6, "it was given more than its limit"
    await played.end()


async def test_calls_are_answered_each_with_its_own_even_out_of_order():
    played = Played()
    played.say({"event": "done", "seconds": 0.0})
    await played.worker.trace()
    one, two = (asyncio.create_task(played.worker.call("m", {"n": n})) for n in (1, 2))
    await asyncio.sleep(0)
    played.say({"result": 2, "value": "two"}, {"result": 7, "value": "nobody's"}, {"result": 1, "error": "no"})
    assert await two == "two"
    with pytest.raises(RuntimeError, match=r"^no$"):
        await one
    await played.end()


async def test_calls_that_wait_and_calls_that_come_late_fail_when_the_worker_ends():
    played = Played()
    played.say({"event": "done", "seconds": 0.0})
    await played.worker.trace()
    waiting = asyncio.create_task(played.worker.call("m"))
    await asyncio.sleep(0)
    played.die(9)
    with pytest.raises(WorkerGone, match=r"the worker of /w/net.py has ended"):
        await asyncio.wait_for(waiting, 30)
    with pytest.raises(WorkerGone):
        await played.worker.call("m")
    await played.end()


async def test_a_log_keeps_the_end_of_a_flood_and_counts_all():
    log = OutputLog()
    digest = hashlib.sha256()

    def flood():
        for number in range(4000):
            block = f"{number:06d}".encode() * 100
            digest.update(block)
            os.write(log.write_fd, block)

    await asyncio.to_thread(flood)
    log.handed_over()
    while log._read_fd >= 0:
        await asyncio.sleep(0)
    assert log.total == 4000 * 600
    assert log.text(6) == "003999"
    assert 64 << 10 <= sum(map(len, log._chunks)) < 192 << 10


async def test_a_log_tells_what_was_written_before_the_event_loop_could_hear_of_it():
    log = OutputLog()
    os.write(log.write_fd, b"last words")
    assert log.text() == "last words"
    os.write(log.write_fd, b", really")
    log.handed_over()
    assert log.text() == "last words, really"
    log.close()
    assert log.text() == "last words, really"
