"""What stands in for a system's own means, where it has none."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mase_server import system


def test_a_clock_of_our_own_rings_again_and_again_until_it_is_stopped(monkeypatch):
    rung = []
    monkeypatch.setattr(system, "_setitimer", None)
    before = signal.signal(system.ALARM, lambda number, frame: rung.append(number))
    try:
        assert system.set_alarm(0.01, 0.01) == 0.0
        while len(rung) < 3:
            pass
        assert 0.0 <= system.set_alarm(0) <= 0.01
        assert system.set_alarm(600.0) == 0.0
        assert 0 < system.set_alarm(0) <= 600.0
    finally:
        signal.signal(system.ALARM, before)
    assert set(rung) == {system.ALARM}


#: Calls at each depth of the stack, most of them across no border of its pieces.
DEPTHS = """
import resource
from mase_server import system

def call():
    pass

def descend(depth):
    if depth:
        descend(depth - 1)
    for _ in range(200):
        call()

def count_faults():
    descend(400)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    descend(400)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(count_faults(), system.call_with_room(count_faults))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_calls_at_any_depth_of_the_stack_map_no_memory_again():
    done = subprocess.run([sys.executable, "-c", DEPTHS], capture_output=True, text=True, check=True)
    plainly, with_room = map(int, done.stdout.split())
    assert with_room <= 5 < plainly


def test_ps_tells_children_memory_and_the_end_where_there_is_no_proc(monkeypatch):
    monkeypatch.setattr(system, "_HAS_PROC", False)
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while not (below := system.find_descendants(process.pid)):
            time.sleep(0)
        assert process.pid in system.find_children(os.getpid())
        assert system.resident_bytes_of(process.pid, *below) > system.resident_bytes_of(process.pid) > 1 << 20
        assert system.end_descendants(process.pid)
        assert process.wait() == 0
    assert not system.is_running(below[0])


def test_a_signal_group_without_groups_ends_the_process_alone(monkeypatch):
    monkeypatch.delattr(os, "killpg")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        system.signal_group(process.pid)
        assert process.wait() == -signal.SIGKILL
