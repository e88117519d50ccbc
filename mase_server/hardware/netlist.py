"""From a design and its folding to instances and wires, with room for streams to wait in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from mase_server.hardware.design import Design, Engine, Fold, Folding, Operation, Stream, Streamed, blame_operation
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.memories import Words, place_regions
from mase_server.hardware.networks import Network
from mase_server.hardware.verilog import (
    Joined,
    Memory,
    Netlist,
    Parameters,
    Tap,
    memory_ports,
    stream_ports,
)

#: Beats that may wait beyond the necessary minimum: the longer path takes time too.
_SLACK = 16


def build_netlist(design: Design, folding: Folding) -> Netlist:
    """The instances of every operation, width converters between different foldings, and forks where a value has
    several users; those of one copy, if there are several."""
    return Builder(design, folding.single).run()


class Builder:
    """A netlist in the making, as kinds see it."""

    def __init__(self, design: Design, folding: Folding) -> None:
        self.design, self.folding = design, folding
        self.made = Netlist()
        ways = Ways(design)
        timed = compute_waiting(design, folding, ways)
        self.depths = {
            place: max(fewest, timed.get(place, 0)) for place, fewest in compute_buffer_depths(design, ways).items()
        }
        #: operation -> one tap for each of its users, in their order.
        self.taps: dict[str, list[Tap]] = {}

    def run(self) -> Netlist:
        """All operations, in the order of the data."""
        for operation in self.design.operations.values():
            with blame_operation(operation):
                tap = KINDS[operation.kind].build(self, operation)
            readers = len(self.design.users(operation.name)) + self.design.outputs.count(operation.name)
            self.taps[operation.name] = [tap] if readers < 2 else self._fork_stream(operation, tap, readers)
        for engine in self.folding.engines:
            self._add_engine(engine)
        if self.made.regions:
            self._add_reader()
        self.made.outputs += [self.taps[name].pop(0) for name in self.design.outputs]
        return self.made

    def _fork_stream(self, operation: Operation, tap: Tap, count: int) -> list[Tap]:
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

    def _add_engine(self, engine: Engine) -> None:
        name, widths, count = engine.name, self._engine_widths(engine), len(engine.operations)
        lanes = engine.par_in * engine.par_out
        wires = {
            "request": count,
            "last": count,
            "grant": count,
            "data": count * engine.par_in * widths["ENGINE_DATA_WIDTH"],
            "weight": count * lanes * widths["ENGINE_WEIGHT_WIDTH"],
            "total": engine.par_out * widths["ENGINE_SUM_WIDTH"],
        }
        self.made.vectors += [(f"{name}_{wire}", width) for wire, width in wires.items()]
        parameters = {
            "COUNT": count,
            "DATA_IN_0_PRECISION_0": widths["ENGINE_DATA_WIDTH"],
            "DATA_IN_0_PARALLELISM_DIM_0": engine.par_in,
            "WEIGHT_PRECISION_0": widths["ENGINE_WEIGHT_WIDTH"],
            "DATA_OUT_0_PARALLELISM_DIM_0": engine.par_out,
            "SUM_WIDTH": widths["ENGINE_SUM_WIDTH"],
        }
        ports = {wire: f"{name}_{wire}" for wire in wires}
        self.instance(f"{name}_i", "fixed_engine", parameters, ports, engine.operations[0])

    def _engine_widths(self, engine: Engine) -> dict[str, int]:
        """The widest data, weights and sums of its layers; the second operand of a product counts as weights."""
        operations = [self.design.operations[name] for name in engine.operations]
        found = [dots(self.design, each) for each in operations if (dots := KINDS[each.kind].dots)]
        data, weight = (max(getattr(each.formats, which).width for each in found) for which in ("data", "weight"))
        longest = max(each.length for each in found)
        total = data + weight + (-(-longest // engine.par_in) * engine.par_in - 1).bit_length()
        return {"ENGINE_DATA_WIDTH": data, "ENGINE_WEIGHT_WIDTH": weight, "ENGINE_SUM_WIDTH": total}

    def _add_reader(self) -> None:
        """The master that reads all weights from outside."""
        regions, bits = self.made.regions, self.made.port
        count, places = len(regions), place_regions(regions, bits)
        for wire, width in (("beats", count * bits), ("valid", count), ("ready", count)):
            self.made.vectors.append((f"weights_{wire}", width))
        parameters: Parameters = {
            "COUNT": count,
            "BUS_WIDTH": bits,
            "OFFSETS": Joined(tuple(offset for offset, _ in places)),
            "BEATS": Joined(tuple(beats for _, beats in places)),
        }
        ports = {
            "aresetn": "weights_aresetn",
            "enable": "weights_enable",
            "base": "weights_base",
            "error": "weights_error",
            "data_out_0": "weights_beats",
            "data_out_0_valid": "weights_valid",
            "data_out_0_ready": "weights_ready",
            **{f"m_axi_{wire}": f"m_axi_{wire}" for _, wire, _ in memory_ports(bits)},
        }
        self.instance("weights_i", "axi_reader", parameters, ports, regions[0].operation)

    # For kinds.

    def region(self, operation: Operation, bits: int, words: Words, way: Streamed) -> None:
        """Have words of so many bits come from outside, for an operation."""
        self.made.port, self.made.pace = way.width, way.pace
        self.made.regions.append(Memory("", bits, words, operation.name))

    def weights_of(self, operation: Operation) -> dict[str, str]:
        """The ports of weights from outside; {} if they are on the chip."""
        names = [each.operation for each in self.made.regions]
        if operation.name not in names:
            return {}
        index, bits = names.index(operation.name), self.made.port
        wires = {"": f"beats[{index * bits}+:{bits}]", "_valid": f"valid[{index}]", "_ready": f"ready[{index}]"}
        return {f"data_in_1{port}": f"weights_{wire}" for port, wire in wires.items()}

    def engine_of(self, operation: Operation, parameters: Parameters) -> dict[str, str]:
        """The ports to the engine that an operation shares, whose sizes join the parameters; {} if it has none."""
        engine = next((each for each in self.folding.engines if operation.name in each.operations), None)
        if engine is None:
            return {}
        index, widths, lanes = engine.operations.index(operation.name), self._engine_widths(engine), engine.par_in
        parameters |= {"ENGINE_PARALLELISM_DIM_0": lanes, "ENGINE_PARALLELISM_DIM_1": engine.par_out, **widths}
        data, weight = lanes * widths["ENGINE_DATA_WIDTH"], lanes * engine.par_out * widths["ENGINE_WEIGHT_WIDTH"]
        slices = dict.fromkeys(("request", "last", "grant"), f"[{index}]") | {
            "data": f"[{index * data}+:{data}]",
            "weight": f"[{index * weight}+:{weight}]",
            "total": "",
        }
        return {f"engine_{wire}": f"{engine.name}_{wire}{part}" for wire, part in slices.items()}

    def lanes_wanted(self, operation: Operation) -> int:
        """Elements per beat that the first reader wants of an operation without a pace of its own; at most those of a
        sample."""
        for user in self.design.users(operation.name):
            fold = self.folding.folds.get(user.name)
            return gcd(operation.out.size, fold.par_in if fold is not None else self.lanes_wanted(user))
        return 1

    def read(self, operation: Operation, lanes: int | None = None, index: int = 0) -> Tap:
        """The stream of an operand, with `lanes` elements per beat."""
        tap = self.taps[operation.inputs[index]].pop(0)
        if lanes is None or tap.lanes == lanes:
            return tap
        made = self.wires(f"{operation.name}_in_{index}", lanes, tap.bits)
        self.made.add_converter(f"{operation.name}_width_{index}", tap, made, operation.name)
        return made

    def wires(self, name: str, lanes: int, bits: int) -> Tap:
        """New wires for a stream."""
        return self.made.add_wires(name, lanes, bits)

    def drop(self, tap: Tap) -> None:
        """Leave a stream unread; its beats are always accepted."""
        self.made.dropped.append(tap)

    def instance(
        self,
        name: str,
        module: str,
        parameters: Parameters | dict[str, int],
        ports: dict[str, str],
        operation: str,
        network: Network | None = None,
    ) -> None:
        """Add an instance, with clock and reset."""
        self.made.add_instance(name, module, parameters, ports, operation, network)

    def memory(self, operation: Operation, name: str, lanes: int, words: Sequence[int]) -> str:
        """Add a memory file with the words of a constant; return its name."""
        return self.file(operation, name, lanes * operation.constants[name].format.width, words)

    def file(self, operation: Operation, name: str, width: int, words: Sequence[int]) -> str:
        """Add a memory file with words of `width` bits; return its name."""
        file = f"{operation.name}_{name}.mem"
        self.made.memories.append(Memory(file, width, words, operation.name))
        return file

    def lanes_of(self, operation: Operation, index: int) -> int:
        """Elements per beat of an operand, before any conversion."""
        return self.taps[operation.inputs[index]][0].lanes

    def pair(self, taps: Sequence[Tap], to: Tap) -> dict[str, str]:
        """The ports of a component with two inputs and one output."""
        ports = stream_ports(taps[0], to)
        for wire, tap in (("", taps[1].data), ("_valid", taps[1].valid), ("_ready", taps[1].ready)):
            ports[f"data_in_1{wire}"] = tap
        return ports

    def waiting(self, operation: Operation, index: int, source: Tap) -> Tap:
        """An operand behind a fifo with the room that it needs to wait in."""
        depth = max(1, -(-self.depths[operation.name, index] // source.lanes) + _SLACK)
        to = self.wires(f"{operation.name}_fifo_{index}", source.lanes, source.bits)
        parameters = {"DATA_WIDTH": source.width, "DEPTH": depth}
        self.instance(f"{operation.name}_depth_{index}", "fifo", parameters, stream_ports(source, to), operation.name)
        return to

    def skid(self, operation: Operation, source: Tap, burst: int = 0) -> Tap:
        """A stream behind a skid buffer, which cuts its paths in both directions, or behind a fifo that does the same
        and holds all beats of a burst."""
        to = self.wires(operation.name, source.lanes, source.bits)
        ports, parameters = stream_ports(source, to), {"DATA_WIDTH": source.width}
        if burst > 2:
            self.instance(f"{operation.name}_fifo", "fifo", {**parameters, "DEPTH": burst}, ports, operation.name)
        else:
            self.instance(f"{operation.name}_skid", "skid_buffer", parameters, ports, operation.name)
        return to


# The elements that wait where streams meet again while samples follow one another without a pause.
#
# `compute_buffer_depths` computes the room that avoids deadlock; that is not enough to run at full rate, because the
# longer path takes time too. Here samples arrive evenly, one in each interval, and everything is done as early as
# possible; elements that have arrived and are not wanted yet need room. Inputs that arrive earlier delay nothing.
#
# Times are those of one sample when very many came before it: each sample is an interval later than the one before, so
# that samples need not be followed one by one, however many are on their way.

#: Points in time of a sample that are looked at: longer streams are followed in groups of elements.
_MOMENTS = 2048
#: Cycles from an operand to its result that no fold includes, at most: registers, trees of adders, converters.
_REGISTERS, _REGISTERS_UNFOLDED = 32, 8
#: Cycles by which times may differ that are the same, but for their rounding.
_ROUNDING = 1e-6


def compute_waiting(design: Design, folding: Folding, ways: Ways) -> dict[tuple[str, int], int]:
    """The elements that wait before each operand of each operation with several, at full rate: (name, index) ->
    elements."""
    if all(len(operation.inputs) < 2 for operation in design.operations.values()):
        return {}
    found: dict[tuple[str, int], int] = {}
    flows: dict[str, _Flow] = {}
    for operation in design.operations.values():
        ends = _moment_ends(operation.out)
        operands = [flows[name] for name in operation.inputs]
        reach = [each[ends].cummax(0).values for each in ways.reach(operation)]
        ready = [flow.at(each) for flow, each in zip(operands, reach, strict=True)]
        begun, latency = _begin_times(folding, operation, ends, ready)
        flows[operation.name] = _Flow(operation.out.size, ends, begun + latency, folding.interval)
        if len(operands) > 1:
            for index, (flow, each) in enumerate(zip(operands, reach, strict=True)):
                most = flow.most(begun, each)
                # A path of more than a sample may wait for its turns in engines, about as long as another one takes.
                found[operation.name, index] = most + (flow.size if folding.engines and most > flow.size else 0)
    return found


@dataclass(frozen=True, slots=True)
class _Flow:
    """The times at which elements of a stream are available, in groups. ends: last elements of a sample's groups.
    times: cycles, of one sample.  interval: cycles to those of the next one."""

    size: int
    ends: Tensor
    times: Tensor
    interval: float

    @property
    def group(self) -> int:
        """Elements of a group."""
        return int(self.ends[0]) + 1

    def at(self, places: Tensor) -> Tensor:
        """The times at which elements are available; places below zero are those of earlier samples."""
        return self.times[places % self.size // self.group] + places // self.size * self.interval

    def most(self, begun: Tensor, reach: Tensor) -> int:
        """The most elements that are available and not yet taken. begun: the times at which those up to `reach` are
        taken."""
        begun = begun + _ROUNDING
        samples = ((begun - self.times[0]) / self.interval).floor()
        groups = torch.searchsorted(self.times, begun - samples * self.interval, right=True)
        there = samples * self.size + (groups * self.group).clamp(max=self.size)
        before = torch.cat([reach[-1:] - self.size, reach[:-1]]) + 1
        return max(0, int((there - before).max()))


def _moment_ends(stream: Stream) -> Tensor:
    """The last element of each group of a sample."""
    group = -(-stream.size // _MOMENTS)
    return (torch.arange(0, stream.size, group) + group - 1).clamp(max=stream.size - 1)


def _begin_times(folding: Folding, operation: Operation, ends: Tensor, ready: list[Tensor]) -> tuple[Tensor, float]:
    """The times at which elements of a result begin, each after the one before and after all that it needs; and the
    cycles until they are available."""
    size, fold = operation.out.size, folding.folds.get(operation.name)
    if not ready:
        return ends.double() * (folding.interval / size), 0.0
    latest = torch.stack(ready).amax(0)
    # No operation is slower than the interval, so that only the sample before can delay a sample.
    latest = torch.cat([latest - folding.interval, latest])
    if fold is None:
        return latest.cummax(0).values[len(ends) :], _REGISTERS_UNFOLDED
    # Element k begins at the latest of: ready[j] + the cycles from j to k, for all j up to k.
    elapsed = fold.elapsed(torch.cat([ends - size, ends]).double(), size)
    return ((latest - elapsed).cummax(0).values + elapsed)[len(ends) :], _latency_at_most(
        operation, fold, folding.interval
    )


def _latency_at_most(operation: Operation, fold: Fold, interval: float) -> float:
    """Cycles from all that an element needs to the element."""
    if fold.delay:
        return _REGISTERS + fold.delay
    element = fold.cycles / operation.out.size
    if fold.engine:
        # A row of an image, or a vector, has work for all layers of an engine, which may come first.
        rows = operation.out.shape[-2] if len(operation.out.shape) > 1 else 1
        return _REGISTERS + 2 * fold.par_out * element + interval / rows
    match operation.kind:
        case "linear" | "matmul":
            return _REGISTERS / 2 + fold.par_in.bit_length() + 2 * fold.par_out * element
        case "norm" | "softmax" | "blocks":
            # Its row passes a second time, and there are roots and quotients.
            return 2 * _REGISTERS + operation.out.shape[-1] * element
        case "floats" if operation.options["block"]:
            return 2 * _REGISTERS + int(operation.options["block"]) * element
        case _:
            return _REGISTERS + 2 * fold.par_out * element


# The room that streams need to wait in where they meet again, so that the hardware can never deadlock.
#
# Two operands of one operation may come from one stream along paths of different lengths. Elements on the shorter path
# wait until the longer one has taken all that it needs for its own next result. Without room to wait, they block the
# stream that feeds both paths, and so the longer path, forever.
#
# The count is exact for one lane and of the fewest elements; `tests/hardware/test_room.py` holds that one place less
# stands still.


def compute_buffer_depths(design: Design, ways: Ways | None = None) -> dict[tuple[str, int], int]:
    """The least room to wait before each operand of each operation with several: (name, index) -> elements.

    With less the hardware deadlocks. The time that the longer path takes is ignored: it costs cycles, not progress.
    """
    found = {
        (operation.name, index): 0
        for operation in design.operations.values()
        for index in range(len(operation.inputs))
        if len(operation.inputs) > 1
    }
    ways = ways or Ways(design)
    for operation in design.operations.values():
        if len(design.users(operation.name)) > 1:
            for place, waiting in ways.behind(operation).items():
                found[place] = max(found[place], waiting)
    return found


class Ways:
    """The paths of a design from where streams part to where they meet again."""

    def __init__(self, design: Design) -> None:
        self.design, self.operations = design, list(design.operations.values())
        self.places = {name: index for index, name in enumerate(design.operations)}
        self.reaches: dict[str, tuple[Tensor, ...]] = {}

    def behind(self, parting: Operation) -> dict[tuple[str, int], int]:
        """The elements that must wait because streams part after one operation."""
        needs: dict[str, Tensor] = {parting.name: torch.arange(1, parting.out.size + 1)}
        found: dict[tuple[str, int], int] = {}
        for operation in self._until_all_meet(parting):
            reach = self.reach(operation)
            operands = {
                index: _counts_at(needs[name], places)
                for index, (name, places) in enumerate(zip(operation.inputs, reach, strict=True))
                if name in needs
            }
            # Elements leave in order, so each needs at least what the one before it needed.
            needs[operation.name] = torch.stack(list(operands.values())).amax(0).cummax(0).values
            if len(operands) > 1:
                for index in operands:
                    before = needs[operation.inputs[index]]
                    found[operation.name, index] = _count_waiting(before, needs[operation.name], reach[index])
        return found

    def _until_all_meet(self, parting: Operation) -> Iterator[Operation]:
        """The operations that depend on a stream, up to the first that all of its paths lead through. From there on
        there is one stream again, and its own parting is handled separately."""
        reached, open_ways = {parting.name}, len(self.design.users(parting.name))
        for operation in self.operations[self.places[parting.name] + 1 :]:
            ended = sum(name in reached for name in operation.inputs)
            if not ended:
                continue
            yield operation
            reached.add(operation.name)
            open_ways -= ended
            if not open_ways:
                return
            open_ways += len(self.design.users(operation.name))

    def reach(self, operation: Operation) -> tuple[Tensor, ...]:
        """For each operand, the last of its elements that each element of the result needs (see `Kind`)."""
        if operation.name not in self.reaches:
            with blame_operation(operation):
                self.reaches[operation.name] = KINDS[operation.kind].reach(self.design, operation)
        return self.reaches[operation.name]


def _counts_at(counts: Tensor, places: Tensor) -> Tensor:
    """The elements needed at some places; 0 for a place before the first."""
    return torch.where(places < 0, 0, counts[places.clamp(min=0)])


def _count_waiting(there_with: Tensor, wanted: Tensor, reach: Tensor) -> int:
    """The most elements of an operand that arrive before the operation can take them."""
    # Elements that arrive with the awaited one block nothing any more.
    there = torch.searchsorted(there_with.contiguous(), wanted.contiguous(), right=False)
    taken = torch.cat([torch.zeros(1, dtype=torch.int64), (reach + 1).clamp(min=0).cummax(0).values[:-1]])
    return max(0, int((there - taken).max()))
