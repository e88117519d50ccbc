"""Several copies of a design beside each other, which take samples in turn: where one alone cannot use the budget.

Each copy has room for a sample before it and behind it, so that none waits for another one's turn. The streams around
all of them carry as many elements a beat as keep up.
"""

from __future__ import annotations

from dataclasses import replace

from mase_server.hardware.design import Design, Folding, Operation, find_divisors
from mase_server.hardware.netlist import build_netlist
from mase_server.hardware.verilog import Instance, Netlist, Tap, name_tap, stream_ports

#: What the name of the module around the copies adds to that of the top module.
COPIES_SUFFIX = "_copies"


def join_netlists(design: Design, folding: Folding, one: Netlist | None = None) -> Netlist:
    """The netlist with the instances of all copies, for estimates: `one` itself if there is one copy.

    one: the netlist of a copy, if it exists already.
    """
    one = build_netlist(design, folding) if one is None else one
    if folding.copies == 1:
        return one
    made = surround_copies(design, folding, one, "")
    names = {
        f"{copy}_data_out_{index}{end}": f"{copy}_{wire}"
        for copy in map(copy_name, range(folding.copies))
        for index, tap in enumerate(one.outputs)
        for end, wire in (("", tap.data), ("_valid", tap.valid), ("_ready", tap.ready))
    }
    around = [each for each in made.instances if each.module]
    made.instances = [
        replace(each, ports={port: names.get(wire, wire) for port, wire in each.ports.items()}) for each in around
    ]
    for copy in map(copy_name, range(folding.copies)):
        made.instances += instances_of_copy(one, copy)
        made.dropped += [replace(each, valid=f"{copy}_{each.valid}") for each in one.dropped]
    made.memories = one.memories
    return made


def copy_name(copy: int) -> str:
    """The start of the names of a copy's wires."""
    return f"copy_{copy}"


def instances_of_copy(one: Netlist, copy: str) -> list[Instance]:
    """The instances of a copy among those of all. copy: its name."""
    return [
        replace(each, name=f"{copy}_{each.name}", ports={port: f"{copy}_{wire}" for port, wire in each.ports.items()})
        for each in one.instances
    ]


def surround_copies(design: Design, folding: Folding, one: Netlist, module: str) -> Netlist:
    """The top module around the copies. one: the netlist of a copy.  module: the name of its module."""
    around = _Around(folding)
    results = [design.operations[name] for name in design.outputs]
    ends = (("in", one.inputs), ("out", one.outputs))
    names = [f"data_{way}_{index}" for way, taps in ends for index in range(len(taps))]
    for index, (operation, tap) in enumerate(zip(design.inputs, one.inputs, strict=True)):
        around.add_input(f"data_in_{index}", operation, tap)
    for copy in map(copy_name, range(folding.copies)):
        ports = {f"{name}{end}": f"{copy}_{name}{end}" for name in names for end in ("", "_valid", "_ready")}
        around.made.add_instance(f"{copy}_i", module, {}, ports)
    for index, (operation, tap) in enumerate(zip(results, one.outputs, strict=True)):
        around.add_output(f"data_out_{index}", operation, tap)
    return around.made


class _Around:
    """The top module around the copies, in the making."""

    def __init__(self, folding: Folding) -> None:
        self.copies, self.interval, self.made = folding.copies, folding.interval, Netlist()

    def add_input(self, name: str, operation: Operation, tap: Tap) -> None:
        """An input, whose samples the copies take in turn. tap: that of a copy."""
        wide, beats = self._widened(operation, tap)
        port, turns = name_tap(name, wide, tap.bits), f"{name}_turns"
        self.made.inputs.append(port)
        self.made.handshakes.append((turns, self.copies))
        ports = {"data_in_0_valid": port.valid, "data_in_0_ready": port.ready}
        ports |= {"data_out_0_valid": f"{turns}_valid", "data_out_0_ready": f"{turns}_ready"}
        parameters = {"COUNT": self.copies, "BEATS": beats}
        self.made.add_instance(f"{turns}_i", "round_robin_split", parameters, ports, operation.name)
        for number, copy in enumerate(map(copy_name, range(self.copies))):
            source = Tap(name, f"{turns}_valid[{number}]", f"{turns}_ready[{number}]", wide, tap.bits)
            to = self.made.add_wires(f"{copy}_{name}", tap.lanes, tap.bits)
            between = to if wide == tap.lanes else self.made.add_wires(f"{copy}_{name}_wide", wide, tap.bits)
            self._store(f"{copy}_{name}", source, between, beats, operation)
            if between is not to:
                self.made.add_converter(f"{copy}_{name}_width_i", between, to, operation.name)

    def add_output(self, name: str, operation: Operation, tap: Tap) -> None:
        """An output, to which the copies give their samples in turn. tap: that of a copy."""
        wide, beats = self._widened(operation, tap)
        turns, width = f"{name}_turns", wide * tap.bits
        self.made.handshakes.append((turns, self.copies))
        self.made.vectors.append((turns, self.copies * width))
        for number, copy in enumerate(map(copy_name, range(self.copies))):
            source = self.made.add_wires(f"{copy}_{name}", tap.lanes, tap.bits)
            between = source if wide == tap.lanes else self.made.add_wires(f"{copy}_{name}_wide", wide, tap.bits)
            if between is not source:
                self.made.add_converter(f"{copy}_{name}_width_i", source, between, operation.name)
            part = f"{turns}[{number * width}+:{width}]"
            to = Tap(part, f"{turns}_valid[{number}]", f"{turns}_ready[{number}]", wide, tap.bits)
            self._store(f"{copy}_{name}", between, to, beats, operation)
        merged = self.made.add_wires(f"{name}_merged", wide, tap.bits)
        ports = stream_ports(name_tap(turns, wide, tap.bits), merged)
        parameters = {"DATA_WIDTH": width, "COUNT": self.copies, "BEATS": beats}
        self.made.add_instance(f"{turns}_i", "round_robin_merge", parameters, ports, operation.name)
        self.made.outputs.append(merged)

    def _widened(self, operation: Operation, tap: Tap) -> tuple[int, int]:
        """The elements of a beat around the copies, and the beats of a sample: as few elements as keep up."""
        beats = operation.out.size // tap.lanes
        times = next(each for each in find_divisors(beats) if beats // each <= max(1, self.interval))
        return tap.lanes * times, beats // times

    def _store(self, name: str, source: Tap, to: Tap, beats: int, operation: Operation) -> None:
        """A sample waits for its copy, or for its turn."""
        parameters = {"DATA_WIDTH": source.width, "DEPTH": max(_LEAST, beats)}
        self.made.add_instance(f"{name}_fifo_i", "fifo", parameters, stream_ports(source, to), operation.name)


#: Beats of a buffer that takes and gives one in each cycle.
_LEAST = 2
