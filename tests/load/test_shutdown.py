"""At the end of a session everything ends: files that were traced, a trace that runs, a simulation, other tools beside.

How long that takes is measured in `benchmarks/shutdown.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import pytest
from load import PARTS
from shutdown import busy

pytestmark = pytest.mark.slow

FILES = frozenset({"mlp.py", "mlp1.py", "conv1.py"})


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    for variable, part in PARTS.items():
        monkeypatch.setenv(variable, str(tmp_path / part))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


@pytest.fixture
def killed():
    """What is in this list at the end is killed, so that only this test fails."""
    found = []
    yield found
    for pid, _ in found[0].left() if found else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_nothing_runs_after_shutdown_whatever_ran_before(scratch, killed):
    async with asyncio.timeout(150):
        async with busy(scratch, FILES) as found:
            killed.append(found)
            running = found.look()
            assert any("verilator" in each for each in running), running
            assert any(each.startswith("sleep ") for each in running), running
            assert sum("boot.py" in each for each in running) > len(FILES) + 1, "a child each, and their parent"
        while found.left():
            await asyncio.sleep(0.01)
    assert found.editor.process.returncode == 0
    assert not list((scratch / "tmp").glob("mase-scratch-*"))
