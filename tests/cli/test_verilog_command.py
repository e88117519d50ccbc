"""`mase-server verilog` as a person runs it: the text, the folder, the simulation, and what goes wrong."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from mase_server.building import EMISSION_KEYS, SIMULATION_KEYS
from mase_server.cli import verilog
from mase_server.simulation import simulate
from tests.cli.test_apply import NET, Net
from tests.rtl.build import lend_programs

VERILATOR = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
YOSYS = pytest.mark.skipif(shutil.which("yosys") is None, reason="Yosys is not installed")
UNSUPPORTED = NET.replace("self.a(x).relu()", "torch.cumsum(self.a(x), 1)")


@pytest.fixture
def net(tmp_path):
    """A model of two layers with known weights; programs that simulate are kept between tests."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "net.py").write_text(NET)
    torch.manual_seed(0)
    torch.save(Net().state_dict(), folder / "net.pt")
    with lend_programs(tmp_path / "cache" / "mase-server" / "simulations"):
        yield folder / "net.py"


def quantised(values, weights):
    """What the model gives in fixed(8,4), in integers: worked out with numpy alone."""

    def rounded(numbers):
        return np.clip(np.rint(numbers * 16), -128, 127) / 16

    hidden = rounded(values)
    for name in ("a", "b"):
        weight, bias = (rounded(weights[f"{name}.{part}"].double().numpy()) for part in ("weight", "bias"))
        hidden = rounded(hidden @ weight.T + bias)
        hidden = np.maximum(hidden, 0) if name == "a" else hidden
    return (hidden * 16).astype(np.int64)


def test_the_text_comes_on_standard_output_and_the_report_beside_it(mase, net):
    done = mase.process("verilog", net, "--multipliers", 16, cwd=net.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("endmodule")
    assert "module net (" in done.stdout
    assert "estimate: " in done.stderr
    assert "\x1b" not in done.stderr
    assert [path.name for path in net.parent.iterdir() if path.is_dir()] in ([], ["__pycache__"])


def test_a_folder_that_stands_alone_is_written(mase, net):
    done = mase("verilog", net, "-o", "out", "--multipliers", 16, "--format", "json", cwd=net.parent)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert set(told) == {*EMISSION_KEYS, "file", "simulation", "synthesis", "results", "problems", "failure"}
    folder = net.parent / "out"
    assert told["folder"] == str(folder)
    assert {path: (folder / path).stat().st_size for path, _ in told["files"]} == dict(map(tuple, told["files"]))
    assert (folder / "net.sv").read_text() == told["text"]
    assert told["build"]["multipliers"] == 16 >= told["totals"]["multipliers"]
    assert (told["simulation"], told["synthesis"], told["failure"]) == (None, None, None)
    assert "quantize(default='fixed(8,auto)')" in told["steps"]
    assert told["accuracy"]["sqnr"] > 20
    assert told["accuracy"]["calibrated"] is not None


def test_a_folder_of_somebody_else_is_not_written_to(mase, net):
    (net.parent / "out").mkdir()
    (net.parent / "out" / "mine.txt").write_text("mine")
    done = mase("verilog", net, "-o", "out", cwd=net.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert "were not written by mase-server" in done.stderr
    assert mase("verilog", net, "-o", "out", "--overwrite", cwd=net.parent).returncode == 0
    assert (net.parent / "out" / "mine.txt").read_text() == "mine"


@VERILATOR
def test_a_simulation_is_reported(mase, net):
    done = mase("verilog", net, "--simulate", 50, "--multipliers", 16, "--stall", 20, cwd=net.parent)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("simulation: ")]
    assert line.startswith("simulation: equal; 50 vectors, 0 mismatches, ")
    assert "cycles per vector, latency " in line
    assert "written: " not in done.stdout


@VERILATOR
def test_a_waveform_is_written_with_a_picture_of_who_waits(mase, net):
    done = mase("verilog", net, "--simulate", "20", "--wave", "net.vcd", "--wave-cycles", "200", cwd=net.parent)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    [told] = [each for each in lines if each.startswith("waveform: ")]
    assert re.fullmatch(r"waveform: \S+net\.vcd, \d+ cycles from \d+ on; its picture: \S+net\.activity\.svg", told)
    assert (net.parent / "net.vcd").exists()
    assert (net.parent / "net.activity.svg").exists()
    head = lines.index(told) + 1
    assert re.split(" {2,}", lines[head].strip())[:3] == ["operation", "works", "waits for multipliers"]
    assert all(re.search(r"\d+ %", each) for each in lines[head + 1 :])


@VERILATOR
def test_a_reset_in_flight_changes_no_integer(mase, net):
    done = mase("verilog", net, "--simulate", 50, "--stall", 40, "--reset", 90, cwd=net.parent)
    assert done.returncode == 0, done.stderr
    assert "simulation: equal; 50 vectors, 0 mismatches, " in done.stdout
    late = mase("verilog", net, "--simulate", 50, "--reset", 10**9, cwd=net.parent)
    assert late.returncode == 2
    assert "before the reset: reset earlier" in late.stdout


@VERILATOR
def test_the_simulation_of_a_design_on_a_bus_is_that_of_the_bus(mase, net):
    """Packets of 3 bytes on 32 bits: integers come back from them, and a file tells the clock of the part."""
    np.savez(net.parent / "mine.npz", x=np.random.default_rng(1).normal(size=(7, 8)).astype(np.float32))
    words = ("--vectors", "mine.npz", "--target", "zu7ev", "--multipliers", "4", "--stall", "30")
    came = []
    for more in (["--bus", "axi"], []):
        done = mase("verilog", net, "-o", "out", "--overwrite", *words, *more, cwd=net.parent)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "simulation: equal; 7 vectors, 0 mismatches, " in done.stdout
        came.append(np.load(net.parent / "mine.hardware.npz")["data_out_0"].tolist())
    assert came[0] == came[1]
    assert "[get_ports aclk]" in (net.parent / "out" / "net_axi.xdc").read_text()
    assert "[get_ports clk]" in (net.parent / "out" / "net.xdc").read_text()


@VERILATOR
def test_the_persons_own_inputs_give_the_integers_of_the_model(mase, net):
    values = np.random.default_rng(1).normal(size=(7, 8)) * 3
    np.savez(net.parent / "mine.npz", x=values.astype(np.float32))
    words = ("--precision", "fixed(8,4)", "--format", "json")
    done = mase("verilog", net, "--vectors", "mine.npz", *words, cwd=net.parent)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["simulation"]) == set(SIMULATION_KEYS)
    assert (told["simulation"]["status"], told["simulation"]["vectors"]) == ("equal", 7)
    assert told["results"] == str(net.parent / "mine.hardware.npz")
    came = np.load(net.parent / "mine.hardware.npz")
    expected = quantised(values.astype(np.float32).astype(float), torch.load(net.parent / "net.pt"))
    assert came["data_out_0"].tolist() == expected.tolist()
    assert (came["data_out_0_width"], came["data_out_0_fraction_width"]) == (8, 4)


@VERILATOR
def test_a_mismatch_is_status_one(mase, net, monkeypatch):
    """One bit of one expected integer is turned before the simulation begins."""

    async def disturbed(folder, **options):
        beats = folder / "sim" / "data_out_0.hex"
        first, rest = beats.read_text().split("\n", 1)
        beats.write_text(f"{int(first, 16) ^ 1:0{len(first)}x}\n{rest}")
        return await simulate(folder, **options)

    monkeypatch.setattr(verilog, "simulate", disturbed)
    done = mase("verilog", net, "--simulate", 5)
    assert done.returncode == 1
    assert "simulation: different; 5 vectors, 1 mismatches, " in done.stdout
    assert re.search(r"first mismatch: data_out_0, vector 0, element 0: (-?\d+) instead of (?!\1\b)-?\d+", done.stdout)


@VERILATOR
@YOSYS
def test_synthesis_stands_beside_the_estimate(mase, net):
    done = mase("verilog", net, "-o", "out", "--synthesize", "--multipliers", 4, "--format", "json", cwd=net.parent)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["synthesis"]["multipliers"] == told["totals"]["multipliers"]
    subprocess.run(["make", "synth"], cwd=net.parent / "out", capture_output=True, check=True)
    cells = (net.parent / "out" / "synth.txt").read_text()
    for cell, count in told["synthesis"]["cells"].items():
        assert re.search(rf"^ +{cell} +{count}$", cells, re.M)


async def test_two_commands_never_write_to_one_folder_at_once(tmp_path, monkeypatch):
    """The second one begins when the first has simulated what it wrote; one for another folder waits for nobody."""
    told, last = [], asyncio.Event()

    async def emitted(request, folder, tell):
        told.append(("emitted", folder))
        return verilog.Made(None, {"folder": folder})

    async def tried(request, made, folder, tell):
        if folder.name == "one":
            await last.wait()
        told.append(("tried", str(folder)))
        last.set()
        return made

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verilog, "_emit_with_daemon", emitted)
    monkeypatch.setattr(verilog, "_simulate_and_synthesise", tried)
    waits = []
    names = [str(tmp_path / name) for name in ("one", "one", "other")]
    requests = [verilog.Request(None, {}, folder=Path(name)) for name in names]
    await asyncio.gather(*(verilog.emit_hardware(request, waits.append) for request in requests))
    one, _, other = names
    assert [step for step, folder in told if folder == one] == ["emitted", "tried", "emitted", "tried"]
    assert told.index(("tried", other)) < told.index(("tried", one))
    assert waits == [f"waiting for another command that writes to {one}"]


def test_a_part_without_hardware_is_named_and_status_two(mase, net):
    net.write_text(UNSUPPORTED)
    done = mase("verilog", net, "-o", "out", "--simulate", 5, cwd=net.parent)
    assert done.returncode == 2
    line = next(number for number, text in enumerate(UNSUPPORTED.splitlines(), 1) if "cumsum" in text)
    assert re.search(rf"net.py:{line}:\d+: information\[no-hardware\]: Net: cumsum has no hardware", done.stdout)
    assert "simulation: equal; 5 vectors" in done.stdout  # of all that is before it


def test_what_is_too_big_is_refused_with_what_would_do(mase, net):
    done = mase("verilog", net, "--interval", 1, "--multipliers", 1, cwd=net.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "information[verilog-refused]" in done.stderr


def test_above_a_ceiling_layers_are_offered_that_can_be_built_alone(mase, net):
    words = ("--max-multipliers", 1, "--max-memory-bits", 1 << 40, "--format", "json")
    done = mase("verilog", net, *words, cwd=net.parent)
    told = json.loads(done.stdout)
    assert (done.returncode, told["text"]) == (2, "")
    count = told["totals"]["multipliers"]
    assert count > 1
    assert told["refusal"].startswith(f"it takes {count} multipliers, and 1 are allowed (max_multipliers)")
    assert set(told["scopes"]) == {"a", "b"}
    alone = mase("verilog", net, "--scope", told["scopes"][0], *words, cwd=net.parent)
    assert alone.returncode == 0


def test_no_layer_is_offered_that_would_be_refused_as_well(mase, net):
    """With sixteen multipliers each layer alone takes more than eight, too."""
    words = ("--multipliers", 16, "--max-multipliers", 8, "--format", "json")
    told = json.loads(mase("verilog", net, *words, cwd=net.parent).stdout)
    assert told["scopes"] == []
    assert told["refusal"].endswith("Raise the limit")
    assert mase("verilog", net, "--scope", "a", *words, cwd=net.parent).returncode == 2


def test_where_each_layer_is_too_large_no_part_is_offered(mase, net):
    words = ("--multipliers", 16, "--max-memory-bits", 1, "--format", "json")
    told = json.loads(mase("verilog", net, *words, cwd=net.parent).stdout)
    assert told["scopes"] == []
    assert told["refusal"].endswith("Raise the limit")


def test_one_layer_can_be_built_alone(mase, net):
    done = mase("verilog", net, "--scope", "b", "--format", "json", cwd=net.parent)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {each["scope"] for each in told["operations"] if each["kind"] != "input"} == {"b"}


def test_a_part_of_the_project_is_built_for(mase, net):
    """Its only multiplier is shared by both layers."""
    (net.parent / "pyproject.toml").write_text(
        "[tool.mase.parts.board]\nluts = 9000\nmultipliers = 1\nmemory_bits = 1e6\nclock = 50e6\n"
    )
    done = mase("verilog", net, "--target", "board")
    assert done.returncode == 0, done.stderr
    assert "fixed_engine #(" in done.stdout
    cycles = int(re.search(r"a sample every (\d+) cycles", done.stderr)[1])
    assert f"estimate on board: 50 MHz, {50e6 / cycles:,.0f} samples a second" in done.stderr
    unknown = mase("verilog", net, "--target", "boar")
    assert unknown.returncode == 2
    assert "there is no part 'boar'; did you mean 'board'?" in unknown.stderr


def test_a_pass_that_fails_leaves_no_hardware_and_is_status_one(mase, net, tmp_path):
    """Other hardware than was asked for would look like that."""
    text = "def breaks_transform_pass(graph, pass_args={}):\n    raise ValueError('this pass fails')\n"
    (net.parent / "breaks.py").write_text(text)
    folder = tmp_path / "out"
    for passes in (["breaks"], ["quantize(default='fixed(6,3)')", "breaks"]):
        words = [word for each in passes for word in ("--pass", each)]
        done = mase("verilog", net, *words, "-o", folder, cwd=net.parent)
        assert (done.returncode, folder.exists()) == (1, False)
        assert "this pass fails" in done.stdout
        assert "written" not in done.stdout
        assert "estimate:" not in done.stdout


def test_passes_can_come_first(mase, net):
    done = mase("verilog", net, "--pass", "quantize(default='fixed(6,3)')", "--format", "json", cwd=net.parent)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["steps"][0] == "quantize(default='fixed(6,3)')"
    assert "DATA_IN_0_PRECISION_0(6)" in told["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--precision", "fixd(8,4)"], "fixd"),
        (["--scope", "nowhere"], "nowhere"),
        (["--model", "Nat"], "no model 'Nat'"),
        (["--pass", "quantize("], "quantize("),
        (["--multipliers", "-1"], "Invalid value for '--multipliers'"),
        (["--vectors", "none.npz"], "does not exist"),
        (["--bus", "axi4", "-o", "out"], "there is no bus 'axi4'"),
        (["--bus", "axi"], "--bus adds files to the top module: add -o FOLDER"),
        (["--stall", "40"], "add --simulate N or --vectors FILE"),
        (["--reset", "40"], "add --simulate N or --vectors FILE"),
        (["--wave", "a.vcd"], "add --simulate N or --vectors FILE"),
        (["--simulate", "5", "--wave", "none/a.vcd"], "there is no folder"),
    ],
)
def test_what_cannot_be_meant_is_status_two(mase, net, words, message):
    done = mase("verilog", net, *words, cwd=net.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_file_without_a_model_is_status_two(mase, net):
    net.write_text("import torch\n")
    done = mase("verilog", net, cwd=net.parent)
    assert done.returncode == 2
    assert "no-model" in done.stdout


def test_help_teaches(mase):
    done = mase("verilog", "--help")
    assert done.returncode == 0
    for word in ("--multipliers", "--interval", "--simulate", "--vectors", "--synthesize", "Exit status"):
        assert word in done.stdout
