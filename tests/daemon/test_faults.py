"""What user code may do to its process: none of it may reach the server or another file."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mase_server.daemon.supervisor import WorkerGone

from .conftest import appears, gone, is_running

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEATHS = [
    ("kill9", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "crashed", "died of SIGKILL"),
    ("segfault", "import ctypes\nctypes.string_at(0)", "crashed", "died of SIGSEGV"),
    ("abort", "import os\nos.abort()", "crashed", "died of SIGABRT"),
    ("exit", "import os\nos._exit(3)", "exited", "ended its own process with exit status 3"),
]


@pytest.mark.parametrize(("name", "code", "kind", "text"), DEATHS, ids=[one[0] for one in DEATHS])
async def test_a_death_is_reported_and_the_last_good_snapshot_stays_stale(bench, name, code, kind, text):
    path, status = await bench.open(f"{name}.py", "good = 1  # shape f32[2]\n")
    assert status.state == "ready"
    status = await bench.save(path, f"{code}\n")
    assert (status.state, status.stale, status.live) == ("crashed", True, True)
    assert bench.names(path) == ["good"]
    (problem,) = bench.problems(path)
    assert problem.code == kind
    assert text in problem.message
    assert "not traced again until the file changes" in problem.message
    if name != "kill9":
        assert problem.line == 4
        assert f"at line 4 of {name}.py" in problem.message
    status = await bench.save(path, "again = 1  # shape f32[2]\n")
    assert (status.state, status.stale) == ("ready", False)
    assert bench.names(path) == ["again"]
    assert bench.problems(path) == []


async def test_the_line_of_a_crash_inside_a_function_is_the_users_not_the_librarys(bench):
    code = "import ctypes\ndef forward():\n    return ctypes.string_at(0)\n\nforward()\n"
    path, status = await bench.open("deep.py", code)
    (problem,) = bench.problems(path)
    assert (status.state, problem.line) == ("crashed", 5)
    assert problem.message.count("in forward") == 1


async def test_a_crash_in_an_imported_module_is_shown_there(bench):
    module = bench.write("crashing_part.py", "import ctypes\n\nctypes.string_at(0)\n", model=False)
    _, status = await bench.open("crashing_whole.py", "import crashing_part\n")
    assert status.state == "crashed"
    assert [(one.file, one.line) for one in bench.problems(module)] == [(module, 3)]


async def test_an_endless_loop_is_stopped_at_the_limit_and_its_line_told(bench):
    bench.settings = replace(bench.settings, time_limit=0.8)
    path, status = await bench.open("endless.py", "while True:\n    pass\n")
    (problem,) = bench.problems(path)
    assert (status.state, problem.code) == ("crashed", "time-limit")
    assert problem.line in (3, 4)
    assert problem.message.startswith("Tracing took longer than 0.8 s and was stopped, at line ")


async def test_a_loop_that_ignores_termination_is_killed(bench):
    bench.settings = replace(bench.settings, time_limit=0.5)
    code = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += f"open({str(bench.folder / 'stubborn.pid')!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n"
    path, _ = await bench.open("stubborn.py", code)
    assert bench.problems(path)[0].code == "time-limit"
    assert await gone(int(await appears(bench.folder / "stubborn.pid")))


async def test_memory_over_the_limit_ends_the_child(bench):
    bench.settings = replace(bench.settings, memory_limit=1 << 30)
    path, status = await bench.open("memory.py", "held = []\nwhile True:\n    held.append(bytearray(8 << 20))\n")
    (problem,) = bench.problems(path)
    assert (status.state, problem.code) == ("crashed", "memory-limit")
    assert "used more than 1 GiB and was stopped" in problem.message
    assert problem.line in (4, 5)


async def test_memory_of_a_grandchild_counts(bench):
    bench.settings = replace(bench.settings, memory_limit=1 << 30)
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = bytearray(2 << 30); input()'], "
    code += "stdin=subprocess.PIPE)\nimport time; time.sleep(60)\n"
    path, _ = await bench.open("grand_memory.py", code.replace("stdin=subprocess.PIPE", ""))
    assert bench.problems(path)[0].code in ("memory-limit",)


@pytest.mark.parametrize("code", ["import sys\nsys.exit(2)", "raise RuntimeError('no')", "raise KeyboardInterrupt"])
async def test_an_exception_that_the_job_lets_through_is_a_failed_trace_at_its_line(bench, code):
    path, status = await bench.open("raising.py", f"{code}\n")
    status = await bench.save(path, f"# again\n{code}\n")
    (problem,) = bench.problems(path)
    assert (status.state, problem.line) == ("failed", 3 + code.count("\n") + 1)
    assert problem.message.startswith("Tracing stopped: ")


async def test_deep_recursion_costs_one_trace(bench):
    path, status = await bench.open("recursion.py", "def f():\n    return f()\nf()\n")
    assert status.state == "failed"
    assert "RecursionError" in bench.problems(path)[0].message


async def test_closed_and_overwritten_stdout_do_not_touch_the_wire(bench):
    code = "import os, sys\nprint('noise')\nos.write(1, b'\\x00\\x00\\x00\\x01raw')\nos.system('echo shell')\n"
    code += "sys.stdout.close()\nos.close(1)\nos.close(2)\nx = 1  # shape f32[1]\n"
    path, status = await bench.open("stdout.py", code)
    assert status.state == "ready"
    assert bench.names(path) == ["x"]


async def test_a_flood_of_output_is_bounded_and_harms_nothing(bench):
    code = "import os\nblock = b'x' * (1 << 20)\nfor _ in range(1024):\n    written = 0\n"
    code += "    while written < len(block): written += os.write(1, block[written:])\nx = 1  # shape f32[1]\n"
    path, status = await bench.open("flood.py", code)
    assert status.state == "ready"
    log = bench.daemon.worker(path).child.log
    assert log.total > 900 << 20
    assert sum(map(len, log._chunks)) < 1 << 20


async def test_what_a_child_started_ends_with_it(bench):
    pids = bench.folder / "grandchildren"
    code = "import os, subprocess, sys\n"
    code += "one = subprocess.Popen(['sleep', '600'])\n"
    code += "two = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    code += f"open({str(pids)!r}, 'w').write(f'{{one.pid}} {{two.pid}}')\n"
    path, _ = await bench.open("forking.py", code + "x = 1  # shape f32[1]\n")
    one, two = map(int, (await appears(pids)).split())
    assert is_running(one)
    assert is_running(two)
    await bench.save(path, "y = 1  # shape f32[1]\n")
    assert await gone(one)
    assert await gone(two)


async def test_other_files_answer_while_one_loops(bench):
    looping = bench.write("looping.py", "while True: pass\n")
    bench.daemon.opened(looping)
    await bench.tracing(looping)
    path, status = await bench.open("calm.py")
    assert status.state == "ready"
    assert await bench.daemon.worker(path).call("ping") == "pong"
    assert not bench.daemon._tracked[looping].status.ended
    status = await bench.save(looping, "x = 1  # shape f32[1]\n")
    assert status.state == "ready"
    assert bench.ends(looping) == [(1, "superseded"), (2, "ready")]


async def test_a_crash_is_not_started_again_until_the_content_changes_or_someone_asks(bench):
    runs = bench.folder / "runs"
    code = f"open({str(runs)!r}, 'a').write('run ')\nimport os\nos.abort()\n"
    path, _ = await bench.open("once.py", code)
    for _ in range(3):
        bench.daemon.saved(path)
        bench.daemon.opened(path)
    assert (await bench.daemon.wait(path)).generation == 1
    assert runs.read_text() == "run "
    bench.daemon.retrace(path)
    assert (await bench.daemon.wait(path)).generation == 2
    assert runs.read_text() == "run run "


async def test_never_more_than_five_starts_after_crashes_in_three_minutes(bench):
    runs = bench.folder / "many_runs"
    code = f"open({str(runs)!r}, 'a').write('run ')\nimport os\nos.abort()\n"
    path, _ = await bench.open("many.py", code)
    for turn in range(7):
        status = await bench.save(path, f"{code}# {turn}\n")
    assert status.state == "crashed"
    assert status.message == "Crashed 5 times within 3 minutes; save or retrace later."
    assert runs.read_text().split() == ["run"] * 5
    assert bench.problems(path)[0].code == "crashed"


async def test_a_pending_call_fails_at_once_when_its_worker_is_killed(bench):
    path, _ = await bench.open("called.py")
    worker = bench.daemon.worker(path)
    os.kill(worker.child.pid, signal.SIGSTOP)
    call = asyncio.create_task(worker.call("ping"))
    await asyncio.sleep(0)
    os.kill(worker.child.pid, signal.SIGKILL)
    with pytest.raises(WorkerGone, match=r"the worker of .*called.py has ended"):
        await asyncio.wait_for(call, 30)
    assert await gone(worker.child.pid)
    with pytest.raises(WorkerGone):
        await worker.call("ping")
    assert bench.daemon.worker(path) is None
    assert bench.names(path) == ["x"]


async def test_kill_from_outside_in_a_long_trace_still_tells_a_line(bench):
    pid_file = bench.folder / "outside.pid"
    code = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True:\n    time.sleep(0.01)\n"
    path = bench.write("outside.py", code)
    bench.daemon.opened(path)
    pid = int(await appears(pid_file))
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    (fault,) = [Path(link) for link in links if link.endswith("fault.txt")]
    assert "most recent call first" in await appears(fault)
    os.kill(pid, signal.SIGKILL)
    status = await bench.daemon.wait(path)
    assert status.state == "crashed"
    assert bench.problems(path)[0].line in (5, 6)


async def test_an_unknown_method_is_answered_with_the_known_ones(bench):
    path, _ = await bench.open("methods.py")
    with pytest.raises(RuntimeError, match=r"unknown method 'dance'; known: \['calibrate', .*'ping', .*'verilog'"):
        await bench.daemon.worker(path).call("dance")
