"""The simulation that an emitted folder brings along: all its streams, driven from files and compared with files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from mase_server.components import rtl_folder
from mase_server.hardware.memories import hexadecimal, packed
from mase_server.hardware.wiring import Netlist, Tap

_WORD = 32
#: Verilator gives a vector of up to 64 bits another type than a longer one.
_LEAST = 96
_SOURCES = ("driver.cpp", "driver.h", "glue.cpp")


@dataclass(frozen=True, slots=True)
class Vectors:
    """What goes into each input and has to come out of each output: integers, [samples, elements] as they flow."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class _Port:
    kind: str
    name: str
    tap: Tap
    word: int
    bit: int


def bench_files(name: str, made: Netlist, vectors: Vectors) -> Mapping[str, str]:
    """The files under `sim/`: the driver, the module `bench` around the module `name`, the plan and the vectors."""
    files = {source: (rtl_folder() / "simulation" / source).read_text(encoding="utf-8") for source in _SOURCES}
    files["bench.sv"] = _bench(name, made)
    plan = []
    for port, values in zip(_ports(made), (*vectors.inputs, *vectors.outputs), strict=True):
        files[f"{port.name}.hex"] = hexadecimal(beats(values, port.tap), port.tap.width)
        plan.append(f"{port.kind} {port.name} {port.word} {port.tap.width} sim/{port.name}.hex\n")
    files["plan"] = "".join(plan)
    return files


def beats(values: Tensor, tap: Tap) -> list[int]:
    """The beats of some samples, row-major."""
    return packed(values.reshape(-1, tap.lanes), tap.bits)


def _ports(made: Netlist) -> Iterator[_Port]:
    for kind, taps in (("in", made.inputs), ("out", made.outputs)):
        word = 0
        for index, tap in enumerate(taps):
            yield _Port(kind, f"data_{kind}_{index}", tap, word, index)
            word += (tap.width + _WORD - 1) // _WORD


def _bench(name: str, made: Netlist) -> str:
    ports = list(_ports(made))
    connections = ["      .clk(clk)", "      .rst(rst)"]
    for port in ports:
        connections.append(f"      .{port.name}({port.kind}_data[{_WORD * port.word}+:{port.tap.width}])")
        connections += [f"      .{port.name}_{wire}({port.kind}_{wire}[{port.bit}])" for wire in ("valid", "ready")]
    listed = ",\n".join(connections)
    return f"""/// All streams of {name} side by side, as 32-bit words; made for simulation/driver.cpp.
module bench (
    input  logic clk,
    input  logic rst,
    input  logic [{_bits(ports, "in") - 1}:0] in_data,
    input  logic [{_flags(ports, "in") - 1}:0] in_valid,
    output logic [{_flags(ports, "in") - 1}:0] in_ready,
    output logic [{_bits(ports, "out") - 1}:0] out_data,
    output logic [{_flags(ports, "out") - 1}:0] out_valid,
    input  logic [{_flags(ports, "out") - 1}:0] out_ready
);
  {name} dut (
{listed}
  );
endmodule
"""


def _bits(ports: Sequence[_Port], kind: str) -> int:
    return max(_LEAST, sum((port.tap.width + _WORD - 1) // _WORD * _WORD for port in ports if port.kind == kind))


def _flags(ports: Sequence[_Port], kind: str) -> int:
    return max(_LEAST, sum(port.kind == kind for port in ports))
