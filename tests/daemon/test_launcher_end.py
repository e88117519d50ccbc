"""A warm parent that has just been killed is not asked twice."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from mase_server.daemon.launcher import ForkLauncher
from mase_server.daemon.process import DEFAULT_JOB, LaunchFailed


def _has_ended(pid):
    """Has it, though a thread of asyncio's may not have collected it yet?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_parent_whose_end_nobody_has_read_yet_is_not_alive_once_a_launch_failed(tmp_path):
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), DEFAULT_JOB)
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    try:
        pid = launcher.handshake.pid
        os.kill(pid, signal.SIGKILL)
        while not _has_ended(pid):
            pass  # the event loop must not get its turn
        assert launcher.alive
        with pytest.raises(LaunchFailed):
            await launcher.launch()
        assert not launcher.alive
    finally:
        await launcher.close()
    gc.collect()
    assert not complaints, "a failure that nobody was told of"
