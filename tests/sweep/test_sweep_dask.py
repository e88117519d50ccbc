"""The same command on a cluster of Dask, made here for the tests."""

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys

import pytest

from tests.sweep.conftest import descendants, wait_for

pytest.importorskip("distributed")


@pytest.fixture
def cluster(sweeping, tmp_path):
    """A scheduler and a nanny with one worker, started as somebody else would have; (address, the nanny's process)."""
    told = tmp_path / "scheduler.json"
    place = ("--scheduler-file", told)
    started = [
        _started(sweeping, "dask_scheduler", *place, "--host", "127.0.0.1", "--port", 0, "--no-dashboard"),
        _started(sweeping, "dask_worker", *place, "--nthreads", 2, "--no-dashboard", "--local-directory", tmp_path),
    ]
    wait_for(lambda: told.exists() and told.read_text().endswith("}"))
    yield json.loads(told.read_text())["address"].removeprefix("tcp://"), started[1]
    for process in reversed(started):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _started(sweeping, module, *words):
    command = [sys.executable, "-m", f"distributed.cli.{module}", *map(str, words)]
    return subprocess.Popen(
        command, env=sweeping.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def points_of(out):
    return {tuple(point["pipeline"]): point for point in json.loads(out)["points"]}


WORDS = ("net.py", "--pipeline", "quantize default='fixed({w},4)'", "--vary", "w=6,8", "--multipliers", "64")


def test_a_cluster_gives_what_this_machine_gives(sweeping):
    here = sweeping(*WORDS, "--format", "json", "--results", "here.sqlite")
    with socket.socket() as taken:  # as by another sweep
        with contextlib.suppress(OSError):
            taken.bind(("", 8787))
            taken.listen()
        there = sweeping(*WORDS, "--format", "json", "--on", "dask", "--jobs", 2)
    assert (here.returncode, there.returncode, there.stderr) == (0, 0, ""), there.stdout
    mine, theirs = points_of(here.stdout), points_of(there.stdout)
    assert len(mine) == 2
    for pipeline, point in mine.items():
        assert theirs[pipeline] | {"seconds": 0} == point | {"seconds": 0}


def test_a_worker_that_is_killed_loses_nothing(sweeping, gate, cluster):
    address, nanny = cluster
    process = sweeping.start(
        "net.py", "--pipeline", "quantize default='fixed(8,4)'", "--pipeline", f"gated gate={gate.path}",
        "--on", f"dask://{address}",
    )  # fmt: skip
    gate.reached()
    # Below the nanny: the worker, perhaps with what multiprocessing keeps beside it.
    for pid in descendants(nanny.pid)[0]:
        os.kill(pid, signal.SIGKILL)
    gate.open()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert "2 points of 2 in sweep.sqlite" in out
    assert [row["error"] for row in sweeping.rows()] == ["", ""]


def test_an_interrupted_sweep_keeps_what_was_measured_and_leaves_no_process(sweeping, gate):
    """The cluster is made for the sweep; Ctrl-C in a terminal reaches the processes of both."""
    words = ("net.py", "--pipeline", "quantize default='fixed(8,4)'", "--pipeline", f"gated gate={gate.path}")
    words += ("--on", "dask", "--jobs", 1)
    process = sweeping.start(*words)
    gate.reached()
    wait_for(lambda: len(sweeping.rows()) == 1)
    below = [os.pidfd_open(pid) for pid in itertools.chain(*descendants(process.pid))]
    assert len(below) >= 3  # the worker of the cluster, the warm process, the trace
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=200)  # a cluster whose worker ends at the same time may wait for it
    assert process.returncode == 130, err
    assert "interrupted: 1 of 2 points are kept in sweep.sqlite; the same command goes on from there" in err
    assert "Traceback" not in err
    assert "fixed(8,4)" in out
    for each in below:
        assert select.select([each], [], [], 30)[0]
        os.close(each)
    first = sweeping.rows()
    gate.open()
    assert sweeping(*words).returncode == 0
    assert sweeping.rows()[:1] == first
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
    from mase_server.sweep.points import Point
    from mase_server.sweep.running import measure

    told = measure((Point(str(project / "net.py")).to_wire(), "0" * 64, sys.executable))
    assert told["kind"] == "files"
    assert told["error"] == f"{project / 'net.py'} is not the same file on the worker: the folder has to be shared"
