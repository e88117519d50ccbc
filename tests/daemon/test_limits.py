"""Memory is what the processes really hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from mase_server.daemon.limits import (
    available_fraction,
    exceeds_processes,
    held_bytes,
    resident_bytes,
)
from mase_server.system import end_descendants

HOLD = "x = bytearray(b'1') * (64 << 20); print('held', flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"

#: Three forks that share what their parent holds.
FORKS = """
import os, signal
x = bytearray(b'1') * (64 << 20)
forks = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    forks.append(pid)
print('held', flush=True)
input()
for pid in forks:
    os.kill(pid, signal.SIGKILL)
"""


def start(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def finish(process):
    process.communicate("\n")


async def test_a_process_that_holds_64_mib_is_seen_to():
    process = start(HOLD)
    assert 64 << 20 <= await resident_bytes(process.pid) < 160 << 20
    finish(process)


async def test_what_a_process_started_counts_too():
    process = start(PARENT)
    assert await resident_bytes(process.pid) >= 64 << 20
    finish(process)


async def test_what_forks_share_counts_once_where_it_decides():
    process = start(FORKS)
    assert await resident_bytes(process.pid) >= 4 * (64 << 20)
    assert 64 << 20 <= await held_bytes(process.pid, 100 << 20) < 128 << 20
    assert await held_bytes(process.pid, 1 << 40) >= 4 * (64 << 20), "it was counted slowly though nothing hung on it"
    finish(process)


def test_processes_are_counted_and_ended_without_the_one_that_started_them():
    process = start(FORKS)
    assert exceeds_processes(process.pid, 2)
    assert not exceeds_processes(process.pid, 3)
    end_descendants(process.pid)
    finish(process)
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such limits")
def test_a_worker_may_have_few_files_open_and_leaves_no_core():
    """Where the system allows more; what is lower already stays so."""
    code = (
        "import resource as r, sys; from mase_server import system as p\n"
        "most = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (int(sys.argv[1]), most))\n"
        "p.few_descriptors(64); p.leave_no_core()\n"
        "print(r.getrlimit(r.RLIMIT_NOFILE)[0], r.getrlimit(r.RLIMIT_CORE)[0])"
    )
    for before, after in ((32, 32), (200, 64)):
        done = subprocess.run([sys.executable, "-c", code, str(before)], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(after), "0"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not tell children")
def test_orphans_are_chased_until_none_is_left():
    """Each starts the next in a session of its own and ends, so a list of them is old when it is read."""
    code = (
        "import os, time; from mase_server import system; from mase_server.system import adopt_orphans\n"
        "adopt_orphans(); read, write = os.pipe()\n"
        "if any(os.fork() == 0 for _ in range(20)):\n"
        "    for number in range(1000):\n"
        "        if os.fork(): os._exit(0)\n"
        "        os.setsid(); number == 9 and os.write(write, b'.')\n"
        "    time.sleep(60)\n"
        "os.read(read, 1)  # by now they are well under way\n"
        "os.close(write); system.end_descendants(os.getpid(), seconds=60)\n"
        "os.set_blocking(read, False)\n"
        "while os.read(read, 64): pass"  # BlockingIOError where somebody holds the other end
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_process_that_is_gone_holds_nothing():
    process = start(HOLD)
    finish(process)
    assert await resident_bytes(process.pid) == 0


def test_the_share_of_available_memory_is_a_share():
    assert 0.0 < available_fraction() <= 1.0
