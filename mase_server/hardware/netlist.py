"""From a design and its folding to instances and wires."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from mase_server.hardware import pace
from mase_server.hardware.buffers import Ways, depths
from mase_server.hardware.design import Design, Operation
from mase_server.hardware.faults import made
from mase_server.hardware.folding import Folding
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.wiring import Instance, Memory, Netlist, Parameters, Tap, Wires, streams

#: Beats that may wait beyond those that must: the longer way takes time too.
_SLACK = 16


def netlist(design: Design, folding: Folding) -> Netlist:
    """The instances of every operation, width converters between foldings that differ, forks where a value has several
    users."""
    return Builder(design, folding).run()


class Builder:
    """A netlist in the making, as kinds see it."""

    def __init__(self, design: Design, folding: Folding) -> None:
        self.design, self.folding = design, folding
        self.made = Netlist()
        ways = Ways(design)
        timed = pace.waiting(design, folding, ways)
        self.depths = {place: max(fewest, timed.get(place, 0)) for place, fewest in depths(design, ways).items()}
        #: operation -> one tap for each of its users, in their order.
        self.taps: dict[str, list[Tap]] = {}

    def run(self) -> Netlist:
        """All operations, in the order of the data."""
        for operation in self.design.operations.values():
            with made(operation):
                tap = KINDS[operation.kind].build(self, operation)
            readers = len(self.design.users(operation.name)) + self.design.outputs.count(operation.name)
            self.taps[operation.name] = [tap] if readers < 2 else self._forked(operation, tap, readers)
        self.made.outputs += [self.taps[name].pop(0) for name in self.design.outputs]
        return self.made

    def _forked(self, operation: Operation, tap: Tap, count: int) -> list[Tap]:
        name = f"{operation.name}_fork"
        self.made.handshakes.append((name, count))
        ports = {
            "data_in_0_valid": tap.valid,
            "data_in_0_ready": tap.ready,
            "data_out_0_valid": f"{name}_valid",
            "data_out_0_ready": f"{name}_ready",
        }
        self.instance(f"{name}_i", "stream_fork", {"COUNT": count}, ports, operation.name)
        each = ((f"{name}_valid[{index}]", f"{name}_ready[{index}]") for index in range(count))
        return [Tap(tap.data, valid, ready, tap.lanes, tap.bits) for valid, ready in each]

    # What kinds use

    def lanes_wanted(self, operation: Operation) -> int:
        """Elements per beat that the first reader of an operation wants, where its own pace is nobody's matter; no more
        than make up a sample."""
        for user in self.design.users(operation.name):
            fold = self.folding.folds.get(user.name)
            return gcd(operation.out.size, fold.par_in if fold is not None else self.lanes_wanted(user))
        return 1

    def read(self, operation: Operation, lanes: int | None = None, index: int = 0) -> Tap:
        """The stream of an operand, with so many elements per beat."""
        tap = self.taps[operation.inputs[index]].pop(0)
        if lanes is None or tap.lanes == lanes:
            return tap
        made = self.wires(f"{operation.name}_in_{index}", lanes, tap.bits)
        parameters = {
            "DATA_IN_0_PRECISION_0": tap.bits,
            "DATA_IN_0_PARALLELISM_DIM_0": tap.lanes,
            "DATA_OUT_0_PARALLELISM_DIM_0": lanes,
        }
        ports = streams(tap, made)
        self.instance(f"{operation.name}_width_{index}", "width_converter", parameters, ports, operation.name)
        return made

    def wires(self, name: str, lanes: int, bits: int) -> Tap:
        """New wires for a stream."""
        self.made.wires.append(Wires(name, lanes * bits))
        return Tap(name, f"{name}_valid", f"{name}_ready", lanes, bits)

    def drop(self, tap: Tap) -> None:
        """Have nobody look at a stream whose beats are always taken."""
        self.made.dropped.append(tap)

    def instance(
        self,
        name: str,
        module: str,
        parameters: Parameters | dict[str, int],
        ports: dict[str, str],
        operation: str,
    ) -> None:
        """A new instance, with clock and reset."""
        clocked = {"clk": "clk", "rst": "rst"} if module != "stream_join" else {}
        self.made.instances.append(Instance(name, module, parameters, {**clocked, **ports}, operation))

    def memory(self, operation: Operation, name: str, lanes: int, words: Sequence[int]) -> str:
        """A memory file with the words of a constant; its name."""
        return self.file(operation, name, lanes * operation.constants[name].format.width, words)

    def file(self, operation: Operation, name: str, width: int, words: Sequence[int]) -> str:
        """A memory file with words of so many bits; its name."""
        file = f"{operation.name}_{name}.mem"
        self.made.memories.append(Memory(file, width, words, operation.name))
        return file

    def lanes_of(self, operation: Operation, index: int) -> int:
        """Elements per beat of an operand, as it comes."""
        return self.taps[operation.inputs[index]][0].lanes

    def pair(self, taps: Sequence[Tap], to: Tap) -> dict[str, str]:
        """The ports of a component with two inputs and one output."""
        ports = streams(taps[0], to)
        for wire, tap in (("", taps[1].data), ("_valid", taps[1].valid), ("_ready", taps[1].ready)):
            ports[f"data_in_1{wire}"] = tap
        return ports

    def waiting(self, operation: Operation, index: int, source: Tap) -> Tap:
        """An operand behind as much room as it needs to wait in."""
        depth = max(1, -(-self.depths[operation.name, index] // source.lanes) + _SLACK)
        to = self.wires(f"{operation.name}_fifo_{index}", source.lanes, source.bits)
        parameters = {"DATA_WIDTH": source.width, "DEPTH": depth}
        self.instance(f"{operation.name}_depth_{index}", "fifo", parameters, streams(source, to), operation.name)
        return to

    def skid(self, operation: Operation, source: Tap) -> Tap:
        """A stream with both its paths cut."""
        to = self.wires(operation.name, source.lanes, source.bits)
        ports = streams(source, to)
        self.instance(f"{operation.name}_skid", "skid_buffer", {"DATA_WIDTH": source.width}, ports, operation.name)
        return to
