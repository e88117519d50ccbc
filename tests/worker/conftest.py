"""Interpreters as users have them, made small: a real Python and whatever `torch` the test writes."""

from pathlib import Path

import pytest

from mase_server.daemon.process import boot_worker, end_groups

from .pythons import make_python

JOB = f"{Path(__file__).parent / 'probe_job.py'}:trace"


@pytest.fixture
def bare_python(tmp_path):
    """An interpreter without any package: (its path, its site-packages)."""
    return make_python(tmp_path / "env")


@pytest.fixture
def torch_only_python(tmp_path):
    """An interpreter that sees everything of this one but msgpack and this project."""
    return make_python(tmp_path / "env", torch=True)[0]


@pytest.fixture
async def booted(tmp_path):
    """Boot processes; each is ended after the test."""
    started = []

    async def start(python, role="parent", job=JOB):
        started.append(await boot_worker(python, role, str(tmp_path), job))
        return started[-1]

    yield start
    for one in started:
        one.channel.close()
        await end_groups([one.process.pid], one.process.wait())
        await one.process.wait()
        one.log.close()


def environment_of(pid):
    return dict(
        item.split("=", 1) for item in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in item
    )


def tasks(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
