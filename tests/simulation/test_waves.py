"""Waveforms of a simulation, and what they say of each operation."""

import json
import re
import shutil
from xml.etree import ElementTree

import pytest

from mase_server.simulation import simulate
from mase_server.simulation.waves import STATES, Wave, Window, choose_window
from tests.simulation.conftest import VECTORS

pytestmark = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")

COUNTS = ("works", "waits_for_multipliers", "waits_for_room", "waits_for_data", "inside")


@pytest.fixture
def record(folder, cache, tmp_path):
    """Simulate the folder with a waveform; the result, and the file."""

    async def run(begin=None, cycles=400, **options):
        file = tmp_path / "it.vcd"
        return await simulate(folder, cache=cache, wave=Wave(file, begin, cycles), **options), file

    return run


def count_high(file, scope, *wires):
    """The cycles in which all these wires of a module are high before the clock rises: VCD read in the plainest way."""
    scopes, codes, high, cycles, time = [], set(), set(), 0, None
    for line in file.read_text().splitlines():
        words = line.split()
        if words[:1] == ["$scope"]:
            scopes.append(words[2])
        elif words[:1] == ["$upscope"]:
            scopes.pop()
        elif words[:1] == ["$var"] and scopes[-len(scope) :] == scope and words[4] in wires:
            codes.add(words[3])
        elif line[:1] == "#":
            cycles += time is not None and time % 2 == 0 and codes <= high
            time = int(line[1:])
        elif line[:1] in "01" and words:
            (high.add if line[0] == "1" else high.discard)(line[1:])
    return cycles


async def test_multipliers_work_as_often_as_there_are_products(record):
    """Worked by hand: 8 multipliers take 6 cycles for the 6 * 8 products of one layer and 4 for the other's 8 * 4."""
    told, _ = await record(cycles=240)
    works = {each["name"]: each["works"] for each in told["wave"]["operations"]}
    samples = told["wave"]["cycles"] / told["cycles_per_vector"]
    assert {name: count / samples for name, count in works.items()} == pytest.approx({"_0": 6, "_2": 4}, rel=0.05)


async def test_what_a_waveform_tells_is_in_its_file(record):
    told, file = await record(begin=0, cycles=100_000, stall=20)
    wave = told["wave"]
    assert (wave["file"], wave["begin"]) == (str(file), 0)
    assert wave["cycles"] >= told["cycles"]
    for each in wave["operations"]:
        assert sum(each[name] for name in COUNTS) == wave["cycles"]
        assert [sum(counts) for counts in zip(*each["columns"], strict=True)] == [each[name] for name in COUNTS]
    beats = len((file.parent / "design" / "sim" / "data_out_0.hex").read_text().split())
    last = wave["operations"][-1]["name"]
    assert count_high(file, ["dut", f"{last}_i"], "data_out_0_valid", "data_out_0_ready") == beats


async def test_the_picture_has_a_row_for_each_operation(record):
    told, _ = await record()
    texts = [each.text for each in ElementTree.parse(told["wave"]["picture"]).iter("{http://www.w3.org/2000/svg}text")]
    assert {"chain", *STATES, *(each["name"] for each in told["wave"]["operations"])} <= set(texts)


async def test_the_comparison_stays_if_the_waveform_cannot_be_written(folder, cache, tmp_path):
    told = await simulate(folder, cache=cache, wave=Wave(tmp_path / "no folder" / "it.vcd", 0, 10))
    assert (told["status"], told["vectors"], told["mismatches"], told["wave"]) == ("equal", VECTORS, 0, None)
    assert "no waveform: " in told["log"]
    assert "cannot be written" in told["log"]


async def test_the_waveform_is_about_the_first_mismatch(record, folder):
    beats = folder / "sim" / "data_out_0.hex"
    lines = beats.read_text().split()
    lines[-1] = f"{int(lines[-1], 16) ^ 1:0{len(lines[-1])}x}"
    beats.write_text("\n".join(lines) + "\n")
    told, _ = await record(cycles=40)
    assert (told["status"], told["first"]["vector"]) == ("different", VECTORS - 1)
    begin = told["wave"]["begin"]
    assert begin + 30 == told["cycles"] - 1  # the last beat of all is wrong


def test_cycles_are_chosen_for_what_happened():
    none = {"mismatch": None, "stop": None, "result": None}
    file = Wave("it.vcd", None, 100)
    assert choose_window(Wave("it.vcd", 7, 100), {**none, "mismatch": 500}, 8.0) == Window(7, 100)
    assert choose_window(file, {**none, "mismatch": 500, "result": 20}, 8.0) == Window(425, 100)
    assert choose_window(file, {**none, "mismatch": 5}, None) == Window(0, 100)
    assert choose_window(file, {**none, "stop": 90, "result": 20}, None) == Window(15, 100)
    assert choose_window(file, {**none, "result": 20}, 8.0) == Window(21, 96)
    assert choose_window(file, {**none, "result": 20}, 800.0) == Window(21, 100)
    assert choose_window(file, none, None) == Window(0, 100)
    free = Wave("it.vcd")
    assert choose_window(free, {**none, "result": 20}, 300.0) == Window(21, 900)
    assert choose_window(free, {**none, "result": 20}, 2048.0) == Window(21, 2048)
    assert choose_window(free, {**none, "result": 20}, 1e6) == Window(21, 1000)


async def test_a_folder_of_an_older_version_is_told(record, folder):
    (folder / "sim" / "operations.json").unlink()
    told, _ = await record()
    assert (told["status"], told["wave"]) == ("equal", None)
    assert re.search(r"design has no sim/operations\.json .*: emit it again for a waveform", told["log"])


def test_the_folder_names_its_operations(folder):
    assert json.loads((folder / "sim" / "operations.json").read_text()) == ["_0", "_2"]
