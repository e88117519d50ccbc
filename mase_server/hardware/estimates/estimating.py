"""Estimates of a design, for each operation and for the whole: its resources, its interval and its latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.hardware.copies import copy_name, instances_of_copy, join_netlists
from mase_server.hardware.design import Design, Folding, Operation, Stream
from mase_server.hardware.estimates import arithmetic, storage
from mase_server.hardware.estimates.arithmetic import fill_parameters
from mase_server.hardware.estimates.storage import Cost
from mase_server.hardware.kinds.linear import rows_at_a_time
from mase_server.hardware.memories import place_regions
from mase_server.hardware.netlist import Ways, build_netlist
from mase_server.hardware.timing.components import TIMINGS, Running, prepare_run, run_until_steady, valid_wires
from mase_server.hardware.timing.products import READER_LATENCY, READER_ROOM
from mase_server.hardware.timing.times import Given
from mase_server.hardware.verilog import Instance, Memory, Netlist
from mase_server.protocol.records import Estimate, Totals

#: Beats of a sample above which they are not simulated one by one; with engines, whose bursts are among them; and those
#: above which fewer samples of these are.
_MOST_BEATS, _MOST_BEATS_OF_ENGINES, _MANY_BEATS = 200_000, 1_000_000, 20_000
#: With engines the samples that are followed, and those of them at either end that do not count.
_SAMPLES, _FEW_SAMPLES = (30, 2), (4, 1)
#: The same to choose between foldings, and beats of a sample above which none is followed for that.
_SAMPLES_TO_CHOOSE, _MOST_BEATS_TO_CHOOSE = (12, 2), 30_000


@dataclass(frozen=True, slots=True)
class Estimates:
    """operations: by name, maps of `building.ESTIMATE_KEYS`.  totals: a map of `building.TOTAL_KEYS`."""

    operations: Mapping[str, Estimate]
    totals: Totals


def estimate(design: Design, folding: Folding, made: Netlist | None = None) -> Estimates:
    """The estimates of a folded design. made: the netlist of a copy, if it exists already. No memory is filled."""
    one = build_netlist(design, folding) if made is None else made
    made = join_netlists(design, folding, one)
    instances = _by_operation(design, made.instances)
    first = _by_operation(design, instances_of_copy(one, copy_name(0))) if folding.copies > 1 else instances
    costs = resources(design, made)
    found, interval, latency = _in_time(design, folding, one, made)
    cycles = {name: _cycles_of_operation(design, folding, found, name, instances[name]) for name in design.operations}
    operations: dict[str, Estimate] = {
        name: {
            "multipliers": costs[name]["multipliers"],
            "luts": costs[name]["luts"],
            "memory_bits": costs[name]["memory_bits"],
            "cycles": cycles[name],
            "latency": 0 if found is None else _latency_of_operation(found, first[name]),
            "utilisation": min(1.0, cycles[name] / interval) if interval else 0.0,
            "reads": folding.folds[name].reads if name in folding.folds else 0,
            "waits": name in folding.waiting,
        }
        for name in design.operations
    }
    whole = added(costs.values())
    totals: Totals = {
        "multipliers": whole["multipliers"],
        "luts": whole["luts"],
        "memory_bits": whole["memory_bits"],
        "interval": round(interval),
        "latency": latency,
        "bottlenecks": _find_bottlenecks({**cycles, **folding.busy}),
        "reads": folding.reads,
        "waiting": list(folding.waiting),
    }
    if folding.copies > 1:
        totals["copies"] = folding.copies
    return Estimates(operations, totals)


def resources(design: Design, made: Netlist) -> dict[str, dict[str, int]]:
    """Multipliers, tables and bits of memory of each operation of a netlist, without its timing."""
    memories = {memory.file: memory for memory in made.memories}
    return {
        name: _cost_to_map(sum((instance_cost(each, memories) for each in own), Cost()))
        for name, own in _by_operation(design, made.instances).items()
    }


@dataclass(frozen=True, slots=True, order=True)
class Ram:
    """Memories of one size. count: the number of them."""

    words: int
    bits: int
    count: int

    @property
    def module(self) -> str:
        """The name of its module in a chip."""
        return f"ram_{self.words}x{self.bits}"


def list_rams(made: Netlist) -> list[Ram]:
    """The memories of a netlist that are written, each `ram` of its components, sorted by size."""
    found = Counter(size for each in made.instances for size in instance_cost(each, {}).rams)
    return [Ram(words, bits, count) for (words, bits), count in sorted(found.items())]


def added(costs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The total cost of several operations."""
    each = list(costs)
    return {key: sum(one[key] for one in each) for key in ("multipliers", "luts", "memory_bits")}


def _by_operation(design: Design, instances: Iterable[Instance]) -> dict[str, list[Instance]]:
    found: dict[str, list[Instance]] = {name: [] for name in design.operations}
    for instance in instances:
        found[instance.operation].append(instance)
    return found


def instance_cost(instance: Instance, memories: Mapping[str, Memory]) -> Cost:
    """The cost of one instance; zero for an unknown component. memories: by their files."""
    known = COSTS.get(instance.module)
    return Cost() if known is None else known(fill_parameters(instance, memories))


def follow_interval(design: Design, folding: Folding) -> float | None:
    """The interval of a folding whose layers share multipliers, followed beat by beat; None if that takes too long."""
    if _count_beats(design, folding) > _MOST_BEATS_TO_CHOOSE:
        return None
    steady = _follow(folding, _prepare_run(design, build_netlist(design, folding)), _SAMPLES_TO_CHOOSE)
    return None if steady is None else steady[0]


def _follow(folding: Folding, found: Running, counted: tuple[int, int]) -> tuple[float, int] | None:
    """The interval and the latency, as `run_until_steady`. Much work for samples that are followed is done before the
    first of them is whole, so they may come faster than multipliers work."""
    steady = run_until_steady(found, counted, folding.copies)
    return None if steady is None else (max(steady[0], folding.work), steady[1])


def _in_time(design: Design, folding: Folding, one: Netlist, made: Netlist) -> tuple[Running | None, float, int]:
    """The timing of a netlist after some samples, its interval and its latency. The timing is None if there are too
    many beats to follow, or a component has no timing; the latency is 0 if nothing comes out. one: a copy's netlist."""
    beats = _count_beats(design, folding)
    most, samples = _MOST_BEATS_OF_ENGINES if folding.engines else _MOST_BEATS, 0
    if made.regions:
        samples = 2 + estimate_latency(design, folding, made) // round(folding.interval)
        most //= samples
    if beats > most or any(instance.module not in TIMINGS for instance in made.instances):
        return None, folding.interval, estimate_latency(design, folding.single, one)
    found = _prepare_run(design, made)
    if made.regions:
        # Samples find weights that came before the first one: their interval is shorter than later ones have.
        found.send(samples)
        return found, folding.interval, found.ends()[0] - found.begins if found.ends() else 0
    counted = _FEW_SAMPLES if beats > _MANY_BEATS else _SAMPLES
    return found, *(_follow(folding, found, counted) or (folding.interval, 0))


def _count_beats(design: Design, folding: Folding) -> int:
    """Beats of a sample between operations, to engines and from outside."""
    beats = sum(operation.out.size // _lanes_out(folding, operation.name) for operation in design.operations.values())
    beats += sum(folding.folds[name].cycles // each.par_out for each in folding.engines for name in each.operations)
    return beats + sum(fold.cycles for fold in folding.folds.values() if fold.reads)


def _prepare_run(design: Design, made: Netlist) -> Running:
    beats_in = [operation.out.size // tap.lanes for operation, tap in zip(design.inputs, made.inputs, strict=True)]
    outputs = [design.operations[name].out.size for name in design.outputs]
    return prepare_run(made, beats_in, [size // tap.lanes for size, tap in zip(outputs, made.outputs, strict=True)])


def _lanes_out(folding: Folding, name: str) -> int:
    return folding.folds[name].par_out if name in folding.folds else 1


def _cost_to_map(cost: Cost) -> dict[str, int]:
    return {"multipliers": round(cost.multipliers), "luts": round(cost.luts), "memory_bits": round(cost.memory_bits)}


def _find_bottlenecks(cycles: Mapping[str, float]) -> list[str]:
    most = max(cycles.values(), default=0)
    return [name for name, each in cycles.items() if each == most]


def _cycles_of_operation(
    design: Design, folding: Folding, found: Running | None, name: str, instances: Sequence[Instance]
) -> int:
    """Cycles from one sample to the next, on average over the copies; an operation without a fold takes one beat a
    cycle, in and out."""
    if name in folding.folds:
        return -(-folding.folds[name].cycles // folding.copies)
    if found is None:
        operation = design.operations[name]
        streams = (operation.out, *(design.operations[each].out for each in operation.inputs))
        return max(each.size for each in streams) if instances else 0
    links = [found.links[wire] for each in instances for way in ("in", "out") for wire in valid_wires(each, way)]
    return max((len(link.taken) // max(1, len(found.samples)) for link in links), default=0)


def _latency_of_operation(found: Running, instances: Sequence[Instance]) -> int:
    """Cycles from an operand's first beat to the first beat of the result.

    Weights from outside are no operand. Of several operands, the last one counts whose first beat precedes the result:
    a concatenation begins with its first operand, whenever the others arrive.
    """
    before, after = (
        {wire for each in instances for wire in valid_wires(each, way) if not wire.startswith("weights_valid[")}
        for way in ("in", "out")
    )
    begins = [found.links[wire].taken[0] for wire in before - after if found.links[wire].taken]
    ends = [found.links[wire].offered[0] for wire in after - before if found.links[wire].offered]
    first = min(ends, default=0)
    return first - max((each for each in begins if each <= first), default=first)


# The time of the first result, for designs with too many beats to follow each: it follows groups of a sample's
# elements.
#
# Every operation begins a group when it has finished the one before and has all that the group needs. Limits of storage
# are ignored: an operation that waits for room waits for a slower one anyway.

#: The number of groups of a stream.
_GROUPS = 512
#: Cycles through the registers of an operation, by its kind.
_REGISTERS = 12
_FEWER = {
    **dict.fromkeys(("move", "constant"), 0),
    **dict.fromkeys(("concat", "pad", "requantise", "table", "take"), 1),
    **dict.fromkeys(("elementwise", "embedding", "gather", "swap"), 3),
}
#: Kinds that process operands as they arrive: when the last operand is there, the others are already processed.
_AS_THEY_COME = ("linear", "conv2d")


@dataclass(frozen=True, slots=True)
class _Flow:
    """The times at which the last elements of groups are available. ends: their indices; times: cycles."""

    ends: Tensor
    times: Tensor

    def at(self, places: Tensor) -> Tensor:
        """The times at which elements are available; between the ends of groups they are spaced evenly."""
        group = torch.searchsorted(self.ends, places.clamp(min=0)).clamp(max=len(self.ends) - 1)
        before = (group - 1).clamp(min=0)
        first, last = self.ends[before].double(), self.ends[group].double()
        share = torch.where(last > first, (places - first) / (last - first), 1.0).clamp(0, 1)
        return torch.where(places < 0, 0.0, self.times[before] + share * (self.times[group] - self.times[before]))


def estimate_latency(design: Design, folding: Folding, made: Netlist) -> int:
    """Cycles from the first beat in to the last beat of the first result, within a few percent."""
    ways, flows = Ways(design), dict[str, _Flow]()
    inputs = {operation.name: tap.lanes for operation, tap in zip(design.inputs, made.inputs, strict=True)}
    weights = _first_weights(design, folding, made)
    for operation in design.operations.values():
        ends = _group_ends(operation.out)
        if operation.name in inputs:
            flows[operation.name] = _Flow(ends, (ends + 1) / inputs[operation.name])
            continue
        ready = [
            flows[name].at(places[ends]) for name, places in zip(operation.inputs, ways.reach(operation), strict=True)
        ]
        flows[operation.name] = _Flow(ends, _result_times(operation, folding, ends, ready, weights))
    # An engine has worked for all of its layers before the result is there.
    busy = (sum(folding.folds[name].cycles for name in each.operations) for each in folding.engines)
    return round(max((*busy, *(float(flows[name].times[-1]) for name in design.outputs)), default=0.0))


def _group_ends(stream: Stream) -> Tensor:
    """Groups of about equal size. None crosses the end of a row, or of a pixel: the next one may arrive much later."""
    groups = min(stream.size, _GROUPS)
    ends = {(group * stream.size) // groups - 1 for group in range(1, groups + 1)}
    row = stream.shape[-1 if stream.order is None else 0] if stream.shape else 1
    if stream.size // row <= _GROUPS:
        ends |= set(range(row - 1, stream.size, row))
    return torch.tensor(sorted(ends))


def _first_weights(design: Design, folding: Folding, made: Netlist) -> dict[str, float]:
    """The cycles at which weights from outside begin to come, by operation: each buffer is filled first that is behind
    another one."""
    found: dict[str, float] = {}
    time = float(READER_LATENCY)
    for each, (_, beats) in reversed(list(zip(made.regions, place_regions(made.regions, made.port), strict=True))):
        found[each.operation] = time
        operation, fold = design.operations[each.operation], folding.folds[each.operation]
        tiles = 2 * fold.par_out / operation.constants["weight"].shape[0] if rows_at_a_time(operation) > 1 else 0
        time += (READER_ROOM + tiles * beats) / made.pace
    return found


def _result_times(
    operation: Operation, folding: Folding, ends: Tensor, ready: list[Tensor], weights: Mapping[str, float]
) -> Tensor:
    """The times at which an operation gives its result, from those of its operands. weights: those at which weights
    from outside begin to come."""
    if not ready:
        return torch.zeros(len(ends), dtype=torch.float64)
    fold = folding.folds.get(operation.name)
    lanes = fold.par_out if fold is not None else 1
    beat = fold.cycles * lanes / operation.out.size if fold is not None else 0.0
    counted = (ends // lanes).double() * beat
    if fold is not None and fold.delay:
        counted = fold.elapsed(ends, operation.out.size)
        # A group's results leave one by one once the last of them is known.
        counted = counted + ends % round(operation.out.size * fold.delay / fold.cycles) // lanes
    registers = _FEWER.get(operation.kind, _REGISTERS) + (0 if operation.kind in _AS_THEY_COME else beat)
    registers += fold.delay if fold is not None else 0
    latest = torch.stack(ready).amax(0).clamp(min=weights.get(operation.name, 0.0)) + registers
    return (latest - counted).cummax(0).values + counted


# The cost of each component of `rtl/` that a netlist may contain: one row for each component.

#: By the name of the module.
COSTS: Mapping[str, Callable[[Given], Cost]] = {
    "axi_reader": arithmetic.of_reader,
    "constant_linear": arithmetic.of_constant_linear,
    "constant_stream": storage.of_constant_stream,
    "embedding": storage.of_embedding,
    "fifo": storage.of_fifo,
    "fixed_add": arithmetic.of_add,
    "fixed_average_pool2d": arithmetic.of_average_pool2d,
    "fixed_cast": arithmetic.of_cast,
    "fixed_conv2d": arithmetic.of_conv2d,
    "fixed_engine": arithmetic.of_engine,
    "fixed_linear": arithmetic.of_linear,
    "fixed_matmul": arithmetic.of_matmul,
    "fixed_max_pool2d": arithmetic.of_max_pool2d,
    "fixed_multiply": arithmetic.of_multiply,
    "fixed_norm": arithmetic.of_norm,
    "fixed_mean": arithmetic.of_mean,
    "fixed_recurrent": arithmetic.of_recurrent,
    "fixed_reduce": arithmetic.of_reduce,
    "fixed_softmax": arithmetic.of_softmax,
    "fixed_table": storage.of_fixed_table,
    "fixed_top_k": arithmetic.of_top_k,
    "image_padding": arithmetic.of_padding,
    "minifloat_cast": arithmetic.of_floats,
    "mxint_cast": arithmetic.of_blocks,
    "mxint_linear": arithmetic.of_mxint_linear,
    "repeat_buffer": storage.of_repeat_buffer,
    "round_robin_merge": storage.of_merge_in_turn,
    "round_robin_split": storage.of_split_in_turn,
    "shared_conv2d": arithmetic.of_shared_conv2d,
    "shared_linear": arithmetic.of_shared_linear,
    "shared_matmul": arithmetic.of_shared_matmul,
    "shared_recurrent": arithmetic.of_recurrent,
    "skid_buffer": storage.of_skid_buffer,
    "stream_concat": storage.of_concat,
    "stream_fork": storage.of_fork,
    "stream_gather": storage.of_stream_gather,
    "stream_split": storage.of_split,
    "streamed_conv2d": arithmetic.of_streamed_conv2d,
    "streamed_linear": arithmetic.of_streamed_linear,
    "swap_buffer": storage.of_swap_buffer,
    "width_converter": storage.of_width_converter,
}
