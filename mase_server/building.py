"""The hardware contract: parameters of an emission, results of emission and simulation, the folder of components.

The compiler half emits (`Build` in, a map of EMISSION_KEYS out); the server, the editor and the command line show it.
Standard library only, because both halves load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from mase_server.paths import find_data_folder
from mase_server.protocol.records import (
    Accuracy,
    BuildRecord,
    EmissionRecord,
    Estimate,
    Operation,
    PartRecord,
    SimulationRecord,
    Totals,
    key_meanings,
)
from mase_server.suggestions import suggest


@dataclass(frozen=True, slots=True)
class Part:
    """A chip, or what of it may be used. luts, multipliers, memory_bits: its tables, multipliers and bits of block
    memory.  bandwidth: bytes a second to the memory beside it.  clock: cycles a second that designs are estimated at.
    process: that of a chip of one's own, as OpenLane calls it; it then limits nothing.  "" for a part that is bought.
    """

    name: str
    title: str
    luts: int
    multipliers: int
    memory_bits: int
    bandwidth: float
    clock: float
    source: str = ""
    process: str = ""

    def to_wire(self) -> PartRecord:
        """As a map of plain values, under the names of the fields."""
        return {
            "name": self.name,
            "title": self.title,
            "luts": self.luts,
            "multipliers": self.multipliers,
            "memory_bits": self.memory_bits,
            "bandwidth": self.bandwidth,
            "clock": self.clock,
            "source": self.source,
            "process": self.process,
        }


#: Each `bus` of a build, and the least bits of a beat on it.
BUSES: Mapping[str, int] = {"": 0, "axi": 32, "axi32": 32, "axi64": 64, "axi128": 128, "axi256": 256, "axi512": 512}

#: What the name of the shell on a bus adds to that of the top module.
SHELL_SUFFIX = "_axi"

#: Each `reset_style` of a build: registers see the reset at an edge of the clock, or at once.
RESET_STYLES = ("synchronous", "asynchronous")


@dataclass(frozen=True, slots=True)
class Build:
    """Parameters of an emission.

    precision: the format of a graph that no pass has quantised.  data: what calibrates formats with `auto`: a file of
    tensors or a function that gives batches; "" for what a `# mase: data` comment names, else the file's own inputs,
    else random ones.  multipliers: a maximum, with 0 linear layers are additions; None for none.  interval: the maximum
    cycles from one sample to the next; None for the shortest within the budget; without both, each layer has one
    multiplier.  copies: a maximum of designs beside each other, which take samples in turn; None for as many as use the
    budget.  scope: a module's path or a node's name, to build only that; "" for the whole model.  max_multipliers,
    max_memory_bits: a larger design is not emitted, only estimated.  target: the name of the part that it has to fit,
    "" for any; part: that part.  bus: one of BUSES, for a shell of AXI4-Streams and registers around the top module; ""
    for none.  weights: one of BUSES, for the port of a memory outside that weights are read from: with a target those
    that it has no memory for, else all that can; "" for none.  reset_style: one of RESET_STYLES.
    """

    precision: str = "fixed(8,auto)"
    data: str = ""
    multipliers: int | None = None
    interval: int | None = None
    copies: int | None = None
    scope: str = ""
    max_multipliers: int = 8192
    max_memory_bits: int = 1 << 28
    target: str = ""
    part: Part | None = None
    bus: str = ""
    weights: str = ""
    reset_style: str = RESET_STYLES[0]

    def __post_init__(self) -> None:
        for name in ("precision", "data", "scope", "target", "bus", "weights", "reset_style"):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name} is {value!r}; it takes a text")
        for name in ("multipliers", "interval", "copies", "max_multipliers", "max_memory_bits"):
            value = getattr(self, name)
            least = 0 if name == "multipliers" else 1
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ValueError(f"{name} is {value!r}; it takes a whole number from {least}")
        if self.target != (self.part.name if self.part else ""):
            raise ValueError(f"the part {self.target!r} is not known here")
        for bus in (self.bus, self.weights):
            if bus not in BUSES:
                raise ValueError(f"there is no bus {bus!r}{suggest(bus, [each for each in BUSES if each])}")
        if self.reset_style not in RESET_STYLES:
            raise ValueError(f"there is no reset style {self.reset_style!r}{suggest(self.reset_style, RESET_STYLES)}")

    @property
    def limits(self) -> Part | None:
        """The part, if it limits the design."""
        return None if self.part is None or self.part.process else self.part

    def to_wire(self) -> BuildRecord:
        """As a map of plain values, under the names of the fields."""
        return {
            "precision": self.precision,
            "data": self.data,
            "multipliers": self.multipliers,
            "interval": self.interval,
            "copies": self.copies,
            "scope": self.scope,
            "max_multipliers": self.max_multipliers,
            "max_memory_bits": self.max_memory_bits,
            "target": self.target,
            "part": self.part.to_wire() if self.part else None,
            "bus": self.bus,
            "weights": self.weights,
            "reset_style": self.reset_style,
        }

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Build:
        """The inverse of `to_wire`, with defaults for missing keys. ValueError for an unknown key or a bad value."""
        known = sorted(each.name for each in fields(cls) if each.name != "part")
        if unknown := sorted(set(data) - {*known, "part"}):
            raise ValueError(f"a build has no {', '.join(unknown)}{suggest(unknown[0], known, 'it has')}")
        part = data.get("part")
        if part is not None and not (isinstance(part, Mapping) and {*part} == {each.name for each in fields(Part)}):
            raise ValueError(f"part is {part!r}; it takes the figures of one")
        return replace(cls(), **{**data, "part": part and Part(**part)})


#: What is told of hardware: the value of the trace child's method "verilog", and of `mase/emitVerilog`.
EMISSION_KEYS = key_meanings(EmissionRecord)

#: What hardware loses. calibrated: on what the formats that were left open were chosen, in words; None where none was.
#: inputs: on what the rest was measured.  sqnr: of what the hardware gives beside the model's own outputs, in dB, "inf"
#: where nothing differs.  saturated: the share of the rounded values that their formats do not hold, 0 to 1.  None each
#: where it is not known; problem says why, in words.
ACCURACY_KEYS = tuple(Accuracy.__annotations__)

#: Of one operation of the design. `rows`: indices into the payload's table of nodes.  `lines`: [first, last] in `text`.
OPERATION_KEYS = key_meanings(Operation)

#: Estimates of one operation before synthesis. cycles: from one sample to the next.  latency: from an operand's first
#: beat to its own first beat; 0 if unknown, as in designs with too many beats to follow each.  luts: four-input tables.
#: memory_bits: weights, buffers and tables.  reads: cycles of a sample in which its weights are read from outside.
#: waits: does it wait for them?
ESTIMATE_KEYS = tuple(Estimate.__annotations__)

#: Estimates of the whole. interval: cycles per sample.  latency: from a sample's first beat to its result's last.
#: bottlenecks: the names of the slowest operations.  reads: cycles of a sample in which weights are read from outside.
#: waiting: the names of those that wait for them.  With a target only: clock, the cycles a second, and samples, those
#: a second.  Of several copies, which take samples in turn: copies, their number.
TOTAL_KEYS = tuple(Totals.__annotations__)


def is_whole(told: Mapping[str, Any]) -> bool:
    """Does the emission cover everything requested? told: a map of EMISSION_KEYS."""
    return not told["refusal"] and not told["unsupported"]


#: What a simulation says: the value of `mase/simulate`, and of `mase-server verilog --simulate N --format json`.
#: status: "equal" | "different" | "stood still" | "failed".  first: where the first mismatch is, or None.
SIMULATION_KEYS = key_meanings(SimulationRecord)


# The folder of the SystemVerilog components.


@cache
def rtl_folder() -> Path:
    """The folder of the components. FileNotFoundError if it was not installed."""
    return find_data_folder("rtl", "rtl", "fixed_cast.sv")
