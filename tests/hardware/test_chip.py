"""Designs for a chip of one's own: its memories, its resets, its gates, and what OpenLane is told."""

import json
from collections import Counter

import pyslang
import pytest
import torch
from torch import nn

from mase_server.building import Build
from mase_server.daemon.devices import list_parts
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from tests.hardware.simulating import check
from tests.hardware.test_attention import Encoder
from tests.hardware.test_bus import VERILATOR
from tests.hardware.test_lowering import config, mlp, quantised
from tests.hardware.test_recurrent import Sequences
from tests.rtl.build import run

CHIP = list_parts({})["sky130"]


class Digits(nn.Module):
    """A convolution over an image, a pool and a layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        return self.head(torch.flatten(nn.functional.max_pool2d(torch.relu(self.conv(x)), 2), 1))


#: A name -> the model, the shape of its input, a budget of multipliers.
DESIGNS = {
    "layers": (lambda: mlp(8, 12, 6, 3), (2, 8), 3),
    "layers with an engine": (lambda: mlp(16, 24, 16, 5), (2, 16), 8),
    "image": (Digits, (2, 1, 8, 8), 8),
    "image, several positions at once": (Digits, (2, 1, 8, 8), 60),
    "encoder": (Encoder, (2, 5, 8), 12),
    "recurrent": (lambda: Sequences(nn.LSTM), (2, 10, 4), 12),
}


def emitted(name, vectors=4, **build):
    make, shape, budget = DESIGNS[name]
    torch.manual_seed(0)
    design = lower_graph(quantised(make(), torch.randn(*shape), config()))
    folding = fold_design(design, multipliers=budget)
    build = Build(target="sky130", part=CHIP, **build)
    return emit_folder(design, folding, "Net", random_inputs(design, vectors), build)


def elaborated(made, folder):
    """(words, bits) of each `ram` that slang finds in the whole hierarchy, and the modules that they stand in."""
    made.write(folder)
    trees = [pyslang.syntax.SyntaxTree.fromFile(str(folder / path)) for path in made.files["files.f"].split()]
    compilation = pyslang.ast.Compilation()
    for tree in trees:
        compilation.addSyntaxTree(tree)
    sizes, modules = Counter(), Counter()

    def visit(symbol):
        if isinstance(symbol, pyslang.ast.InstanceSymbol):
            name, body = symbol.definition.name, symbol.body
            if name == "ram":
                numbers = {each: int(str(body.find(each).value)) for each in ("DEPTH", "DATA_WIDTH")}
                sizes[numbers["DEPTH"], numbers["DATA_WIDTH"]] += 1
            modules[name] += 1
        return pyslang.VisitAction.Advance if hasattr(pyslang, "VisitAction") else None

    compilation.getRoot().visit(visit)
    return sizes, modules


@pytest.mark.parametrize("name", DESIGNS)
def test_the_list_of_memories_is_that_of_the_hierarchy(tmp_path, name):
    made = emitted(name)
    listed = json.loads(made.files["rams.json"])
    sizes, modules = elaborated(made, tmp_path)
    assert sizes
    assert {(each["words"], each["bits"]): each["count"] for each in listed} == sizes
    assert {each["module"]: each["count"] for each in listed} == {
        module: count for module, count in modules.items() if module.startswith("ram_")
    }


@VERILATOR
@pytest.mark.parametrize("style", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("name", ["layers with an engine", "image"])
def test_every_integer_is_right(tmp_path, name, style):
    """In both styles, also with a reset in flight; Verilator and slang have nothing to say."""
    check(emitted(name, reset_style=style), tmp_path)


@VERILATOR
def test_a_soft_reset_on_a_bus_is_right_too(tmp_path):
    check(emitted("layers", bus="axi", reset_style="asynchronous"), tmp_path)


@pytest.mark.parametrize("name", ["layers with an engine", "image"])
def test_it_becomes_gates(tmp_path, name):
    """Yosys finds memories in the wrappers alone, and no latch; at the end only gates and flip-flops are left."""
    made = emitted(name, reset_style="asynchronous")
    made.write(tmp_path)
    read = f"read_verilog -sv -defer {' '.join(made.files['files.f'].split())}; hierarchy -check -top {made.name}"
    run(["yosys", "-q", "-p", f"{read}; proc; memory_collect; check -assert; write_json memories.json"], cwd=tmp_path)
    modules = json.loads((tmp_path / "memories.json").read_text())["modules"]
    holders = {
        each["attributes"].get("hdlname", module).split("\\")[-1]
        for module, each in modules.items()
        if any(cell["type"].startswith("$mem") for cell in each["cells"].values())
    }
    listed = {each["module"] for each in json.loads(made.files["rams.json"])}
    assert listed <= holders <= listed | {"register_file", "rom"}
    run(["yosys", "-q", "-p", f"{read}; synth -flatten -top {made.name}; write_json gates.json"], cwd=tmp_path)
    module = json.loads((tmp_path / "gates.json").read_text())["modules"][made.name]
    kinds = {cell["type"] for cell in module["cells"].values()}
    assert all(kind.startswith("$_") for kind in kinds)
    assert not {kind for kind in kinds if "LATCH" in kind or "ALDFF" in kind}
    reset = module["ports"]["rst"]["bits"]
    reads = {
        (cell["type"][:5], port)
        for cell in module["cells"].values()
        for port, bits in cell["connections"].items()
        if bits == reset
    }
    assert reads == {("$_DFF", "R")}, "something else than a flip-flop's reset, or a synchronous one"


def test_a_word_of_a_memory_is_a_constant_and_no_file_is_read(tmp_path):
    made = emitted("layers")
    assert not [path for path in made.files["files.f"].split() if "$readmemh" in made.files[path]]
    word = made.files["_0_weight.mem"].splitlines()[1]
    assert f"1: word = {4 * len(word)}'h{word};" in made.files["rtl/rom.sv"]


def test_openlane_is_told_the_sources_and_the_clock():
    made = emitted("image", reset_style="asynchronous", bus="axi")
    told = json.loads(made.files["config.json"])
    assert {path.removeprefix("dir::") for path in told["VERILOG_FILES"]} <= {*made.files}
    assert [path.removeprefix("dir::") for path in told["VERILOG_FILES"]] == made.files["files.f"].split()
    assert (told["DESIGN_NAME"], told["CLOCK_PORT"], told["CLOCK_PERIOD"], told["PDK"]) == (
        "net_copies_axi", "aclk", 20.0, "sky130A",
    )  # fmt: skip
    assert told["PNR_SDC_FILE"] == told["SIGNOFF_SDC_FILE"] == "dir::net_copies_axi.sdc"
    assert "create_clock -name aclk -period 20.000 [get_ports aclk]\n" in made.files["net_copies_axi.sdc"]
    assert "`aresetn` is asynchronous" in made.files["README.md"]


def test_a_project_adds_a_process_of_its_own():
    assert list_parts({"gf": {"process": "gf180mcuD", "clock": 25e6}})["gf"].process == "gf180mcuD"
    with pytest.raises(ValueError, match=r"parts\.gf\.process: expected a name, and no luts"):
        list_parts({"gf": {"process": "gf180mcuD", "clock": 25e6, "luts": 3}})


def test_a_reset_style_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="there is no reset style 'async'; there are synchronous, asynchronous"):
        Build(reset_style="async")
