"""The same command on a cluster of Dask, made here for the tests."""

import asyncio
import json
import os
import signal
import sys

import pytest

distributed = pytest.importorskip("distributed")


@pytest.fixture
async def cluster(project, sweeping, monkeypatch):
    """A scheduler with one worker in a process of its own, as somebody else would have started them."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, sweeping.environment[name])
    made = distributed.LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None, asynchronous=True)
    async with made as found:
        yield found


def points_of(out):
    return {tuple(point["pipeline"]): point for point in json.loads(out)["points"]}


WORDS = ("net.py", "--pipeline", "quantize default='fixed({w},4)'", "--vary", "w=6,8", "--multipliers", "64")


def test_a_cluster_gives_what_this_machine_gives(sweeping):
    here = sweeping(*WORDS, "--format", "json", "--results", "here.sqlite")
    there = sweeping(*WORDS, "--format", "json", "--on", "dask", "--jobs", 2)
    assert (here.returncode, there.returncode, there.stderr) == (0, 0, "")
    mine, theirs = points_of(here.stdout), points_of(there.stdout)
    assert len(mine) == 2
    for pipeline, point in mine.items():
        assert theirs[pipeline] | {"seconds": 0} == point | {"seconds": 0}


async def test_a_worker_that_is_killed_loses_nothing(sweeping, gate, cluster):
    address = cluster.scheduler_address.removeprefix("tcp://")
    process = sweeping.start(
        "net.py", "--pipeline", "quantize default='fixed(8,4)'", "--pipeline", f"gated gate={gate.path}",
        "--on", f"dask://{address}",
    )  # fmt: skip
    await asyncio.to_thread(gate.reached)
    [nanny] = cluster.workers.values()
    os.kill(nanny.pid, signal.SIGKILL)
    gate.open()
    out, err = await asyncio.to_thread(process.communicate, timeout=200)
    assert process.returncode == 0, err
    assert "2 points of 2 in sweep.sqlite" in out
    assert [row["error"] for row in sweeping.rows()] == ["", ""]


def test_a_cluster_that_nobody_answers_for_is_status_one(sweeping):
    sweeping.environment["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "1s"
    done = sweeping("net.py", "--on", "dask://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no cluster of Dask answers at tcp://127.0.0.1:1" in done.stderr


def test_without_dask_it_says_what_to_install(sweeping, project):
    hidden = project / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['distributed'] = None\n")
    sweeping.environment["PYTHONPATH"] = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    done = sweeping("net.py", "--on", "dask")
    assert (done.returncode, done.stdout) == (1, "")
    assert "to sweep on Dask: pip install 'mase-server[dask]'" in done.stderr


def test_a_file_that_is_another_one_on_the_worker_is_refused(project):
    from mase_server.sweep.dask import measure
    from mase_server.sweep.points import Point

    told = measure((Point(str(project / "net.py")).to_wire(), "0" * 64, sys.executable))
    assert told["kind"] == "files"
    assert told["error"] == f"{project / 'net.py'} is not the same file on the worker: the folder has to be shared"
