"""A project with a model whose weights and inputs are known, and the sweep as a person runs it."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

NET = """\
import torch
from torch import nn

from parts import WIDTH


class Net(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.a = nn.Linear(8, width)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        return self.b(self.a(x).relu())


if __name__ == "__main__":
    net = Net()
    net.load_state_dict(torch.load("net.pt"))
    net(torch.linspace(-2, 2, 32).reshape(4, 8))
"""
#: A pass that stands still while nobody writes to a pipe, and what it says where that is a file.
GATED = '''
def gated_transform_pass(mg, pass_args={"gate": ""}):
    """Wait at a gate."""
    open(pass_args["gate"]).read()
    return mg, {}


def broken_transform_pass(mg, pass_args={}):
    return mg.nothing
'''


class Net(nn.Module):
    """The model of the file, for ground truth."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.b(self.a(x).relu())


@pytest.fixture
def project(tmp_path):
    """A folder with net.py, what it imports, its weights, and passes of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "net.py").write_text(NET)
    (folder / "parts.py").write_text("WIDTH = 16\n")
    (folder / "gated.py").write_text(GATED)
    torch.manual_seed(0)
    torch.save(Net().state_dict(), folder / "net.pt")
    return folder


class Sweeping:
    """`mase-server sweep` in a project, with directories of its own."""

    def __init__(self, folder, tmp):
        self.folder = folder
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(tmp / "cache"), "XDG_STATE_HOME": str(tmp / "state")}
        self.environment.pop("FORCE_COLOR", None)
        self.started = []

    def command(self, *words):
        return [sys.executable, "-m", "mase_server", "sweep", *map(str, words)]

    def __call__(self, *words):
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, env=self.environment, timeout=200, cwd=self.folder
        )

    def start(self, *words):
        """Begin one; it is ended with the test."""
        process = subprocess.Popen(
            self.command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.folder,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def rows(self, name="sweep.sqlite"):
        """What the file of results holds, as any other tool reads it."""
        with sqlite3.connect(self.folder / name) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM results ORDER BY rowid")]


@pytest.fixture
def sweeping(project, tmp_path):
    found = Sweeping(project, tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Gate:
    """A pipe that a pass waits at. `reached` returns once one does; from `open` on none waits."""

    def __init__(self, path):
        self.path = Path(path)
        os.mkfifo(self.path)
        self.writer = None

    def reached(self):
        self.writer = os.open(self.path, os.O_WRONLY)

    def open(self):
        """Whoever waits goes on, and so does whoever comes."""
        free = self.path.with_suffix(".free")
        free.write_text("")
        free.rename(self.path)
        os.close(self.writer)


@pytest.fixture
def gate(project):
    return Gate(project / "gate")


def descendants(pid):
    """The processes below one, the nearest first."""
    found, level = [], [pid]
    while level:
        level = [int(child) for one in level for child in _children(one)]
        found.append(level)
    return found[:-1]


def _children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return found


def wait_for(condition, seconds=60.0):
    """Until something holds that no event tells of."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
