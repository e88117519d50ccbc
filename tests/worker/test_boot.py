"""Booting in the user's interpreter: by path, touching nothing, and refusing in words."""

import ast
import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

import mase_server
from mase_server.daemon.launcher import ForkLauncher
from mase_server.daemon.pool import SpareLauncher
from mase_server.daemon.process import BOOT, NoEnvironment
from mase_server.daemon.supervisor import Events, Limits, TraceWorker
from mase_server.protocol.request import TraceRequest
from mase_server.system import LOW

from .conftest import JOB, environment_of, tasks


def write_torch(site, text):
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(text)


async def run(launcher, tmp_path, what, **asked):
    """What the probe job found when told `what`, in a fresh child; `asked`: more of the request."""
    path = tmp_path / f"{what}.py"
    path.write_text(what)
    found = []
    request = TraceRequest(str(path), str(tmp_path), "", 1, scratch=str(tmp_path / "scratch"), **asked)
    worker = TraceWorker(
        await launcher.launch(), request, Limits(60), Events(print, lambda *stage: found.append(stage))
    )
    outcome = await worker.trace()
    assert outcome.state == "ready", outcome
    await worker.stop()
    return ast.literal_eval(found[0][1])


@pytest.fixture(params=[ForkLauncher, SpareLauncher])
async def launcher(request, tmp_path):
    launcher = await request.param.start(sys.executable, str(tmp_path), JOB)
    yield launcher
    await launcher.close()


async def test_a_child_sees_the_users_python_untouched(launcher, tmp_path):
    facts = await run(launcher, tmp_path, "facts")
    plain = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.path[1:])"], capture_output=True, text=True, check=True
    )
    assert facts["path"] == ast.literal_eval(plain.stdout)
    assert "PYTHONPATH" not in facts["environ"]
    assert facts["environ"]["OMP_NUM_THREADS"] == "1"
    assert facts["package"] == mase_server.__file__
    assert (facts["threads"], facts["tasks"], facts["leader"]) == (1, 1, True)


async def test_a_child_survives_being_asked_for_its_line_before_it_has_run(launcher, tmp_path):
    """On a busy machine the server knows of a fork before its first line ran, where a signal would end it."""
    for _ in range(5):
        child = await launcher.launch()
        child.ask_line()
        await asyncio.wait([child.exited], timeout=0.02)
        assert not child.exited.done(), child.exited.result()
        await child.stop()


async def test_a_child_can_multiply_with_two_threads_and_run_backward(launcher, tmp_path):
    before, threads, shape, tasks_then = await run(launcher, tmp_path, "compute")
    assert (before, threads, shape) == (1, 2, (1200, 1200))
    assert tasks_then >= 2


async def test_a_gentle_trace_lets_others_go_first_in_its_session_and_out_of_it(launcher, tmp_path):
    niceness, session = await run(launcher, tmp_path, "priority")
    assert niceness == os.nice(0)
    assert await run(launcher, tmp_path, "priority", gently=True) == (LOW, session and str(LOW))


async def test_the_warm_parent_has_one_thread_before_and_after_its_children(tmp_path):
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), JOB)
    pid = launcher.handshake.pid
    assert tasks(pid) == 1
    await run(launcher, tmp_path, "compute")
    assert tasks(pid) == 1
    assert environment_of(pid)["OMP_NUM_THREADS"] == "1"
    await launcher.close()


async def test_an_environment_with_torch_alone_traces_with_a_private_codec(torch_only_python, tmp_path):
    launcher = await ForkLauncher.start(torch_only_python, str(tmp_path), JOB)
    assert launcher.handshake.codec == "fallback"
    facts = await run(launcher, tmp_path, "facts")
    assert "msgpack" not in facts["modules"]
    assert "_mase_msgpack.fallback" in facts["modules"]
    assert str(Path(msgpack.__file__).parent.parent) not in facts["path"]
    assert not {"pygls", "lsprotocol", "watchdog", "rich", "typer"} & set(facts["modules"])
    await launcher.close()


async def refusal(start, python):
    with pytest.raises(NoEnvironment) as refused:
        await start(python)
    return refused.value.code, str(refused.value)


async def test_no_torch_is_said_with_the_interpreter_and_the_way_out(booted, bare_python):
    python, _ = bare_python
    code, text = await refusal(booted, python)
    assert code == "no-torch"
    assert text == (
        f"{python} has no torch. Install it there (pip install torch), or choose another interpreter for this folder."
    )


async def test_an_old_torch_is_said_with_its_version(booted, bare_python):
    python, site = bare_python
    write_torch(site, "__version__ = '2.5.1+cu121'")
    code, text = await refusal(booted, python)
    assert (code, text.partition(";")[0]) == ("torch-too-old", f"{python} has torch 2.5.1+cu121")


@pytest.mark.parametrize("text", ["raise OSError('libcudart.so: not found')", "import not_there", "1/0"])
async def test_a_torch_that_does_not_import_is_said_with_its_error(booted, bare_python, text):
    python, site = bare_python
    write_torch(site, text)
    code, told = await refusal(booted, python)
    assert code == "import-failed"
    assert told.startswith(f"torch is installed in {python} but does not import: ")
    assert any(word in told for word in ("libcudart.so", "not_there", "division"))


async def test_a_torch_that_crashes_is_told_by_its_last_words(booted, bare_python):
    python, site = bare_python
    write_torch(site, "import os, sys\nsys.stderr.write('illegal instruction, sorry')\nsys.stderr.flush()\nos.abort()")
    code, text = await refusal(booted, python)
    assert code == "import-failed"
    assert "illegal instruction, sorry" in text


async def test_what_is_no_interpreter_is_said(booted, tmp_path):
    (tmp_path / "notes").write_text("not a program")
    assert await refusal(booted, str(tmp_path / "missing")) == (
        "no-interpreter",
        f"{tmp_path / 'missing'} does not start: No such file or directory.",
    )
    code, text = await refusal(booted, str(tmp_path / "notes"))
    assert (code, "Permission denied" in text) == ("no-interpreter", True)
    code, text = await refusal(booted, shutil.which("true"))
    assert (code, "ended before it could trace" in text) == ("import-failed", True)


def old_pythons():
    named = [shutil.which(f"python3.{minor}") for minor in (8, 9, 10)]
    beside = Path(sys.base_prefix).parent.glob("3.[89].*/bin/python")
    found = [str(python) for python in (*beside, *named) if python]
    return [one for one in found if subprocess.run([one, "-V"], capture_output=True, check=False).returncode == 0][:2]


@pytest.mark.skipif(not old_pythons(), reason="no Python before 3.11 on this machine")
async def test_a_python_that_is_too_old_can_still_say_so(booted):
    for python in old_pythons():
        code, text = await refusal(booted, python)
        assert code == "python-too-old"
        assert "tracing needs 3.11 or newer. Choose another interpreter" in text


async def test_a_garbled_torch_version_is_too_old_rather_than_a_crash(booted, bare_python):
    python, site = bare_python
    write_torch(site, "__version__ = 'unknown'")
    assert (await refusal(booted, python))[0] == "torch-too-old"


def test_a_worker_whose_server_ended_while_it_started_does_not_begin_to_import(tmp_path, bare_python):
    python, site = bare_python
    write_torch(site, f"open({str(tmp_path / 'imported')!r}, 'w').close()\nraise ImportError\n")
    ours, theirs = socket.socketpair()
    command = [python, str(BOOT), "--wire", str(theirs.fileno()), "--role", "parent", "--folder", str(tmp_path)]
    command += ["--msgpack", str(Path(msgpack.__file__).parent), "--job", JOB]
    ours.close()
    done = subprocess.run(command, pass_fds=[theirs.fileno()], capture_output=True, text=True, check=False)
    theirs.close()
    assert (done.returncode, done.stderr) == (1, "")
    assert not (tmp_path / "imported").exists()
