"""Generations, states and snapshots: what a listener hears, and what the store holds when it hears it."""

import asyncio
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from worker.pythons import make_python

from mase_server.daemon.daemon import TraceOptions
from mase_server.daemon.status import STATES

from .conftest import MODEL, appears, gone, is_running

pytestmark = pytest.mark.asyncio(loop_scope="session")

GOOD = "x = 1  # shape f32[2, 3]\n"


async def test_an_opened_file_is_traced_and_its_values_can_be_read(bench):
    path, status = await bench.open("opened.py", GOOD)
    assert (status.state, status.generation, status.stale, status.live) == ("ready", 1, False, True)
    assert status.shown_sha256 == status.sha256
    view = bench.daemon.store.view(path)
    (site,) = view.sites(1, 99)
    assert (site.line, site.column, site.name, site.kind) == (3, 0, "x", "binding")
    assert [value.value for value in site.values] == [["f32", [2, 3], None]]
    assert view.sha256 == status.sha256


async def test_views_can_be_read_before_the_end_state_is_heard(bench):
    path, _ = await bench.open("order.py")
    said = [
        one
        for one in bench.ear.said
        if (isinstance(one, frozenset) and path in one) or getattr(one, "path", "") == path
    ]
    kinds = ["views" if isinstance(one, frozenset) else one.state for one in said]
    assert kinds == ["queued", "starting", "tracing", "views", "ready"]


async def test_every_generation_has_exactly_one_end_state(bench):
    path = bench.write("bursts.py", GOOD)
    bench.daemon.opened(path)
    for turn in range(12):
        bench.write("bursts.py", f"{GOOD}# {turn}\n")
        bench.daemon.saved(path)
        if turn % 3 == 0:
            await asyncio.sleep(0)
        if turn % 4 == 0:
            await bench.tracing(path)
    status = await bench.daemon.wait(path)
    ends = bench.ends(path)
    assert [generation for generation, _ in ends] == list(range(1, 14))
    assert ends[-1] == (13, "ready")
    assert status.shown_sha256 == status.sha256
    assert {one.state for one in bench.ear.states[path]} <= STATES


async def test_identical_content_is_not_traced_again(bench):
    path, _ = await bench.open("same.py")
    bench.daemon.saved(path)
    os.utime(path)
    bench.daemon.saved(path)
    bench.daemon.opened(path)
    assert (await bench.daemon.wait(path)).generation == 1


async def test_a_superseded_child_is_ended(bench):
    pid_file = bench.folder / "superseded.pid"
    code = f"import os\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n"
    path = bench.write("superseded.py", code)
    bench.daemon.opened(path)
    pid = int(await appears(pid_file))
    status = await bench.save(path, GOOD)
    assert (status.state, status.generation) == ("ready", 2)
    assert await gone(pid)


async def test_the_previous_child_stays_until_the_new_snapshot_is_in_and_then_ends(bench):
    path, _ = await bench.open("previous.py")
    first = bench.daemon.worker(path).child.pid
    gate = bench.folder / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n{GOOD}"
    bench.write("previous.py", code)
    bench.daemon.saved(path)
    await bench.tracing(path)
    assert is_running(first)
    assert await bench.daemon.worker(path).call("ping") == "pong"
    gate.touch()
    assert (await bench.daemon.wait(path)).state == "ready"
    assert await gone(first)
    assert bench.daemon.worker(path).child.pid != first


async def test_a_syntax_error_starts_no_process_and_keeps_the_last_good_hints(bench):
    path, _ = await bench.open("syntax.py")
    worker = bench.daemon.worker(path)
    status = await bench.save(path, "x = (1,\ny = 2\n")
    assert (status.state, status.stale, status.live) == ("failed", True, True)
    assert bench.names(path) == ["x"]
    (problem,) = bench.problems(path)
    assert (problem.code, problem.line, problem.column) == ("syntax-error", 3, 4)
    assert problem.message == "SyntaxError: '(' was never closed. The file is traced again as soon as it can be read."
    assert bench.daemon.worker(path) is worker
    assert [one.state for one in bench.ear.states[path]][-2:] == ["queued", "failed"]
    view = bench.daemon.store.view(path)
    assert view.sha256 != view.problems_sha256 == status.sha256


async def test_a_script_without_a_model_never_runs(bench):
    canary = bench.folder / "canary"
    code = f"import torch\nopen({str(canary)!r}, 'w').close()\nclass Net: pass\nx = torch.zeros(3)\n"
    path, status = await bench.open("script.py", code, model=False)
    assert status.state == "no_model"
    assert "defines or builds an nn.Module" in status.message
    assert bench.daemon.store.view(path) is None or bench.names(path) == []
    assert not canary.exists()


async def test_nothing_of_an_untrusted_folder_runs(bench):
    canary = bench.folder / "untrusted"
    bench.settings = replace(bench.settings, trusted=False)
    path, status = await bench.open("untrusted_model.py", f"open({str(canary)!r}, 'w').close()\n")
    assert status.state == "untrusted"
    assert "not trusted" in status.message
    assert not canary.exists()
    bench.settings = replace(bench.settings, trusted=True)
    bench.daemon.retrace(path)
    assert (await bench.daemon.wait(path)).state == "ready"
    assert canary.exists()


async def test_a_change_in_an_imported_module_retraces_who_imports_it(bench):
    module = bench.write("imported_part.py", "SIZE = 1\n", model=False)
    path, _ = await bench.open("importing_whole.py", f"import imported_part\n{GOOD}")
    bench.daemon.saved(module)
    bench.write("imported_part.py", "SIZE = 2\n", model=False)
    bench.daemon.saved(module)
    status = await bench.daemon.wait(path)
    # Two, where the first save is looked at so late that the module has changed, and the second while that is traced.
    assert status.state == "ready"
    assert status.generation in (2, 3)


async def test_a_change_that_a_check_in_the_background_sees_first_is_traced_all_the_same(bench):
    module = bench.write("imported_late.py", "SIZE = 1\n", model=False)
    path, _ = await bench.open("importing_late.py", f"import imported_late\n{GOOD}")
    tracked = bench.daemon._tracked[path]
    look, looks, seen, noted = tracked.freshness._look, [], threading.Event(), threading.Event()

    def look_slowly(*asked):
        if threading.current_thread() is threading.main_thread():
            return look(*asked)
        if not looks:
            bench.write("imported_late.py", "SIZE = 2\n", model=False)
        looks.append(look(*asked))
        if len(looks) == 2:  # the first one is over
            seen.set()
            noted.wait(60)
        return looks[-1]

    tracked.freshness._look = look_slowly
    [module_file] = [one for one in tracked.freshness.dependencies if one.path == module and one.kind == "content"]
    check = asyncio.create_task(bench.daemon._check_dependencies(tracked, [module_file, module_file]))
    await asyncio.to_thread(seen.wait, 60)
    bench.daemon.saved(module)
    assert tracked.generation == 2
    noted.set()
    await check
    assert (await bench.daemon.wait(path)).generation == 2


async def test_a_save_by_anything_is_noticed(bench):
    path, _ = await bench.open("watched.py")
    fresh = Path(path).with_suffix(".tmp")
    fresh.write_text(f"{MODEL}fresh = 1  # shape f32[7]\n")
    fresh.replace(path)  # as editors save
    await bench.ear.until(lambda: bench.ends(path)[-1] == (2, "ready"))
    assert bench.names(path) == ["fresh"]


async def test_an_incomplete_payload_is_shown_and_then_replaced(bench):
    path, status = await bench.open("steps.py", f"TWO_STEPS = True\n{GOOD}")
    views = [one for one in bench.ear.said if isinstance(one, frozenset) and path in one]
    assert (status.state, len(views)) == ("ready", 2)
    assert bench.daemon.store.snapshot(path).complete


async def test_an_error_in_a_payload_makes_the_generation_failed_and_its_hints_fresh(bench):
    path, _ = await bench.open("partial.py")
    code = f"PROBLEMS = [('error', 'shape-mismatch', '2 is not 3')]\n{GOOD}"
    status = await bench.save(path, code)
    assert (status.state, status.message, status.stale, status.live) == ("failed", "2 is not 3", False, True)
    assert [one.code for one in bench.problems(path)] == ["shape-mismatch"]


async def test_a_trace_that_found_nothing_keeps_the_last_good_hints(bench):
    path, _ = await bench.open("nothing.py")
    status = await bench.save(path, "PROBLEMS = [('error', 'no-inputs', 'say which')]\n")
    assert (status.state, status.stale) == ("failed", True)
    assert bench.names(path) == ["x"]
    assert [one.code for one in bench.problems(path)] == ["no-inputs"]


async def test_a_warning_leaves_the_generation_ready(bench):
    _, status = await bench.open("warned.py", f"PROBLEMS = [('warning', 'fixed-batch', 'b')]\n{GOOD}")
    assert status.state == "ready"


async def test_a_file_without_a_model_has_none_although_it_wants_a_missing_package(bench):
    told = [("information", "no-model", "none here"), ("warning", "missing-package", "absent")]
    _, status = await bench.open("helper.py", f"import torch.nn\nPROBLEMS = {told}\nclass A(torch.nn.Module): ...\n")
    assert (status.state, status.message) == ("no_model", "none here")


async def test_the_last_fit_and_the_options_reach_the_next_trace(bench):
    seen = bench.folder / "seen"
    code = f"import json\nwith open({str(seen)!r}, 'w') as f:\n"
    code += "    json.dump([str(REQUEST.fit), REQUEST.options.inputs, REQUEST.options.inputs_from], f)\n" + GOOD
    bench.settings = replace(bench.settings, inputs={"fit*.py": ("x: f32[1, 3]",)})
    path, _ = await bench.open("fitted.py", code)
    assert json.loads(seen.read_text()) == ["None", ["x: f32[1, 3]"], "settings"]
    bench.daemon.opened(path, TraceOptions(inputs=("y: f32[4]",), inputs_from="option"))
    assert (await bench.daemon.wait(path)).generation == 2
    assert json.loads(seen.read_text()) == [str(b'{"fits": 1}'), ["y: f32[4]"], "option"]


async def test_opening_a_library_file_retraces_the_models_that_use_it_with_it_instrumented(bench, tmp_path):
    library = tmp_path / "site-packages" / "lib.py"
    library.parent.mkdir()
    library.write_text("import torch.nn as nn\nclass Lib(nn.Module): pass\n")
    path, _ = await bench.open("uses_library.py", f"LIBRARIES = [{str(library)!r}]\n{GOOD}")
    bench.daemon.opened(str(library))
    assert (await bench.daemon.wait(str(library))).state == "no_model"
    status = await bench.daemon.wait(path)
    assert (status.state, status.generation) == ("ready", 2)
    assert json.loads(bench.daemon.store.snapshot(path).payload["python"]) == [str(library)]
    bench.daemon.closed(str(library))


async def test_a_file_changed_while_the_child_reads_it_is_asked_for_again(bench):
    path = bench.write("racing.py", GOOD)
    bench.daemon.opened(path)
    bench.write("racing.py", "y = 1  # shape f32[4]\n")  # after the server read it, before the child does
    status = await bench.daemon.wait(path)
    assert status.state == "ready"
    assert bench.names(path) == ["y"]
    assert [state for _, state in bench.ends(path)] == ["superseded", "ready"]


async def test_a_missing_file_is_no_model(bench):
    path = str(bench.folder / "never_written.py")
    bench.daemon.opened(path)
    assert (await bench.daemon.wait(path)).state == "no_model"


async def test_waiting_for_a_file_that_was_never_opened_is_an_error(bench):
    with pytest.raises(KeyError):
        await bench.daemon.wait("/nowhere.py")


async def test_an_error_of_the_servers_own_ends_the_generation_too(bench, monkeypatch, caplog):
    async def broken(*_):
        raise LookupError("no such thing")

    path, _ = await bench.open("inside.py")
    monkeypatch.setattr(bench.daemon._services.discoverer, "discover", broken)
    status = await bench.save(path, GOOD + "# changed\n")
    assert (status.state, status.stale) == ("failed", True)
    assert bench.problems(path)[0].message.startswith("The server failed while it traced this file: LookupError: ")
    assert "no such thing" in caplog.text
    monkeypatch.undo()
    assert (await bench.save(path, GOOD)).state == "ready"


async def test_shutdown_answers_who_still_waits(own_bench):
    bench = own_bench()
    path = bench.write("waiting.py", "while True: pass\n")
    bench.daemon.opened(path)
    waiting = asyncio.create_task(bench.daemon.wait(path))
    await bench.tracing(path)
    await bench.daemon.shutdown()
    assert (await waiting).state == "superseded"


async def test_children_of_closed_files_end_oldest_first_and_snapshots_stay(own_bench):
    bench = own_bench()
    await bench.daemon.start()
    opened = [await bench.open(f"closed{index}.py") for index in range(10)]
    paths = [path for path, _ in opened]
    for path in paths:
        bench.daemon.closed(path)
    alive = [bench.daemon.worker(path) is not None for path in paths]
    assert alive == [False] * 2 + [True] * 8
    assert all(bench.names(path) == ["x"] for path in paths)


async def test_of_a_file_that_is_gone_nothing_stays_once_nobody_looks_at_it(own_bench):
    bench = own_bench()
    path, _ = await bench.open("gone.py")
    pid = bench.daemon.worker(path).child.pid
    bench.daemon.opened(path, by="another")
    Path(path).unlink()
    bench.daemon.closed(path)
    assert bench.names(path) == ["x"]
    bench.daemon.closed(path, by="another")
    assert bench.daemon.file(path) is None
    assert bench.daemon.store.view(path) is None
    assert await gone(pid)
    # Another file of that name is another file.
    assert (await bench.open("gone.py", "y = 1\n" + GOOD))[1].state == "ready"


async def test_a_changed_environment_restarts_the_workers_and_traces_anew(own_bench):
    bench = own_bench()
    path, _ = await bench.open("restarted.py")
    pid = bench.daemon.worker(path).child.pid
    bench.daemon.environment_changed(str(bench.folder))
    await bench.ear.until(lambda: bench.ends(path)[-1] == (2, "ready"))
    assert await gone(pid)
    assert await bench.daemon.worker(path).call("ping") == "pong"


async def test_an_environment_that_changes_during_a_trace_is_no_crash(own_bench):
    bench = own_bench()
    gate = bench.folder / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n{GOOD}"
    path = bench.write("gated.py", code)
    bench.daemon.opened(path)
    await bench.tracing(path)
    gate.touch()
    bench.daemon.environment_changed(None)
    await bench.ear.until(lambda: bench.ends(path)[-1:] in ([(2, "ready")], [(1, "ready")]))
    assert "crashed" not in [state for _, state in bench.ends(path)]


async def test_shutdown_ends_every_process_even_one_that_ignores_it(own_bench):
    bench = own_bench()
    calm, _ = await bench.open("calm.py")
    pid_file = bench.folder / "pid"
    code = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += f"open({str(pid_file)!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}}')\nwhile True: pass\n"
    bench.daemon.opened(bench.write("busy.py", code))
    pids = [bench.daemon.worker(calm).child.pid, *map(int, (await appears(pid_file)).split())]
    await bench.daemon.shutdown()
    assert [is_running(pid) for pid in pids] == [False, False, False]


async def test_a_broken_interpreter_is_a_problem_on_line_one_and_a_mended_one_is_tried_again(own_bench, tmp_path):
    python, _ = make_python(tmp_path / "env")
    bench = own_bench(interpreter=python)
    path, status = await bench.open("homeless.py")
    assert status.state == "no_environment"
    (problem,) = bench.problems(path)
    assert (problem.line, problem.code) == (1, "no-torch")
    assert f"{python} has no torch. Install it there (pip install torch)" in problem.message
    assert "chosen by the setting `interpreter`" in problem.message
    bench.settings = replace(bench.settings, interpreter=sys.executable)
    bench.daemon.retrace(path)
    status = await bench.daemon.wait(path)
    assert (status.state, bench.problems(path)) == ("ready", [])


async def test_syntax_newer_than_the_servers_is_left_to_the_users_python(own_bench, tmp_path):
    python, _ = make_python(tmp_path / "env")
    (tmp_path / "env" / "pyvenv.cfg").write_text("version = 3.99.0\n")
    bench = own_bench(interpreter=python)
    path, status = await bench.open("newer.py", "x = 1 ?? 2\n")
    assert [one.code for one in bench.problems(path)] != ["syntax-error"]
    assert status.state == "no_environment"
