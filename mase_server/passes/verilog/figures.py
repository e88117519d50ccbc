"""What hardware costs, as maps to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mase_server.building import ESTIMATE_KEYS
from mase_server.hardware.design import Design
from mase_server.hardware.folding import Folding
from mase_server.hardware.wiring import Netlist


@dataclass(frozen=True, slots=True)
class Figures:
    """operations: maps of `building.ESTIMATE_KEYS` by name.  totals: a map of `building.TOTAL_KEYS`."""

    operations: Mapping[str, Mapping[str, Any]]
    totals: Mapping[str, Any]


def figures_of(design: Design, folding: Folding, made: Netlist) -> Figures:
    """Of a folded design and its netlist."""
    bits: dict[str, int] = {}
    for memory in made.memories:
        bits[memory.operation] = bits.get(memory.operation, 0) + memory.width * len(memory.words)
    operations = {}
    for name in design.operations:
        fold = folding.folds.get(name)
        numbers = (fold.multipliers if fold else 0, 0, bits.get(name, 0), fold.cycles if fold else 0, 0)
        operations[name] = dict(zip(ESTIMATE_KEYS, numbers, strict=True))
    totals = {
        "multipliers": folding.multipliers,
        "luts": 0,
        "memory_bits": sum(bits.values()),
        "interval": folding.interval,
        "latency": 0,
        "bottlenecks": list(folding.bottlenecks),
    }
    return Figures(operations, totals)
