"""A fork of a process that computed with several threads computes all the same, with one."""

import os
import subprocess
import sys

#: As a trace child is started: libraries that are imported start no threads of their own.
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
#: Computes, with so many threads, and again in a fork: whether both were right, and whether the fork may have threads.
PROGRAM = """
import os, sys, torch
from mase_server import system
torch.set_num_threads(int(sys.argv[1]))
def compute():
    return bool((torch.ones(600, 600) @ torch.ones(600, 600)).sum() == 600**3)
right = compute()
pid = system.fork_process()
if pid == 0:
    print(right, compute(), system.may_compute_with_threads(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(system.may_compute_with_threads())
"""


def told(threads):
    command = [sys.executable, "-c", PROGRAM, str(threads)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, env=ALONE
    ).stdout.splitlines()


def test_after_two_threads_a_fork_computes_with_one():
    assert told(2) == ["True True False", "True"]


def test_after_one_thread_a_fork_may_have_several():
    assert told(1) == ["True True True", "True"]
