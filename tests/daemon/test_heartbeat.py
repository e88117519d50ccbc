"""Who is stopped or stuck is noticed; who works, reads, or waits for a processor is left alone."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from mase_server.daemon import process, supervisor
from mase_server.daemon.channel import WorkerGone
from mase_server.daemon.limits import Heartbeat
from mase_server.daemon.process import DEFAULT_JOB, LaunchFailed, NoEnvironment, boot_worker

from .test_supervisor import Played

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it, which Linux alone has")
#: More than a quiet process is given.
LOOKS = 40
SLEEPS = "import time; print(flush=True); time.sleep(600)"
SPINS = "print(flush=True)\nwhile True: pass"
#: As a program that waits for a file to be unlocked: it looks again and again, and gets nowhere.
ASKS = "import os, time; print(flush=True)\nwhile True: time.sleep(0.01); os.path.exists('/none')"
READS = "import time\nprint(flush=True)\nwhile True:\n    time.sleep(0.001)\n    open('/proc/self/stat').read()"


@pytest.fixture
def start():
    """A function that starts Python code, in a group of its own, and waits until it has said something."""
    started = []

    def run(code, **options):
        each = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, **options)
        started.append(each)
        each.stdout.readline()
        return each.pid

    yield run
    for each in started:
        each.kill()
        each.communicate()


async def looked(pid, asked=1, looks=LOOKS):
    """The verdict on a process after at most `looks` looks."""
    heartbeat = Heartbeat(pid)
    for _ in range(looks):
        if said := heartbeat.look(asked):
            return said
        await asyncio.sleep(0.01)
    return ""


@pytest.mark.parametrize(("code", "why"), [(SLEEPS, "has done nothing for 30 s"), (ASKS, "has done nothing for 30 s")])
async def test_who_does_nothing_is_blamed_where_something_waits_for_it_alone(start, code, why):
    pid = start(code)
    # On a busy machine the process waits for a processor now and then, and the looks are counted from there again.
    assert (await looked(pid, looks=100 * LOOKS)).startswith(why)
    assert not await looked(pid, asked=None)


@pytest.mark.parametrize("code", [SPINS, READS], ids=["computes", "reads"])
async def test_who_works_is_not_blamed(start, code):
    assert not await looked(start(code))


async def test_who_waits_for_a_processor_is_not_blamed(start):
    """Of two on one processor the one of the lowest class gets nearly nothing of it."""
    one = {min(os.sched_getaffinity(0))}
    pid = start(SPINS)
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    for each in (pid, start(SPINS)):
        os.sched_setaffinity(each, one)
    assert not await looked(pid)


async def test_who_is_stopped_is_blamed_at_the_second_look_though_nothing_waits_for_it(start):
    pid = start(SPINS)
    os.kill(pid, signal.SIGSTOP)
    while open(f"/proc/{pid}/stat").read().split()[2] != "T":  # noqa: SIM115
        await asyncio.sleep(0)
    heartbeat = Heartbeat(pid)
    assert [heartbeat.look(), heartbeat.look()] == ["", "was stopped by a signal"]


async def test_a_child_that_does_not_answer_a_call_is_ended_and_who_asked_is_told(start, monkeypatch):
    monkeypatch.setattr(supervisor, "_POLL_IDLE", 0.01)
    played = Played(pid=start(SLEEPS))
    played.say({"event": "done", "seconds": 0.1})
    await played.worker.trace()
    with pytest.raises(WorkerGone, match="has done nothing for 30 s, and did not answer, and was ended"):
        await played.worker.call("passes")
    await played.end()


async def test_an_interpreter_that_is_stopped_while_it_starts_is_told_as_no_fault_of_its_own(tmp_path, monkeypatch):
    spawn = process._spawn_worker

    async def stopped(*arguments):
        started = await spawn(*arguments)
        os.kill(started.pid, signal.SIGSTOP)
        return started

    monkeypatch.setattr(process, "_spawn_worker", stopped)
    with pytest.raises(LaunchFailed, match="was stopped by a signal while it was starting"):
        await boot_worker(sys.executable, "parent", str(tmp_path), DEFAULT_JOB)


async def test_what_an_interpreter_waits_for_a_processor_does_not_count_while_it_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "HANDSHAKE_SECONDS", 0.05)
    with pytest.raises(NoEnvironment, match="did not finish importing torch within"):
        await boot_worker(sys.executable, "parent", str(tmp_path), DEFAULT_JOB)
    monkeypatch.setattr(process, "seconds_waited", lambda pid: 600.0)  # as with forty editors on two processors
    booted = await boot_worker(sys.executable, "parent", str(tmp_path), DEFAULT_JOB)
    assert booted.handshake.torch
    await process.end_groups([booted.process.pid], booted.process.wait())
    booted.channel.close()
    booted.log.close()
