"""What stands in an emitted folder beside the design: its page, and a bench in Python that really runs."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from mase_server.hardware.emission import Emitted, emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import check_text
from tests.hardware.test_lowering import Twice, config, mlp, quantised

ICARUS = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")


class Image(nn.Module):
    """Rows, columns and channels flow in another order than they are called."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2)

    def forward(self, x):
        return self.pool(self.conv(x).relu())


MODELS = {
    "chain": (lambda: mlp(8, 12, 6, 3), (2, 8)),
    "two outputs": (Twice, (2, 4)),
    "image": (Image, (2, 2, 6, 6)),
}


def written(name, folder, vectors=6, multipliers=12):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    design = lower_graph(quantised(make(), torch.randn(*shape), config()))
    emitted = emit_folder(design, fold_design(design, multipliers=multipliers), "Net", random_inputs(design, vectors))
    emitted.write(folder)
    return design, emitted


def cocotb(folder, *words):
    command = ["make", "cocotb", f"PYTHON={sys.executable}", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@ICARUS
@pytest.mark.parametrize("name", MODELS)
def test_the_bench_in_python_finds_every_beat_equal(tmp_path, name):
    written(name, tmp_path)
    done = cocotb(tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    total = sum(len(path.read_text().split()) for path in (tmp_path / "sim").glob("data_out_*.hex"))
    assert f"{total} beats, 0 of them wrong" in done.stdout
    assert "TESTS=1 PASS=1 FAIL=0" in done.stdout


@ICARUS
def test_it_stalls_and_takes_fewer_samples(tmp_path):
    design, _ = written("chain", tmp_path)
    done = cocotb(tmp_path, "COCOTB=SAMPLES=2 STALL=40")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    [lanes] = [port["lanes"] for port in described(tmp_path).values() if port["kind"] == "out"]
    assert f"{2 * design.operations[design.outputs[0]].out.size // lanes} beats, 0 of them wrong" in done.stdout


@ICARUS
def test_one_wrong_expected_integer_fails_the_bench_in_python_and_the_one_in_c(tmp_path):
    written("chain", tmp_path)
    beats = tmp_path / "sim" / "data_out_0.hex"
    first, rest = beats.read_text().split("\n", 1)
    beats.write_text(f"{int(first, 16) ^ 1:0{len(first)}x}\n{rest}")
    done = cocotb(tmp_path)
    assert done.returncode != 0
    assert "data_out_0: beat 0 is" in done.stdout
    assert "1 of them wrong" in done.stdout
    if shutil.which("verilator"):
        assert subprocess.run(["make", "sim"], cwd=tmp_path, capture_output=True, check=False).returncode != 0


def described(folder):
    return json.loads((folder / "sim" / "streams.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_every_port_is_described_as_the_top_module_has_it(tmp_path, name):
    design, emitted = written(name, tmp_path)
    ports = described(tmp_path)
    declared = re.findall(
        r"(input|output) +logic +(?:\[(\d+):0\] )?(data_\w+_\d+)\b(?!_)", emitted.files[f"{emitted.name}.sv"]
    )
    assert [found[2] for found in declared] == list(ports)
    for direction, high, port in declared:
        about = ports[port]
        assert about["kind"] == direction.removesuffix("put")
        assert about["lanes"] * about["width"] == int(high or 0) + 1
    outputs = [design.operations[output].out for output in design.outputs]
    assert [tuple(about["shape"]) for about in ports.values() if about["kind"] == "out"] == [
        one.shape for one in outputs
    ]


def test_an_order_that_is_not_row_major_is_described(tmp_path):
    """The first two elements that flow are the two channels of the first pixel."""
    written("image", tmp_path)
    assert described(tmp_path)["data_in_0"]["order"][:4] == [0, 36, 1, 37]
    assert "| 2x6x6, rows, columns, channels | `fixed(8,4)` |" in (tmp_path / "README.md").read_text()


def test_the_page_tells_of_every_port_what_a_beat_is(tmp_path):
    """Beats of a sample are those in the files of vectors, and the widths those of the text."""
    _, emitted = written("chain", tmp_path, vectors=20)
    ports = described(tmp_path)
    table = re.findall(
        r"^\| `(data_\w+)` .* \| (\d+) elements? of (\d+) bits \| (\d+) \|$", emitted.files["README.md"], re.M
    )
    assert [row[0] for row in table] == list(ports)
    for name, lanes, bits, beats in table:
        assert (int(lanes), int(bits)) == (ports[name]["lanes"], ports[name]["width"])
        assert len((tmp_path / "sim" / f"{name}.hex").read_text().split()) == 20 * int(beats)


def test_the_page_tells_pace_latency_and_what_each_operation_takes(tmp_path):
    design, _ = written("chain", tmp_path, vectors=20)
    page = (tmp_path / "README.md").read_text()
    assert re.findall(r"\$\{?\w+", page) == ["$readmemh"]  # everything else was put in
    rows = [line for line in page.splitlines() if line.endswith(" |") and line.count("|") == 9]
    assert [row.split(" | ")[0].strip("| ") for row in rows[1:]] == list(design.operations)
    interval, latency = map(int, re.search(r"takes (\d+) cycles .*, and comes out (\d+) cycles after", page).groups())
    assert 0 < interval < latency
    assert f"{fold_design(design, multipliers=12).multipliers} multipliers, " in page
    assert all(f"`{path.split('/')[0]}" in page for path in ("files.f", "rtl/", "sim/"))


@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
def test_a_wire_that_nobody_reads_is_no_clean_text(tmp_path):
    _, emitted = written("chain", tmp_path)
    text = emitted.files["net.sv"].replace("endmodule", "  logic idle;\n  assign idle = clk;\nendmodule")
    with pytest.raises(AssertionError, match="UNUSEDSIGNAL"):
        check_text(Emitted("net", emitted.files | {"net.sv": text}, emitted.top), tmp_path)


@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
@pytest.mark.parametrize("name", MODELS)
def test_nobody_has_a_warning_about_the_whole_folder(tmp_path, name):
    check_text(written(name, tmp_path)[1], tmp_path)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "b.sv").mkdir()
    with pytest.raises(OSError, match=r"b\.sv: Is a directory\. The folder is incomplete: emit again") as told:
        Emitted("net", {"a.sv": "module a;", "b.sv": "module b;"}, None).write(tmp_path)
    assert told.value.strerror.startswith(f"cannot write {tmp_path / 'b.sv'}: ")
    assert (tmp_path / "a.sv").read_text() == "module a;"
