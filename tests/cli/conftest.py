"""The command line as a person runs it, with directories of its own."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def mase(tmp_path):
    """A function that runs `mase-server` with these arguments."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    environment.pop("FORCE_COLOR", None)

    def run(*arguments, **more):
        command = [sys.executable, "-m", "mase_server", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, **more)

    return run
