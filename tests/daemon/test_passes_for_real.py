"""Passes in real processes, some of them a person's own: saves, deaths, cancelling, folders that are not trusted."""

import asyncio
import os
from dataclasses import replace

import pytest
import pytest_asyncio

from mase_server.daemon.api import API, Api
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.process import DEFAULT_JOB

from .conftest import Bench, appears, gone, is_running

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = {method.name: method for method in API}

NET = """\
import os
import time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x)
        return y


if __name__ == "__main__":
    Net()(torch.randn(2, 4))
"""
#: A person's own passes: one waits for a file, one ends the process that holds the graphs, one fails on longer texts.
OWN = """

def waiting_transform_pass(mg, pass_args={"gate": "", "pid": ""}):
    with open(pass_args["pid"], "w") as file:
        file.write(f"{os.getpid()} {os.getppid()}")
    while not os.path.exists(pass_args["gate"]):
        time.sleep(0.01)
    return mg, {}


def touchy_transform_pass(mg, pass_args={}):
    if open(__file__).read().endswith("touched"):
        raise ValueError("somebody touched it")
    return mg, {}
"""


class PassBench(Bench):
    async def api(self, name, path, **params):
        return await METHODS[f"mase/{name}"].call(Api(self.daemon), {"path": path, **params})

    def apply(self, path, name, **arguments):
        return self.api("applyPass", path, **{"pass": name, "arguments": arguments})

    def value(self, path, name="y"):
        """The element type of a name."""
        sites = self.daemon.store.view(path).sites(1, 1000)
        return next(site.values[0].value[0] for site in sites if site.name == name)

    def save_net(self, path, text):
        with open(path, "w") as file:
            file.write(text)
        self.daemon.saved(path)
        return self.daemon.wait(path)

    async def open_net(self, name, text=NET + OWN):
        path = str(self.folder / name)
        with open(path, "w") as file:
            file.write(text)
        self.daemon.opened(path)
        status = await self.daemon.wait(path)
        assert status.state == "ready", status
        return path


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("passes")
    folder = tmp / "workspace"
    folder.mkdir()
    bench = PassBench(folder, tmp, job=DEFAULT_JOB)
    yield bench
    await bench.daemon.shutdown()


@pytest.fixture
def real(shared):
    before = shared.settings
    yield shared
    shared.settings = before


async def test_a_pass_changes_hints_and_tells_errors_and_a_save_replays_it(real):
    path = await real.open_net("quantised.py")
    told = await real.apply(path, "quantize", default="fixed(16,8)")
    assert (told["complete"], told["problem"], real.value(path)) == (True, None, "fixed(16,8)")
    assert told["summary"]["weight_bits"] == [32.0, 16.0]
    assert told["summary"]["sqnr"] > 20
    await real.save_net(path, f"{NET}{OWN}\n# longer\n")
    assert real.value(path) == "fixed(16,8)"
    await real.ear.until(lambda: real.daemon.passes.tell(path)["complete"])
    assert (await real.api("undoPass", path))["undone"] == ["quantize(default='fixed(16,8)')"]
    assert real.value(path) == "f32"


async def test_what_is_transformed_can_be_read_as_code_and_as_models_and_nodes(real):
    path = await real.open_net("read.py")
    await real.apply(path, "quantize", default="fixed(8,4)")
    texts = [(await real.api("transformed", path, original=original))["text"] for original in (True, False)]
    assert ["fixed(8,4)" in text for text in texts] == [False, True]
    (model,) = await real.api("models", path)
    assert (model["title"], model["transform"]["texts"]) == ("Net", ["quantize(default='fixed(8,4)')"])
    line = NET.splitlines().index("        y = self.fc(x)") + 1
    found = await real.api("nodeAt", path, line=line, column=8)
    (value,) = found["values"]
    assert (value["value"][0], value["original"][0], value["node"]["format"]) == ("fixed(8,4)", "f32", "fixed(8,4)")
    assert await real.api("pipelineSettings", path) == {"Net": ["quantize(default='fixed(8,4)')"]}


async def test_a_persons_own_passes_are_listed_after_a_trace(real):
    path = await real.open_net("listed.py")
    await real.daemon.passes.refresh(path)
    names = {one["name"] for one in await real.api("passes", path)}
    assert {"quantize", "waiting", "touchy"} <= names


async def test_a_save_during_a_pass_begins_it_anew(real, tmp_path):
    path = await real.open_net("saved_during.py")
    gate, pid = tmp_path / "gate", tmp_path / "pid"
    answer = asyncio.create_task(real.apply(path, "waiting", gate=str(gate), pid=str(pid)))
    fork, child = map(int, (await appears(pid)).split())
    assert child == real.daemon.worker(path).child.pid
    pid.unlink()
    await real.save_net(path, f"{NET}{OWN}\n# longer\n")
    assert await gone(fork)
    assert await gone(child)
    gate.touch()
    assert len((await answer)["steps"]) == 1
    assert int((await appears(pid)).split()[0]) != fork


async def test_a_child_that_is_killed_during_a_pass_is_an_error_and_nothing_is_lost(real, tmp_path):
    path = await real.open_net("killed.py")
    await real.apply(path, "quantize", default="fixed(8,4)")
    pid = tmp_path / "pid"
    answer = asyncio.create_task(real.apply(path, "waiting", gate=str(tmp_path / "never"), pid=str(pid)))
    fork = int((await appears(pid)).split()[0])
    os.kill(real.daemon.worker(path).child.pid, 9)
    with pytest.raises(PassError, match=r"killed\.py ended meanwhile .* died of SIGKILL") as failed:
        await answer
    assert failed.value.kind == "gone"
    assert await gone(fork)
    assert (real.value(path), len(real.daemon.passes.tell(path)["steps"])) == ("fixed(8,4)", 1)
    (tmp_path / "never").touch()
    assert len((await real.apply(path, "waiting", gate=str(tmp_path / "never"), pid=str(pid)))["steps"]) == 2
    assert real.value(path) == "fixed(8,4)"


async def test_a_cancelled_pass_ends_its_fork_and_leaves_the_child(real, tmp_path):
    path = await real.open_net("cancelled.py")
    pid = tmp_path / "pid"
    answer = asyncio.create_task(real.apply(path, "waiting", gate=str(tmp_path / "never"), pid=str(pid)))
    fork = int((await appears(pid)).split()[0])
    real.daemon.passes.cancel(path)
    with pytest.raises(PassError) as cancelled:
        await answer
    assert cancelled.value.kind == "cancelled"
    assert await gone(fork)
    assert is_running(real.daemon.worker(path).child.pid)
    assert (await real.apply(path, "quantize", default="fixed(8,4)"))["steps"] == ["quantize(default='fixed(8,4)')"]


async def test_a_pass_longer_than_its_limit_is_stopped_and_the_limit_named(real, tmp_path):
    path = await real.open_net("long.py")
    real.settings = replace(real.settings, pass_seconds=0.5)
    with pytest.raises(PassError, match=r"mase\.passes\.seconds") as failed:
        await real.apply(path, "waiting", gate=str(tmp_path / "never"), pid=str(tmp_path / "pid"))
    assert failed.value.kind == "limit"
    assert real.daemon.passes.tell(path)["steps"] == []


async def test_a_step_that_fails_on_the_new_text_is_a_warning_at_the_class(real):
    path = await real.open_net("touched.py")
    await real.apply(path, "quantize", default="fixed(8,4)")
    await real.apply(path, "touchy")
    await real.save_net(path, f"{NET}{OWN}\n# touched")
    await real.ear.until(lambda: real.daemon.passes.tell(path)["complete"])
    (problem,) = real.problems(path)
    line = NET.splitlines().index("class Net(nn.Module):") + 1
    assert (problem.code, problem.severity, problem.line) == ("pass-failed", "warning", line)
    assert "somebody touched it" in problem.message
    assert (real.value(path), len(real.daemon.passes.tell(path)["steps"])) == ("fixed(8,4)", 2)


async def test_a_pass_on_a_file_whose_child_was_ended_traces_it_first(real):
    path = await real.open_net("retired.py")
    await real.daemon.worker(path).stop()
    assert real.daemon.worker(path) is None
    await real.apply(path, "quantize", default="fixed(8,4)")
    assert (real.value(path), (await real.daemon.wait(path)).generation) == ("fixed(8,4)", 2)


async def test_settings_are_the_start_of_a_pipeline(real):
    real.settings = replace(real.settings, pipelines={"*_settled.py": ("quantize(default='fixed(8,4)')",)})
    path = await real.open_net("is_settled.py")
    await real.ear.until(lambda: real.value(path) == "fixed(8,4)")


async def test_an_untrusted_folder_refuses(real):
    path = await real.open_net("distrusted.py")
    real.settings = replace(real.settings, trusted=False)
    with pytest.raises(PassError, match=r"not trusted") as refused:
        await real.apply(path, "quantize", default="fixed(8,4)")
    assert refused.value.kind == "untrusted"


async def test_a_file_that_was_never_opened_is_named(real):
    with pytest.raises(PassError, match=r"^/nowhere\.py was not traced: open it first\.$"):
        await real.apply("/nowhere.py", "quantize")


async def test_shutdown_answers_a_pass_that_runs(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    bench = PassBench(folder, tmp_path, job=DEFAULT_JOB)
    path = await bench.open_net("ending.py")
    pid = tmp_path / "pid"
    answer = asyncio.create_task(bench.apply(path, "waiting", gate=str(tmp_path / "never"), pid=str(pid)))
    pids = list(map(int, (await appears(pid)).split()))
    await bench.daemon.shutdown()
    with pytest.raises(PassError):
        await answer
    assert [is_running(one) for one in pids] == [False, False]
