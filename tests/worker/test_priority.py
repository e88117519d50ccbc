"""A low priority is for who asks, or its own session; what the person started beside it keeps its share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mase_server.simulation.building import run_program
from mase_server.system import LOW, lower

SESSION = Path("/proc/self/autogroup")
LOWERED = "from mase_server.system import lower; lower(); import os; print(os.nice(0))"
#: A shell, the leader of a session, and a process in it that lowers itself.
BESIDE = f'"{sys.executable}" -c "{LOWERED}"; cat {SESSION}'

needs_sessions = pytest.mark.skipif(not SESSION.exists(), reason="this kernel gives sessions no shares of their own")


@needs_sessions
def test_who_leads_no_session_lowers_itself_alone():
    told = subprocess.run(["sh", "-c", BESIDE], capture_output=True, text=True, check=True, start_new_session=True)
    niceness, session = told.stdout.splitlines()
    assert (niceness, session.split()[-1]) == (str(LOW), "0")


def test_a_process_that_is_gone_is_no_error():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lower(ended.pid)


@needs_sessions
async def test_a_simulator_lets_others_go_first(tmp_path):
    """It begins as any process, and is lowered a moment later."""
    done = await run_program(["sh", "-c", f"until grep -q 'nice {LOW}' {SESSION}; do :; done; nice"], tmp_path)
    assert (done.status, done.output.strip()) == (0, str(max(LOW, os.nice(0))))
