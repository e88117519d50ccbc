"""The simulation that an emitted folder brings along: all its streams, driven from files and compared with files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from mase_server.components import rtl_folder
from mase_server.hardware.design import Design, Stream
from mase_server.hardware.folding import Folding
from mase_server.hardware.memories import hexadecimal, packed
from mase_server.hardware.wiring import Netlist, Tap

_WORD = 32
#: Verilator gives a vector of up to 64 bits another type than a longer one.
_LEAST = 96
_SOURCES = ("driver.cpp", "driver.h", "glue.cpp")
_COCOTB = "cocotb_bench.py"
#: Cycles without a beat that are nothing strange in any design.
_PATIENCE = 100_000


@dataclass(frozen=True, slots=True)
class _Port:
    """A stream of the top module. word, bit: where the bench has its data and its handshake."""

    kind: str
    name: str
    tap: Tap
    stream: Stream
    word: int
    bit: int

    @property
    def plan(self) -> str:
        """What the driver has to know."""
        beats = self.stream.size // self.tap.lanes
        return f"{self.kind} {self.name} {self.word} {self.tap.width} sim/{self.name}.hex {beats}\n"

    @property
    def about(self) -> Mapping[str, object]:
        """What makes values of beats. order: as `Stream.order`."""
        format, order = self.stream.format, self.stream.order
        return {
            "kind": self.kind,
            "lanes": self.tap.lanes,
            "width": format.width,
            "fraction_width": format.fraction_width,
            "shape": list(self.stream.shape),
            "order": None if order is None else order.tolist(),
        }


def bench_files(
    name: str, made: Netlist, design: Design, folding: Folding, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Mapping[str, str]:
    """The files under `sim/`: the driver, the module `bench` around the module `name`, the plan and the vectors.

    inputs, outputs: integers that go into each input and have to come out of each output, [samples, ...].
    """
    files = {source: _source(source) for source in _SOURCES} | {f"test_{name}.py": _source(_COCOTB)}
    ports = list(_ports(made, design))
    files["bench.sv"] = _bench(name, ports)
    for port, values in zip(ports, (*inputs, *outputs), strict=True):
        files[f"{port.name}.hex"] = hexadecimal(beats(port.stream.flowing(values), port.tap), port.tap.width)
    patience = _PATIENCE + 2 * sum(fold.cycles for fold in folding.folds.values())
    files["plan"] = f"patience {patience}\n" + "".join(port.plan for port in ports)
    files["streams.json"] = _listed({port.name: port.about for port in ports})
    return files


def _source(name: str) -> str:
    return (rtl_folder() / "simulation" / name).read_text(encoding="utf-8")


def _listed(entries: Mapping[str, object]) -> str:
    """JSON with a line for each entry."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()) + "\n}\n"


def beats(values: Tensor, tap: Tap) -> list[int]:
    """The beats of some samples, as they flow."""
    return packed(values.reshape(-1, tap.lanes), tap.bits)


def _ports(made: Netlist, design: Design) -> Iterator[_Port]:
    results = (design.operations[name] for name in design.outputs)
    for kind, taps, operations in (("in", made.inputs, design.inputs), ("out", made.outputs, tuple(results))):
        word = 0
        for index, (tap, operation) in enumerate(zip(taps, operations, strict=True)):
            yield _Port(kind, f"data_{kind}_{index}", tap, operation.out, word, index)
            word += (tap.width + _WORD - 1) // _WORD


def _bench(name: str, ports: Sequence[_Port]) -> str:
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
