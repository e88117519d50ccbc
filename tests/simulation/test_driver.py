"""The program that drives a design, as a person runs it in the folder: what it says, and what it refuses."""

import re
import shutil
import subprocess

import pytest

from mase_server.simulation import simulate
from mase_server.simulation.building import PROGRAM, build_program, find_tools
from mase_server.simulation.simulating import _find_sources, ignore_progress, read_streams
from tests.simulation.conftest import VECTORS

pytestmark = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")


@pytest.fixture
async def drive(folder, cache):
    """Run the driver in the folder with some options; what became of it."""
    made = await build_program(_find_sources(folder), await find_tools(), cache, ignore_progress)
    assert made.name == PROGRAM

    def run(*options):
        command = [str(made), "sim/plan", *map(str, options)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    return run


async def test_the_last_line_says_it_in_words(drive):
    done = drive()
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"equal: all beats are the expected ones; data_out_0: {VECTORS} samples, the first after ")


async def test_its_pace_is_that_of_the_simulation(drive, folder, cache):
    told = await simulate(folder, cache=cache)
    last = drive().stdout.splitlines()[-1]
    first, every = re.search(r"the first after (\d+) cycles, then one every ([\d.]+)$", last).groups()
    assert int(first) == told["latency"]
    assert float(every) == pytest.approx(told["cycles_per_vector"], rel=1e-4)


async def test_a_wrong_beat_is_told_with_the_line_that_it_differs_from(drive, folder):
    beats = folder / "sim" / "data_out_0.hex"
    lines = beats.read_text().split()
    lines[6] = f"{int(lines[6], 16) ^ 1:0{len(lines[6])}x}"
    beats.write_text("\n".join(lines) + "\n")
    done = drive()
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "different; data_out_0: 1 beats differ, the first is line 7 of sim/data_out_0.hex"
    )


async def test_a_reset_says_what_had_moved_by_then(drive, folder):
    given, came = read_streams(folder)
    plain = drive("--reset", 50)
    number, in_beats, out_beats = re.search(r"^reset (\d+) (\d+) (\d+)$", plain.stdout, re.M).groups()
    assert int(number) == 50
    assert 0 < int(in_beats) < VECTORS * given.size // given.lanes
    assert 0 < int(out_beats) < VECTORS * came.size // came.lanes
    assert plain.returncode == 0
    assert "reset" not in drive().stdout


async def test_a_reset_that_comes_too_late_is_no_test_of_one(folder, cache):
    told = await simulate(folder, cache=cache, reset=10**9)
    assert told["status"] == "failed"
    assert re.fullmatch(r"the simulation ended after \d+ cycles, before the reset: reset earlier", told["log"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stall", "100"], "--stall takes a whole number from 0 to 99, not 100"),
        (["--stall", "-1"], "--stall takes a whole number from 0 to 99, not -1"),
        (["--seed", "two"], "--seed takes a whole number from 0 to 1000000000000, not two"),
        (["--reset", "4O"], "--reset takes a whole number from 0 to 1000000000000, not 4O"),
        (["--patience"], "--patience lacks its number"),
        (["--quickly", "1"], "--quickly is no option"),
    ],
)
async def test_an_option_that_is_none_is_refused(drive, options, message):
    done = drive(*options)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"simulate: {message}\n")


@pytest.mark.parametrize(
    ("beat", "message"),
    [("0g", "the beat 0g is not hexadecimal"), ("1" + "0" * 20, "the beat 1" + "0" * 20 + " is wider than its stream")],
)
async def test_a_beat_that_is_none_is_refused(drive, folder, beat, message):
    (folder / "sim" / "data_out_0.hex").write_text(f"{beat}\n")
    done = drive()
    assert (done.returncode, done.stderr) == (3, f"simulate: {message}\n")


async def test_what_cannot_be_written_is_told(drive, folder):
    """As on a disk that is full: a device that takes nothing stands where the results go."""
    (folder / "sim" / "data_out_0.hex.got").unlink(missing_ok=True)
    (folder / "sim" / "data_out_0.hex.got").symlink_to("/dev/full")
    done = drive()
    assert done.returncode == 3
    assert done.stderr == "simulate: sim/data_out_0.hex.got cannot be written; is the disk full?\n"
