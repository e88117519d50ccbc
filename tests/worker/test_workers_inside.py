"""What runs in a worker, looked at without starting one."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest

from mase_server import system
from mase_server.protocol import wire
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import Problem
from mase_server.worker import jobs, parent
from mase_server.worker.preload import Preloader, file_stamp
from mase_server.worker.transforms.compiled import list_libraries


class Wire:
    """Collects what a child sends, and gives it what it reads."""

    def __init__(self, *incoming):
        self.incoming = list(incoming)
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def read(self):
        return self.incoming.pop(0) if self.incoming else None


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Write a job, and get its name."""

    def write(text):
        monkeypatch.delitem(sys.modules, "_mase_job", raising=False)
        path = tmp_path / "job.py"
        path.write_text(f"def trace(request, emit):\n    {text}\n")
        return f"{path}:trace"

    yield write
    sys.modules.pop("_mase_job", None)


def request(path="/w/net.py"):
    return TraceRequest(path, "/w", "sha", 1)


def test_a_job_is_found_by_module_or_by_file(job):
    assert jobs.load_job("os.path:join") is os.path.join
    assert jobs.load_job(job("return 7"))(None, None) == 7


def test_a_trace_sends_what_the_job_emits_and_then_done(job):
    wire = Wire()
    name = job("emit({'event': 'stage', 'stage': 's', 'message': 'm'}); return 'live'")
    assert parent.run_job(wire, request(), name) == "live"
    assert [message["event"] for message in wire.sent] == ["stage", "done"]
    assert wire.sent[-1]["seconds"] >= 0


@pytest.mark.parametrize("error", ["SystemExit(2)", "KeyboardInterrupt()", "OSError('gone')", "RecursionError('deep')"])
def test_whatever_a_job_raises_becomes_a_problem_and_done(job, error):
    wire = Wire()
    assert parent.run_job(wire, request(), job(f"raise {error}")) is None
    assert [message["event"] for message in wire.sent] == ["failed", "done"]
    problem = Problem(**wire.sent[0]["problem"])
    assert problem.message.startswith(f"Tracing stopped: {error.partition('(')[0]}")
    assert problem.code == ("exited" if error.startswith("SystemExit") else "exception")


def test_an_error_is_placed_at_the_innermost_line_of_the_users_file():
    code = compile("def f():\n    return g()\ndef g():\n    int('x')\nf()\n", "/w/net.py", "exec")
    with pytest.raises(ValueError, match="invalid literal") as raised:
        exec(code, {})
    problem = parent.describe_job_failure(raised.value, "/w/net.py")
    assert (problem.file, problem.line, problem.end_line) == ("/w/net.py", 4, 5)
    assert parent.describe_job_failure(raised.value, "/w/other.py").line == 1
    assert asdict(problem)["severity"] == "error"


def test_calls_are_answered_until_the_wire_ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for ident, method in ((1, "ping"), (2, "fly"), (3, "transform")):
            ours.sendall(wire.encode({"op": "call", "id": ident, "method": method}))
        ours.shutdown(socket.SHUT_WR)
        parent.serve_calls(wire.Connection(theirs), None)
        theirs.shutdown(socket.SHUT_WR)
        connection = wire.Connection(ours)
        assert connection.read() == {"result": 1, "value": "pong"}
        unknown, untraced = connection.read(), connection.read()
        assert connection.read() is None
    assert (unknown["result"], unknown["kind"]) == (2, "argument")
    methods = [
        "calibrate",
        "code",
        "compiled",
        "draw",
        "export",
        "passes",
        "ping",
        "run_costs",
        "transform",
        "verilog",
        "weight_statistics",
        "weights",
    ]
    assert unknown["error"] == f"unknown method 'fly'; known: {methods}"
    assert untraced["error"] == "this file was not traced to its end: there is no model to work on"


GUARDED = """
import os, signal, sys
from pathlib import Path
from mase_server.worker import parent
parent.guard_faults(Path(sys.argv[1]))
def where_am_i(what):
    if what == "signal":
        os.kill(os.getpid(), signal.SIGUSR2)
    elif what == "exit":
        os._exit(5)
    elif what == "fork":
        if os.fork() == 0:
            os._exit(0)
        os.wait()
where_am_i(sys.argv[2])
"""


@pytest.mark.parametrize(("what", "status"), [("signal", 0), ("exit", 5), ("fork", 0)])
def test_signals_and_exits_leave_their_line_but_the_exit_of_a_fork_does_not(tmp_path, what, status):
    done = subprocess.run([sys.executable, "-c", GUARDED, tmp_path / "scratch", what], check=False)
    assert done.returncode == status
    fault = (tmp_path / "scratch" / "fault.txt").read_text()
    assert ("in where_am_i" in fault) == (what != "fork")


def test_a_preloader_imports_each_wanted_module_once_and_says_what_failed(tmp_path, monkeypatch):
    (tmp_path / "fine_one.py").write_text("")
    (tmp_path / "exits_one.py").write_text("raise SystemExit(1)")
    monkeypatch.syspath_prepend(str(tmp_path))
    preloader = Preloader("/workspace")
    preloader.want(["fine_one", "exits_one", "absent_one"])
    preloader.import_now(["exits_one", "never_wanted"])
    assert list(preloader.pending) == ["fine_one", "absent_one"]
    while preloader.pending:
        preloader.step()
    preloader.want(["fine_one", "absent_one"])
    report = preloader.report()
    assert not preloader.pending
    assert report["preloaded"]["fine_one"] == file_stamp(str(tmp_path / "fine_one.py"))
    assert report["failed"] == {
        "exits_one": "SystemExit: 1",
        "absent_one": "ModuleNotFoundError: No module named 'absent_one'",
    }
    assert report["harmful"] == []


def test_a_preloaded_module_that_starts_a_thread_is_harmful(tmp_path, monkeypatch):
    text = "import threading\nstop = threading.Event()\nthread = threading.Thread(target=stop.wait)\nthread.start()\n"
    (tmp_path / "thread_one.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    preloader = Preloader("/workspace")
    preloader.want(["thread_one"])
    preloader.step()
    sys.modules["thread_one"].stop.set()
    assert preloader.harmful == ["thread_one"]
    assert threading.active_count() >= 1


def test_an_import_that_fails_and_leaves_others_behind_is_harmful(tmp_path, monkeypatch):
    """Inductor is of this kind: if one part comes first, that fails, and operators are left without their lowerings."""
    (tmp_path / "whole_one.py").write_text("import left_one\nfrom part_one import Part\n")
    (tmp_path / "left_one.py").write_text("")
    (tmp_path / "part_one.py").write_text("import whole_one\nPart = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    preloader = Preloader("/workspace")
    preloader.want(["part_one"])
    preloader.step()
    assert preloader.report()["failed"]["part_one"].startswith("ImportError: cannot import name 'Part'")
    assert preloader.harmful == ["part_one"]


def test_what_a_call_imported_is_listed_in_the_order_of_its_import(tmp_path, monkeypatch):
    names = [f"listed_{number}" for number in random.Random(0).sample(range(100), 40)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    for name in names:
        import_module(name)
    assert list(list_libraries(known, "/workspace")) == names
    assert list(list_libraries(known, str(tmp_path))) == []


def test_the_workspaces_own_modules_are_refused_but_not_its_environments(tmp_path, monkeypatch):
    inside = tmp_path / ".venv" / "site-packages"
    inside.mkdir(parents=True)
    for folder, name in ((tmp_path, "own_one"), (inside, "installed_one")):
        (folder / f"{name}.py").write_text("")
        monkeypatch.syspath_prepend(str(folder))
    preloader = Preloader(str(tmp_path))
    preloader.want(["own_one", "installed_one"])
    preloader.step()
    preloader.step()
    assert preloader.report()["failed"] == {"own_one": "belongs to the workspace"}
    assert "own_one" not in sys.modules


def test_a_stamp_changes_with_the_file_and_is_empty_without_one(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("1")
    before = file_stamp(str(file))
    file.write_text("22")
    assert file_stamp(str(file)) != before
    assert file_stamp(None) == file_stamp(str(tmp_path / "none")) == []


def runs(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_signalling_a_group_reaches_all_of_it_and_a_gone_one_is_no_error():
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    leader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    member = int(leader.stdout.readline())
    system.signal_group(leader.pid)
    assert leader.wait() == -signal.SIGKILL
    leader.stdout.close()
    deadline = time.monotonic() + 30
    while runs(member) and time.monotonic() < deadline:
        os.sched_yield()
    assert not runs(member)
    system.signal_group(leader.pid)
    system.signal_group(2**22 + 1, signal.SIGTERM)
