"""The clock of emitted designs and of single components after place and route, for an ECP5-85k of speed grade 6.

Yosys makes cells of the SystemVerilog, nextpnr-ecp5 places and routes them without pins, once for each seed; the figure
is the median. Multipliers have registers of their own (`fixed_product`); nextpnr counts no time between these, which is
less than the 3.9 ns of a multiplier without them. Registers that stand bare behind a block memory become its own second
ones, as in vendors' tools; Yosys does not do that, and `--bare` tells the clock without. A component has the sizes that
its parameters have by default, or those of COMPONENT:SERIAL=1,LSTM=1, and stands between registers: the paths from its
inputs and to its outputs count. `--path` tells the cells of the first seed's longest path.

Usage: python benchmarks/clock.py [mlp digits lenet encoder resnet8 | COMPONENT[:NAME=NUMBER,...] ... | components]
           [--seeds N ...]

NEXTPNR names the program; without it `nextpnr-ecp5` is looked for. `make fmax` installs one and measures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from estimates import lower
from rich.console import Console
from rich.table import Table

from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.verilog import find_components, rtl_folder
from mase_server.programs import find_program

#: What the clock is aimed at; a goal above what can be reached makes the router try harder.
GOAL_MHZ = 150
#: Networks of estimates.py, and the multipliers that they are measured with.
DESIGNS: Mapping[str, int] = {"mlp": 52, "digits": 60, "lenet": 60, "encoder": 100, "resnet8": 64}
CELLS = {"TRELLIS_COMB": "tables", "TRELLIS_FF": "registers", "MULT18X18D": "MULT18", "DP16KD": "memories"}


@dataclass(frozen=True, slots=True)
class Routed:
    """One netlist after place and route: the clock in MHz, cells by kind, the longest path."""

    clock: float
    cells: Mapping[str, int]
    path: Sequence[str]


def run(command: Sequence[str], folder: Path) -> str:
    """Run a program in a folder; SystemExit with what it wrote if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def write_design(name: str, folder: Path) -> str:
    """Emit a network's hardware into a folder: the name of its top module."""
    design = lower(name)
    emit_folder(design, fold_design(design, multipliers=DESIGNS[name]), name, random_inputs(design, 1)).write(folder)
    return name


def write_component(name: str, folder: Path) -> str:
    """A component between registers, in a folder: the name of its top module. name: maybe with `:NAME=NUMBER,...`."""
    name, _, given = name.partition(":")
    files = find_components(name)
    (folder / "files.f").write_text("\n".join(map(str, files)) + "\n")
    for memory in re.findall(r'"(\w+\.mem)"', "".join(path.read_text() for path in files)):
        (folder / memory).write_text("".join(f"{number:x}\n" for number in range(4)))
    chosen = ", ".join(f".{each.replace('=', '(')})" for each in given.split(",") if each)
    (folder / "alone.sv").write_text(f"module alone; {name} #({chosen}) inside (); endmodule\n")
    read = f"read_verilog -sv -defer {' '.join(map(str, files))} alone.sv; hierarchy -top alone; proc"
    run([tool("YOSYS", "yosys"), "-q", "-p", f"{read}; write_json ports.json"], folder)
    modules = json.loads((folder / "ports.json").read_text())["modules"]
    made = re.compile(rf"(\$paramod(\$\w+)?\\)?{name}(\\.*)?")
    ports = next(each for key, each in modules.items() if made.fullmatch(key))["ports"]
    widths = {port: len(each["bits"]) for port, each in ports.items()}
    heads = [f"{each['direction']} logic [{widths[port] - 1}:0] {port}" for port, each in ports.items()]
    lines, wired = [f"module between ({', '.join(heads)});"], ["clk"]
    for port, each in ports.items():
        if port == "clk":
            continue
        ends = (f"{port}_r", port) if each["direction"] == "input" else (port, f"{port}_r")
        lines.append(f"logic [{widths[port] - 1}:0] {port}_r;")
        lines.append(f"always_ff @(posedge clk) {ends[0]} <= {ends[1]};")
        wired.append(f"{port}({port}_r)")
    lines += [f"{name} #({chosen}) inside ({', '.join(f'.{each}' for each in wired)});", "endmodule"]
    (folder / "between.sv").write_text("\n".join(lines) + "\n")
    with (folder / "files.f").open("a") as more:
        more.write("between.sv\n")
    return "between"


def tool(variable: str, name: str) -> str:
    """The path of a program; SystemExit if it is missing."""
    found = find_program(os.environ.get(variable, name))
    if found is None:
        raise SystemExit(f"{name} is not installed; `make fmax` installs what is needed, {variable} names another one")
    return found


def use_memory_registers(module: dict[str, Any]) -> int:
    """Let block memories take the registers behind them in: the number of those that did.

    module: one of Yosys's JSON, changed in place.  All bits that are read of a memory must go to registers alone,
    without reset, of the memory's clock and one common enable.
    """
    cells: dict[str, Any] = module["cells"]
    readers: dict[Any, list[str]] = {}
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"].get(port) != "output":
                for bit in bits:
                    readers.setdefault(bit, []).append(name)
    for port in module["ports"].values():
        for bit in port["bits"]:
            readers.setdefault(bit, []).append("")
    taken = 0
    for memory in [each for each in cells.values() if each["type"] == "DP16KD"]:
        wires = memory["connections"]
        outs = {port: bits[0] for port, bits in wires.items() if port.startswith("DO") and readers.get(bits[0])}
        behind = {port: name for port, bit in outs.items() for name in readers[bit]}
        if any(len(readers[bit]) > 1 for bit in outs.values()) or not all(map(cells.get, behind.values())):
            continue
        registers = {port: cells[name] for port, name in behind.items()}
        # A word of 36 bits comes out of both sides, with the clock of the second.
        is_wide = int(memory["parameters"]["DATA_WIDTH_B"], 2) == 36
        if not all(
            _is_bare(each, outs[port], wires[f"CLK{'B' if is_wide else port[2]}"]) for port, each in registers.items()
        ):
            continue
        enables = {_enable(each) for each in registers.values()}
        if len(enables) != 1:
            continue
        for port, register in registers.items():
            wires[port] = register["connections"]["Q"]
            del cells[behind[port]]
        for side in {port[2] for port in outs}:
            memory["parameters"][f"REGMODE_{side}"] = "OUTREG"
            wires[f"OCE{side}"] = list(enables)
        taken += 1
    return taken


def _enable(register: Mapping[str, Any]) -> Any:
    return register["connections"]["CE"][0] if register["parameters"]["CEMUX"] == "CE" else "1"


def _is_bare(register: Mapping[str, Any], bit: Any, clock: Sequence[Any]) -> bool:
    """Does a cell only keep a bit?"""
    kept = all(
        register["connections"].get(port, ["0"]) == bits
        for port, bits in (("DI", [bit]), ("CLK", clock), ("LSR", ["0"]))
    )
    return register["type"] == "TRELLIS_FF" and kept and "INV" not in register["parameters"].values()


def place(folder: Path, top: str, seed: int, bare: bool = False) -> Routed:
    """Place and route what Yosys makes of a folder, once. bare: leave the registers behind memories where they are."""
    if not (folder / "cells.json").exists():
        files = " ".join((folder / "files.f").read_text().split())
        steps = f"read_verilog -sv -defer -D ECP5 {files}; synth_ecp5 -top {top} -json cells.json"
        run([tool("YOSYS", "yosys"), "-q", "-p", steps], folder)
        made = json.loads((folder / "cells.json").read_text())
        if not bare and use_memory_registers(made["modules"][top]):
            (folder / "cells.json").write_text(json.dumps(made))
    command = [tool("NEXTPNR", "nextpnr-ecp5"), "--85k", "--package", "CABGA756", "--speed", "6", "--out-of-context"]
    command += ["--json", "cells.json", "--freq", f"{GOAL_MHZ}", "--timing-allow-fail", "--seed", f"{seed}"]
    run([*command, "-q", "--report", "report.json"], folder)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    clock = min(each["achieved"] for each in report["fmax"].values()) if report["fmax"] else float("inf")
    cells = {word: report["utilization"].get(cell, {}).get("used", 0) for cell, word in CELLS.items()}
    steps = [each for path in report["critical_paths"][:1] for each in path["path"] if each["delay"] > 0]
    path = [f"{each['delay']:5.2f} ns  {each['type']:8}  {each['to']['cell']}" for each in steps]
    return Routed(clock, cells, path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["mlp", "digits", "encoder"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--path", action="store_true", help="tell the longest path")
    parser.add_argument("--bare", action="store_true", help="leave the second registers of block memories unused")
    options = parser.parse_args()
    names = [each for name in options.names for each in (components() if name == "components" else [name])]
    title = f"ECP5-85k, speed grade 6, median of {len(options.seeds)} seeds"
    table = Table("design", "MHz", "lowest", "highest", *CELLS.values(), title=title)
    console = Console()
    for name in names:
        with tempfile.TemporaryDirectory() as place_:
            folder = Path(place_)
            top = (write_design if name in DESIGNS else write_component)(name, folder)
            found = [place(folder, top, seed, options.bare) for seed in options.seeds]
        clocks = [each.clock for each in found]
        shown = [f"{figure:.0f}" for figure in (median(clocks), min(clocks), max(clocks))]
        table.add_row(name, *shown, *(f"{number:,}" for number in found[0].cells.values()))
        console.print(f"{name}: {shown[0]} MHz")
        if options.path:
            console.print("\n".join(found[0].path), highlight=False)
    console.print(table)


def components() -> list[str]:
    """The names of all components."""
    return sorted(path.stem for path in rtl_folder().glob("*.sv"))


if __name__ == "__main__":
    main()
