"""Both styles of resets: registers with one and registers without share no block, and nothing else sees the reset."""

import json
import re

import pytest

from mase_server.building import RESET_STYLES
from mase_server.hardware.verilog import component_text, find_components
from tests.rtl.build import RTL, run

COMPONENTS = sorted(path.stem for path in RTL.glob("*.sv"))
#: Components of the shell: a soft reset is one of their signals.
SHELL = ("axi_reader", "axi_registers", "axi_stream")


def synthesised(name, folder, style):
    """The cells of a component, without those inside of others, as Yosys has them before it optimises."""
    sources = find_components(name)
    for path in sources:
        text = component_text(path, style)
        (folder / path.name).write_text(text)
        for memory in re.findall(r'"(\w+\.mem)"', text):
            (folder / memory).write_text("0\n" * 4)
    read = f"read_verilog -sv -defer {' '.join(path.name for path in sources)}; hierarchy -check -top {name}"
    run(["yosys", "-q", "-p", f"{read}; proc; check -assert; write_json netlist.json"], cwd=folder)
    module = json.loads((folder / "netlist.json").read_text())["modules"][name]
    resets = {bit for port, each in module["ports"].items() if port in ("rst", "aresetn") for bit in each["bits"]}
    return list(module["cells"].values()), resets


def readers(cells, resets):
    """The types and ports of cells that read the reset."""
    return {(cell["type"], port) for cell in cells for port, bits in cell["connections"].items() if resets & {*bits}}


@pytest.mark.parametrize("name", COMPONENTS)
def test_only_the_resets_of_registers_read_an_asynchronous_one(tmp_path, name):
    """Of a reset in the block of a register without one synthesis makes an enable, of a value that varies a latch."""
    cells, resets = synthesised(name, tmp_path, "asynchronous")
    types = {cell["type"] for cell in cells}
    assert not types & {"$aldff", "$aldffe", "$dffsr", "$dffsre", "$dlatch", "$adlatch", "$sr"}
    inside = {port for _, port in readers(cells, resets)} - {"rst", "aresetn"}
    assert inside <= {"ARST"} or name in SHELL


@pytest.mark.parametrize("name", COMPONENTS)
def test_no_asynchronous_reset_is_in_the_components(tmp_path, name):
    cells, _ = synthesised(name, tmp_path, RESET_STYLES[0])
    assert not [cell["type"] for cell in cells if "ARST" in cell["connections"]]


def test_a_register_without_reset_in_a_block_with_one_is_seen(tmp_path):
    mixed = tmp_path / "mixed.sv"
    mixed.write_text(
        "module mixed (input logic clk, rst, d, output logic a, b);\n"
        "  always_ff @(posedge clk) begin\n    if (rst) a <= 1'b0;\n    else a <= d;\n    b <= a;\n  end\nendmodule\n"
    )
    (tmp_path / "asynchronous.sv").write_text(component_text(mixed, "asynchronous"))
    with pytest.raises(AssertionError, match=r"[Aa]sync"):
        run(["yosys", "-q", "-p", "read_verilog -sv asynchronous.sv; proc; check -assert"], cwd=tmp_path)
