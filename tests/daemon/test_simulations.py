"""Simulations of a file whose child and simulator are played: one of a model at a time, one on the machine."""

import asyncio
from pathlib import Path

import pytest

from mase_server.daemon.pipelines import PassError
from mase_server.daemon.simulations import Simulations
from mase_server.daemon.slots import wait_for_turn

from .fake_child import PATH, FakeFile

EQUAL = {"status": "equal"}


class FakeSimulator:
    """Runs until its gate is opened; knows what it was asked, and how many ran at once."""

    def __init__(self, ear):
        self.ear, self.gate = ear, asyncio.Event()
        self.asked, self.ended = [], []
        self.running = self.most = 0

    async def __call__(self, folder, *, cache, stall, progress, wave):
        self.asked.append((folder, cache, stall, wave))
        self.running += 1
        self.most = max(self.most, self.running)
        progress("building 1 of 2", 0.5)
        try:
            await self.gate.wait()
            self.ended.append("done")
            return EQUAL
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        finally:
            self.running -= 1
            self.ear.news.set()

    async def begins(self, count=1):
        await self.ear.until(lambda: len(self.asked) == count)


def made(tmp_path, *names):
    file = FakeFile(*names)
    simulator = FakeSimulator(file.ear)
    return file, simulator, Simulations(file.verilog, file.ear, tmp_path, simulator)


async def test_the_present_text_is_emitted_into_a_folder_of_the_cache_and_simulated(tmp_path):
    file, simulator, simulations = made(tmp_path)
    await file.verilog.emit(PATH, None, {"multipliers": 4})
    simulator.gate.set()
    assert await simulations.simulate(PATH, None, vectors=9, inputs="/w/x.npz", stall=40) == EQUAL
    ((folder, cache, stall, wave),) = simulator.asked
    assert (cache, stall, wave) == (tmp_path / "simulations", 40, None)
    assert folder.is_relative_to(tmp_path / "verilog")
    params = file.child.asked[-1][1]
    assert (params["folder"], params["vectors"], params["inputs"]) == (str(folder), 9, "/w/x.npz")
    assert params["build"]["multipliers"] == 4
    assert ("verilog", PATH, "Net", "building 1 of 2", 0.5) in file.ear.said
    ends = [one for one in told(file) if one[0] == "verilog ended"]
    # That of the emission before it, and its own, which comes after all else.
    assert len(ends) == 2
    assert file.ear.said[-1] == ends[0]


async def test_what_an_older_simulation_left_in_the_folder_is_gone(tmp_path):
    _, simulator, simulations = made(tmp_path)
    simulator.gate.set()
    await simulations.simulate(PATH, None)
    ((folder, *_),) = simulator.asked
    (folder / "old.mem").write_text("00")
    await simulations.simulate(PATH, None)
    assert not (folder / "old.mem").exists()


async def test_only_some_folders_are_kept(tmp_path):
    _, simulator, simulations = made(tmp_path)
    simulator.gate.set()
    for index in range(20):
        (tmp_path / "verilog" / f"old{index}").mkdir(parents=True)
    await simulations.simulate(PATH, None)
    kept = [path for path in (tmp_path / "verilog").iterdir() if path.is_dir()]
    assert len(kept) == 17
    assert simulator.asked[0][0] in kept


async def test_a_second_simulation_of_a_model_stops_the_first(tmp_path):
    _, simulator, simulations = made(tmp_path)
    first = asyncio.create_task(simulations.simulate(PATH, None))
    await simulator.begins()
    second = asyncio.create_task(simulations.simulate(PATH, None))
    await simulator.begins(2)
    simulator.gate.set()
    assert await second == EQUAL
    with pytest.raises(PassError, match=r"^the simulation of Net was stopped: another one began, or the server ends$"):
        await first
    assert (simulator.ended, simulator.most) == (["cancelled", "done"], 1)


async def test_a_third_one_stops_the_second_and_the_end_is_told_once(tmp_path):
    file, simulator, simulations = made(tmp_path)
    tasks = []
    for count in (1, 2, 3):
        tasks.append(asyncio.create_task(simulations.simulate(PATH, None)))
        await simulator.begins(count)
    simulator.gate.set()
    assert await tasks[-1] == EQUAL
    await asyncio.wait(tasks)
    assert (simulator.ended, simulator.most) == (["cancelled", "cancelled", "done"], 1)
    assert [one for one in told(file) if one[0] == "verilog ended"] == [("verilog ended", PATH, "Net")]


async def test_models_of_one_server_take_turns(tmp_path):
    file, simulator, simulations = made(tmp_path, "Net", "Other")
    tasks = [asyncio.create_task(simulations.simulate(PATH, title)) for title in file.names]
    await file.ear.until(lambda: any("waiting for another simulation" in one for one in told(file)))
    simulator.gate.set()
    assert await asyncio.gather(*tasks) == [EQUAL, EQUAL]
    assert simulator.most == 1
    assert len({folder for folder, *_ in simulator.asked}) == 2


def told(file):
    return [one for one in file.ear.said if isinstance(one, tuple)]


async def test_who_gives_up_ends_the_simulator(tmp_path):
    file, simulator, simulations = made(tmp_path)
    answer = asyncio.create_task(simulations.simulate(PATH, None))
    await simulator.begins()
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    await file.ear.until(lambda: simulator.ended)
    assert simulator.ended == ["cancelled"]


async def test_shutting_down_ends_the_simulator(tmp_path):
    _, simulator, simulations = made(tmp_path)
    answer = asyncio.create_task(simulations.simulate(PATH, None))
    await simulator.begins()
    await simulations.shutdown()
    assert simulator.ended == ["cancelled"]
    with pytest.raises(PassError):
        await answer


@pytest.mark.parametrize("order", [{"stall": 100}, {"stall": -1}, {"vectors": 0}])
async def test_what_cannot_be_simulated_is_refused(tmp_path, order):
    _, simulator, simulations = made(tmp_path)
    ((name, value),) = order.items()
    with pytest.raises(ValueError, match=f"^{name} is {value}; "):
        await simulations.simulate(PATH, None, **order)
    assert simulator.asked == []


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"refusal": "9000 multipliers are needed"}, "9000 multipliers are needed"),
        (
            {"unsupported": [{"node": "fft", "operator": "fft", "why": "none", "row": 0}]},
            "these nodes have no hardware",
        ),
    ],
)
async def test_what_is_not_emitted_is_not_simulated(tmp_path, told, why):
    file, simulator, simulations = made(tmp_path)
    file.told = {"folder": None, **told}
    with pytest.raises(PassError, match=f"^there is nothing to simulate: {why}"):
        await simulations.simulate(PATH, None)
    assert simulator.asked == []


async def test_a_failure_of_the_simulator_reaches_who_asked_and_the_next_one_runs(tmp_path):
    file, simulator, simulations = made(tmp_path)

    async def breaks(folder: Path, **options):
        raise OSError("no space left")

    broken = Simulations(file.verilog, file.ear, tmp_path, breaks)
    with pytest.raises(PassError, match=r"^nothing is simulated, since its files cannot be kept: no space left$"):
        await broken.simulate(PATH, None)
    simulator.gate.set()
    assert await simulations.simulate(PATH, None) == EQUAL


async def test_a_turn_is_waited_for_until_the_other_one_is_over(tmp_path):
    order, waits = [], asyncio.Event()

    async def other():
        async with wait_for_turn(tmp_path / "lock", waits.set):
            order.append("second")

    async with wait_for_turn(tmp_path / "lock"):
        task = asyncio.create_task(other())
        await waits.wait()
        order.append("first")
    await task
    assert order == ["first", "second"]
