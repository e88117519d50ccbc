"""Files for a chip of one's own: its memories as modules and constants, its constraints, OpenLane's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from string import Template
from textwrap import indent

from mase_server.building import Part, rtl_folder
from mase_server.hardware.attaching import make_row, read_template
from mase_server.hardware.estimates import Ram
from mase_server.hardware.memories import words_to_hexadecimal
from mase_server.hardware.verilog import Memory

#: The share of a period that inputs take outside before they come, and outputs after they left.
_OUTSIDE = 0.2
#: Nanoseconds by which an edge of the clock may come too early.
_UNCERTAINTY = 0.25


def ram_texts(rams: Sequence[Ram]) -> dict[str, str]:
    """A `ram` that chooses a module by its size, and the module of each size, by their paths in the folder.

    A size that is not listed stands in registers.
    """
    chosen = "".join(
        f"""if (DEPTH == {ram.words} && DATA_WIDTH == {ram.bits}) begin : g_{ram.words}x{ram.bits}
    {ram.module} memory (
        .clk,
        .write,
        .write_address,
        .write_data,
        .read,
        .read_address,
        .read_data
    );
  end else """
        for ram in rams
    )
    found = {_path_of_ram(ram): Template(read_template("ram.txt")).substitute(_widths(ram)) for ram in rams}
    head, body = _divide_component("ram")
    choice = f"  {chosen}begin : g_registers\n{indent(body, '  ')}  end\n"
    return {"rtl/ram.sv": f"{head}{choice}endmodule\n", **found}


def _path_of_ram(ram: Ram) -> str:
    return f"rams/{ram.module}.sv"


def _widths(ram: Ram) -> dict[str, object]:
    address = max(1, (ram.words - 1).bit_length())
    return {"module": ram.module, "words": ram.words, "bits": ram.bits, "data": ram.bits - 1, "address": address - 1}


def rom_text(memories: Sequence[Memory]) -> str:
    """A `rom` that holds the words of every file as constants: synthesisers of chips do not look at `initial`."""
    head = _divide_component("rom")[0].replace("($readmemh: one word a line, hexadecimal)", "as constants")
    # Texts of different lengths have different widths.
    bits = 8 * max(len(memory.file) for memory in memories)
    chosen = "".join(
        f"""if ({bits}'(FILE) == {bits}'("{memory.file}")) begin : g_{number}
    always_comb begin
      case (32'(address))
{"".join(_cases(memory))}        default: word = '0;
      endcase
    end
  end else """
        for number, memory in enumerate(memories)
    )
    return f"""{head}  logic [DATA_WIDTH-1:0] word;

  {chosen}begin : g_unknown
    $error("rom: this design has no words for a file of this name");
  end

  logic [DATA_WIDTH-1:0] line;
  always_ff @(posedge clk) if (enable) line <= word;
  if (REGISTERED) begin : g_register
    always_ff @(posedge clk) if (enable) data <= line;
  end else begin : g_wire
    assign data = line;
  end
endmodule
"""


def _cases(memory: Memory) -> Iterator[str]:
    """A line for each word but zero."""
    for address, word in enumerate(words_to_hexadecimal(memory.words, memory.width).split()):
        if word.strip("0"):
            yield f"        {address}: word = {memory.width}'h{word};\n"


def _divide_component(name: str) -> tuple[str, str]:
    """The text of a component up to its ports, and its body."""
    text = (rtl_folder() / f"{name}.sv").read_text(encoding="utf-8")
    head, body = text.removesuffix("endmodule\n").split(");\n", 1)
    return f"{head});\n", body


def flow_texts(top: str, part: Part, clock: str, sources: Sequence[str], rams: Sequence[Ram]) -> dict[str, str]:
    """The configuration of OpenLane, constraints, and the list of the memories. sources: paths in the folder."""
    period = round(1e9 / part.clock, 3)
    constraints = f"dir::{top}.sdc"
    config = {
        "meta": {"version": 2, "flow": "Classic"},
        "DESIGN_NAME": top,
        "PDK": part.process,
        "VERILOG_FILES": [f"dir::{path}" for path in sources],
        "CLOCK_PORT": clock,
        "CLOCK_PERIOD": period,
        "PNR_SDC_FILE": constraints,
        "SIGNOFF_SDC_FILE": constraints,
    }
    listed = [
        {"module": ram.module, "file": _path_of_ram(ram), "words": ram.words, "bits": ram.bits, "count": ram.count}
        for ram in rams
    ]
    return {
        "config.json": json.dumps(config, indent=2) + "\n",
        "rams.json": json.dumps(listed, indent=2) + "\n",
        f"{top}.sdc": f"""# The clock that estimates for {part.name} are made at; pads belong to the chip around.
create_clock -name {clock} -period {period:.3f} [get_ports {clock}]
set_clock_uncertainty {_UNCERTAINTY} [get_clocks {clock}]
set_input_delay {_OUTSIDE * period:.3f} -clock {clock} [all_inputs -no_clocks]
set_output_delay {_OUTSIDE * period:.3f} -clock {clock} [all_outputs]
""",
    }


def chip_page(part: Part, rams: Sequence[Ram]) -> str:
    """The part of the README about the chip."""
    sizes = [(ram, (ram.words, ram.bits, ram.words * ram.bits, ram.count)) for ram in rams]
    rows = [make_row(f"`{_path_of_ram(ram)}`", *(f"{number:,}" for number in numbers)) for ram, numbers in sizes]
    return Template(read_template("CHIP.md")).substitute(
        title=part.title, process=part.process, rows="\n".join(rows), clock=f"{part.clock / 1e6:g}"
    )
