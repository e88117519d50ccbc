"""Hardware in real processes: it follows saves, is written where it was asked for, and is simulated."""

import asyncio
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from mase_server.building import EMISSION_KEYS, SIMULATION_KEYS
from mase_server.daemon.api import API, Api
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.process import DEFAULT_JOB
from mase_server.daemon.verilog import MARKER

from .conftest import Bench, gone, is_running

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = {method.name: method for method in API}

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x)
        return torch.relu(y)


if __name__ == "__main__":
    Net()(torch.randn(2, 4))
"""
ODD = NET.replace("torch.relu(y)", "torch.sort(y)[0]")


class HardwareBench(Bench):
    async def api(self, name, path, **params):
        return await METHODS[f"mase/{name}"].call(Api(self.daemon), {"path": path, **params})

    async def save_net(self, path, text):
        await asyncio.to_thread(Path(path).write_text, text)
        self.daemon.saved(path)
        return await self.daemon.wait(path)

    async def open_net(self, name, text=NET):
        path = str(self.folder / name)
        await asyncio.to_thread(Path(path).write_text, text)
        self.daemon.opened(path)
        status = await self.daemon.wait(path)
        assert status.state == "ready", status
        return path

    async def follows(self, path):
        """Wait until the hardware is of the present text."""
        await self.ear.until(lambda: not self.daemon.verilog.emission(path).stale)
        return self.daemon.verilog.emission(path).told


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def real(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("verilog")
    folder = tmp / "workspace"
    folder.mkdir()
    bench = HardwareBench(folder, tmp, job=DEFAULT_JOB)
    yield bench
    await bench.daemon.shutdown()


async def test_the_text_follows_a_save_after_its_hints(real):
    path = await real.open_net("follows.py")
    told = await real.api("emitVerilog", path, build={"multipliers": 3})
    assert told.keys() == EMISSION_KEYS.keys()
    assert (told["module"], told["totals"]["multipliers"]) == ("net", 3)
    real.ear.said.clear()
    await real.save_net(path, NET.replace("4, 3", "4, 6"))
    now = await real.follows(path)
    assert now["text"] != told["text"]
    assert now["build"]["multipliers"] == 3
    said = [one for one in real.ear.said if isinstance(one, tuple) or getattr(one, "state", "") == "ready"]
    ready = next(index for index, one in enumerate(said) if not isinstance(one, tuple))
    changes = [index for index, one in enumerate(said) if isinstance(one, tuple) and one == ("verilog", path, "Net")]
    # Stale when the save comes; new only when the hints are out.
    assert changes[0] < ready < changes[-1]


async def test_the_state_of_a_models_hardware_is_told_and_can_be_forgotten(real):
    path = await real.open_net("told.py")
    assert (await real.api("verilog", path))["build"] is None
    await real.api("emitVerilog", path, build={"precision": "fixed(6,3)"})
    told = await real.api("verilog", path)
    assert (told["build"]["precision"], told["stale"], told["problem"]) == ("fixed(6,3)", False, "")
    assert told["emission"].keys() == EMISSION_KEYS.keys() - {"text"}
    assert (await real.api("forgetVerilog", path))["build"] is None


async def test_a_pass_that_is_applied_changes_the_hardware(real):
    path = await real.open_net("passes.py")
    before = await real.api("emitVerilog", path)
    await real.api("applyPass", path, **{"pass": "quantize", "arguments": {"default": "fixed(5,2)"}})
    after = await real.follows(path)
    assert (before["steps"], after["steps"]) == (
        ["quantize(default='fixed(8,auto)')"],
        ["quantize(default='fixed(5,2)')"],
    )
    await real.api("undoPass", path)
    assert (await real.follows(path))["text"] == before["text"]


async def test_rows_of_the_hardware_are_those_of_the_hover(real):
    path = await real.open_net("rows.py")
    await real.api("emitVerilog", path, build={"precision": "fixed(8,4)"})
    snapshot = real.daemon.store.snapshot(path)
    nodes = {node.name: node for node in map(snapshot.node, range(len(snapshot.payload["nodes"]["name"])))}
    assert [operation["module"] for operation in nodes["fc"].hardware] == ["fixed_linear"]
    assert nodes["fc"].hardware == nodes["relu"].hardware
    (model,) = snapshot.models(path)
    assert model.hardware.told["totals"]["interval"] > 0


async def test_what_has_no_hardware_is_told_at_its_line(real):
    path = await real.open_net("odd.py", ODD)
    told = await real.api("emitVerilog", path)
    assert [each["operator"] for each in told["unsupported"]] == ["sort"]
    (problem,) = real.problems(path)
    line = ODD.splitlines().index("        return torch.sort(y)[0]") + 1
    assert (problem.code, problem.line, problem.file) == ("no-hardware", line, path)
    await real.save_net(path, NET)
    await real.follows(path)
    assert real.problems(path) == []


async def test_a_text_that_does_not_trace_keeps_the_last_hardware(real):
    path = await real.open_net("breaks.py")
    text = (await real.api("emitVerilog", path))["text"]
    await real.save_net(path, NET.replace("class Net(nn.Module):", "class Net(nn.Module"))
    told = await real.api("verilog", path)
    assert (told["stale"], told["running"]) == (True, False)
    assert real.daemon.verilog.emission(path).told["text"] == text
    await real.save_net(path, NET)
    assert (await real.follows(path))["text"] == text


async def test_a_folder_gets_all_files_and_one_of_somebody_else_is_left_alone(real, tmp_path):
    path = await real.open_net("folder.py")
    folder = tmp_path / "out"
    told = await real.api("emitVerilog", path, folder=str(folder), vectors=2)
    files = {found.relative_to(folder).as_posix() for found in folder.rglob("*") if found.is_file()}
    assert files == {name for name, _ in told["files"]} | {MARKER}
    await real.api("emitVerilog", path, folder=str(folder), vectors=2)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(PassError, match="were not written by mase-server"):
        await real.api("emitVerilog", path, folder=str(other))
    assert os.listdir(other) == ["thesis.txt"]  # noqa: PTH208 - hidden files too


async def test_inputs_have_to_be_named_by_an_absolute_path(real):
    path = await real.open_net("inputs.py")
    with pytest.raises(ValueError, match=r"^inputs is 'x.npz'; it has to be an absolute path$"):
        await real.api("emitVerilog", path, inputs="x.npz")


@pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator")
async def test_the_hardware_of_a_model_is_simulated(real):
    path = await real.open_net("simulated.py")
    await real.api("emitVerilog", path, build={"multipliers": 3})
    told = await real.api("simulate", path, vectors=6, stall=20)
    assert told.keys() == SIMULATION_KEYS.keys()
    assert (told["status"], told["vectors"], told["mismatches"], told["log"]) == ("equal", 6, 0, "")
    assert Path(told["folder"]).is_relative_to(real.cache_dir)


async def test_many_saves_leave_no_process_and_no_folder_behind(real, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = await real.open_net("many.py")
    await real.api("emitVerilog", path)
    before = [each for each in family(os.getpid()) if is_running(each)]
    for number in range(12):
        await real.save_net(path, NET + f"# {number}\n")
        if number % 3 == 0:
            await real.follows(path)
    await real.follows(path)
    await asyncio.gather(*real.daemon._background)
    # The child and the fork that holds its model, as before; a parent may have made a spare of itself, and a child that
    # waits for the next save. One that has answered, or was killed, ends a moment later. Twelve could have been left.
    assert await settles_at(len(before) + 2)
    assert len(list(tmp_path.iterdir())) == 1


# Ends that nobody wanted


GPT = (Path(__file__).parents[2] / "examples" / "gpt.py").read_text().replace("50304", "512").replace("= 384", "= 96")


async def under_way(real, path):
    """(the answer to come, the process that makes it): the model is there, and hardware is being made of it."""
    real.ear.said.clear()
    answer = asyncio.create_task(real.api("emitVerilog", path))
    await real.ear.until(lambda: ("verilog", path, "GPT", "quantising", None) in real.ear.said)
    (holder,) = children(real.daemon.worker(path).child.pid)
    (fork,) = children(holder)
    return answer, holder, fork


def children(pid):
    """Those that run: one that was killed a moment ago may not have been reaped yet."""
    found = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    return [each for each in found if is_running(each)]


async def test_who_gives_up_ends_the_fork_of_a_real_model_and_the_next_one_is_made(real):
    path = await real.open_net("gpt_given_up.py", GPT)
    answer, holder, fork = await under_way(real, path)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert await gone(fork)
    assert is_running(holder)
    assert (await real.api("verilog", path))["build"] is None
    told = await real.api("emitVerilog", path, build={"scope": "blocks.0.mlp"})
    assert [each["kind"] for each in told["operations"]].count("linear") == 2


async def test_a_process_that_is_killed_midway_is_told_and_asking_again_is_enough(real):
    path = await real.open_net("gpt_killed.py", GPT)
    answer, _, fork = await under_way(real, path)
    os.kill(fork, 9)
    with pytest.raises(PassError, match="SIGKILL"):
        await answer
    answer, _, _ = await under_way(real, path)
    os.kill(real.daemon.worker(path).child.pid, 9)
    with pytest.raises(PassError, match="ended meanwhile") as killed:
        await answer
    assert killed.value.kind == "gone"
    assert (await real.api("emitVerilog", path, build={"scope": "blocks.0.mlp"}))["text"]


async def test_in_a_folder_that_is_not_trusted_nothing_runs_and_nothing_is_written(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    bench = HardwareBench(folder, tmp_path, job=DEFAULT_JOB)
    bench.settings = replace(bench.settings, trusted=False)
    path, before = str(folder / "net.py"), family(os.getpid())
    await asyncio.to_thread(Path(path).write_text, NET)
    bench.daemon.opened(path)
    assert (await bench.daemon.wait(path)).state == "untrusted"
    for name, more in (("emitVerilog", {}), ("emitVerilog", {"folder": str(tmp_path / "out")}), ("simulate", {})):
        with pytest.raises(PassError, match="not trusted") as refused:
            await bench.api(name, path, **more)
        assert refused.value.kind == "untrusted"
    assert not family(os.getpid()) - before
    assert not (tmp_path / "out").exists()
    assert not (bench.cache_dir / "verilog").exists()
    await bench.daemon.shutdown()


async def settles_at(most):
    """Wait until at most so many processes below this one run."""
    for _ in range(200):
        if len(running := [each for each in family(os.getpid()) if is_running(each)]) <= most:
            return True
        await asyncio.sleep(0.02)
    pytest.fail(f"{len(running)} processes still run, {most} were there at most")


def family(pid):
    """The processes that a process has started, and those they have."""
    all_found, waiting = set(), [pid]
    while waiting:
        one = waiting.pop()
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found = [int(child) for child in task.read_text().split()]
            except OSError:
                continue
            all_found.update(found)
            waiting += found
    return all_found
