"""The estimates of a design: of each operation, and of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mase_server.hardware.design import Design
from mase_server.hardware.estimates import coarse
from mase_server.hardware.estimates.components import COSTS
from mase_server.hardware.estimates.contents import filled
from mase_server.hardware.estimates.cost import Cost
from mase_server.hardware.folding import Folding
from mase_server.hardware.netlist import netlist
from mase_server.hardware.timing.components import TIMINGS
from mase_server.hardware.timing.running import Running, running, steady, wires
from mase_server.hardware.wiring import Instance, Memory, Netlist

#: Beats of a sample, above which they are not followed one by one.
_MOST_BEATS = 200_000


@dataclass(frozen=True, slots=True)
class Estimates:
    """operations: by name, maps of `building.ESTIMATE_KEYS`.  totals: a map of `building.TOTAL_KEYS`."""

    operations: Mapping[str, Mapping[str, int]]
    totals: Mapping[str, object]


def estimate(design: Design, folding: Folding, made: Netlist | None = None) -> Estimates:
    """The estimates of a design in a folding. made: its netlist, where that is there already. No memory is filled."""
    made = netlist(design, folding) if made is None else made
    instances = _by_operation(design, made)
    costs = resources(design, made)
    found, interval, latency = _in_time(design, folding, made)
    operations = {
        name: {
            **costs[name],
            "cycles": _cycles(design, folding, found, name, instances[name]),
            "latency": 0 if found is None else _latency(found, instances[name]),
        }
        for name in design.operations
    }
    totals = {
        **added(costs.values()),
        "interval": round(interval),
        "latency": latency,
        "bottlenecks": _slowest(operations),
    }
    return Estimates(operations, totals)


def resources(design: Design, made: Netlist) -> dict[str, dict[str, int]]:
    """Multipliers, tables and bits of memory of each operation of a netlist, which is not followed in time."""
    memories = {memory.file: memory for memory in made.memories}
    return {
        name: _plain(sum((cost(each, memories) for each in own), Cost()))
        for name, own in _by_operation(design, made).items()
    }


def added(costs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What several operations take together."""
    each = list(costs)
    return {key: sum(one[key] for one in each) for key in ("multipliers", "luts", "memory_bits")}


def _by_operation(design: Design, made: Netlist) -> dict[str, list[Instance]]:
    found: dict[str, list[Instance]] = {name: [] for name in design.operations}
    for instance in made.instances:
        found[instance.operation].append(instance)
    return found


def cost(instance: Instance, memories: Mapping[str, Memory]) -> Cost:
    """What one instance takes; nothing where nobody knows. memories: by their files."""
    known = COSTS.get(instance.module)
    return Cost() if known is None else known(filled(instance, memories))


def _in_time(design: Design, folding: Folding, made: Netlist) -> tuple[Running | None, float, int]:
    """A netlist after some samples, its interval and its latency. None where its beats are too many to be followed, or
    a component has no times; latency 0 where nothing comes out."""
    beats = sum(operation.out.size // _lanes(folding, operation.name) for operation in design.operations.values())
    if beats > _MOST_BEATS or any(instance.module not in TIMINGS for instance in made.instances):
        return None, folding.interval, coarse.latency(design, folding, made)
    beats_in = [operation.out.size // tap.lanes for operation, tap in zip(design.inputs, made.inputs, strict=True)]
    outputs = [design.operations[name].out.size for name in design.outputs]
    found = running(made, beats_in, [size // tap.lanes for size, tap in zip(outputs, made.outputs, strict=True)])
    return found, *(steady(found) or (folding.interval, 0))


def _lanes(folding: Folding, name: str) -> int:
    return folding.folds[name].par_out if name in folding.folds else 1


def _plain(cost: Cost) -> dict[str, int]:
    return {"multipliers": round(cost.multipliers), "luts": round(cost.luts), "memory_bits": round(cost.memory_bits)}


def _slowest(operations: Mapping[str, Mapping[str, int]]) -> list[str]:
    most = max((each["cycles"] for each in operations.values()), default=0)
    return [name for name, each in operations.items() if each["cycles"] == most]


def _cycles(design: Design, folding: Folding, found: Running | None, name: str, instances: Sequence[Instance]) -> int:
    """From one sample to the next; what nobody folds takes a beat a cycle, in and out."""
    if name in folding.folds:
        return folding.folds[name].cycles
    if found is None:
        operation = design.operations[name]
        streams = (operation.out, *(design.operations[each].out for each in operation.inputs))
        return max(each.size for each in streams) if instances else 0
    links = [found.links[wire] for each in instances for way in ("in", "out") for wire in wires(each, way)]
    return max((len(link.taken) // max(1, len(found.samples)) for link in links), default=0)


def _latency(found: Running, instances: Sequence[Instance]) -> int:
    """Cycles from an operand's first beat to the first beat of the result.

    Of several operands the last one counts that came before the result: a concatenation begins with its first operand,
    whenever the others come.
    """
    before = {wire for each in instances for wire in wires(each, "in")}
    after = {wire for each in instances for wire in wires(each, "out")}
    begins = [found.links[wire].taken[0] for wire in before - after if found.links[wire].taken]
    ends = [found.links[wire].offered[0] for wire in after - before if found.links[wire].offered]
    first = min(ends, default=0)
    return first - max((each for each in begins if each <= first), default=first)
