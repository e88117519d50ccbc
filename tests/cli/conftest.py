"""The command line, with directories of its own, in this process or in ones of its own; and a daemon of a folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.in_process import Warm, call

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.a = nn.Linear(8, width)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        h = self.a(x).relu()
        pair = (h, self.b(h))
        return pair


if __name__ == "__main__":
    Net()(torch.randn(4, 8))
"""
BROKEN = NET.replace("nn.Linear(width, 3)", "nn.Linear(width + 1, 3)")


class Commands:
    """Runs `mase-server` with directories of its own below `home`, so that it meets no daemon of somebody else."""

    def __init__(self, home, warm):
        self.home = home
        self.warm = warm
        places = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}
        gone = ("FORCE_COLOR", "NO_COLOR", "VIRTUAL_ENV", "CONDA_PREFIX")
        self.environment = {key: value for key, value in os.environ.items() if key not in gone}
        self.environment |= {key: str(home / name) for key, name in places.items()}

    def __call__(self, *arguments, env=None, cwd=None):
        """Within this process, see `in_process`."""
        return call(self.warm, arguments, self.environment | (env or {}), cwd)

    def process(self, *arguments, env=None, **more):
        """The same in a process of its own, as a person runs it."""
        environment = self.environment | (env or {})
        return subprocess.run(
            self.words(arguments), capture_output=True, text=True, env=environment, timeout=200, **more
        )

    def start(self, *arguments, **more):
        """A process that goes on; Ctrl-C reaches it also where the tests themselves run in the background."""
        return subprocess.Popen(
            self.words(arguments), env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **more,
        )  # fmt: skip

    @staticmethod
    def words(arguments):
        return [sys.executable, "-m", "mase_server", *map(str, arguments)]


@pytest.fixture(scope="session")
def warm():
    """What all commands in this process share."""
    made = Warm()
    yield made
    made.close()


@pytest.fixture
def mase(tmp_path, warm):
    """A function that runs `mase-server` with these arguments."""
    return Commands(tmp_path, warm)


class Live(Commands):
    """The same in a folder that a daemon serves: `net.py` and `broken.py` are there, traced once."""

    @property
    def folder(self):
        return self.home / "project"

    def write(self, name, text):
        path = Path(self.folder, name)
        path.write_text(text)
        return path

    def __call__(self, *arguments, **more):
        return super().__call__(*arguments, **{"cwd": self.folder, **more})

    def process(self, *arguments, **more):
        return super().process(*arguments, **{"cwd": self.folder, **more})


@pytest.fixture(scope="session")
def live(tmp_path_factory, warm):
    commands = Live(tmp_path_factory.mktemp("live"), warm)
    commands.folder.mkdir()
    (commands.folder / "pyproject.toml").touch()
    commands.write("net.py", NET)
    commands.write("broken.py", BROKEN)
    assert commands("trust", commands.folder).returncode == 0
    process = commands.start("serve", commands.folder, "--python", sys.executable)
    commands.pid = process.pid
    assert process.stdout.readline().startswith("unix:")
    yield commands
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
