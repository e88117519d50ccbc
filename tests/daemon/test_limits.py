"""Memory is what the processes really hold."""

import subprocess
import sys

from mase_server.daemon.limits import available_fraction, held_bytes, resident_bytes

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


async def test_a_process_that_is_gone_holds_nothing():
    process = start(HOLD)
    finish(process)
    assert await resident_bytes(process.pid) == 0


def test_the_share_of_available_memory_is_a_share():
    assert 0.0 < available_fraction() <= 1.0
