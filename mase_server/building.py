"""What is asked for when a model becomes hardware, and what is told of it. Standard library only.

The compiler half emits (`Build` in, a map of EMISSION_KEYS out); the server, the editor and the command line show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from mase_server.suggestions import suggest


@dataclass(frozen=True, slots=True)
class Build:
    """How hardware is made of a model.

    precision: the format of a graph that is in none yet.  data: what chooses the places of its points, where it leaves
    them open: a file of tensors or a function that gives batches; "" for what a `# mase: data` comment names, else the
    inputs that the file gives, else random ones.  multipliers: at most so many; None for no budget.  interval:
    at most so many cycles from one sample to the next; None for the shortest within the budget, and with neither, one
    multiplier for each layer.  scope: a module's path or a node's name that is built alone; "" for the whole model.
    max_multipliers, max_memory_bits: above these nothing is emitted, but what it would take is told.
    """

    precision: str = "fixed(8,auto)"
    data: str = ""
    multipliers: int | None = None
    interval: int | None = None
    scope: str = ""
    max_multipliers: int = 8192
    max_memory_bits: int = 1 << 28

    def __post_init__(self) -> None:
        for name in ("precision", "data", "scope"):
            if not isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name} is {value!r}; it takes a text")
        for name in ("multipliers", "interval", "max_multipliers", "max_memory_bits"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ValueError(f"{name} is {value!r}; it takes a whole number from 1")

    def to_wire(self) -> dict[str, Any]:
        """As a map of plain values, under the names of the fields."""
        return asdict(self)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Build:
        """The inverse of `to_wire`; what is missing is as by default. ValueError for an unknown key or a bad value."""
        known = sorted(each.name for each in fields(cls))
        if unknown := sorted(set(data) - {*known}):
            raise ValueError(f"a build has no {', '.join(unknown)}{suggest(unknown[0], known, 'it has')}")
        return replace(cls(), **data)


#: What is told of hardware: the value of the trace child's method "verilog", and of `mase/emitVerilog`.
EMISSION_KEYS = {
    "model": "the model's title",
    "build": "Build.to_wire()",
    "steps": "texts of the steps that were applied to make the graph fit for hardware, the model's pipeline first",
    "weights": "whose values stand in the memories, in words, e.g. 'random weights (seed 0)'; '' where nobody said",
    "accuracy": "map of ACCURACY_KEYS; {} where nothing is emitted",
    "module": "the top module's name",
    "text": 'SystemVerilog of the top module; "" where nothing is emitted',
    "files": "[relative path, bytes] of every file of the folder, the top module first",
    "folder": "absolute path that it was written to, or None",
    "operations": "list of maps of OPERATION_KEYS, in the order of the data",
    "unsupported": "list of {node, operator, why, row, nodes}: without hardware; `text` is then the rest",
    "totals": "map of TOTAL_KEYS, of what has hardware; {} where there is none as it was asked for",
    "refusal": "why nothing was emitted (nothing has hardware, a budget, a ceiling), or None",
    "scopes": "paths of modules that can be built alone as asked, each tried, largest first, at most 20; where refused "
    "or not whole",
}

#: What hardware loses. calibrated: on what the formats that were left open were chosen, in words; None where none was.
#: inputs: on what the rest was measured.  sqnr: of what the hardware gives beside the model's own outputs, in dB, "inf"
#: where nothing differs.  saturated: the share of the rounded values that their formats do not hold, 0 to 1.  None each
#: where it is not known; problem says why, in words.
ACCURACY_KEYS = ("sqnr", "max_error", "saturated", "inputs", "calibrated", "problem")

#: Of one operation of the design. `rows`: indices into the payload's table of nodes.  `lines`: [first, last] in `text`.
OPERATION_KEYS = {
    "name": "the instance's stem", "kind": "a row of hardware/kinds", "module": "the component",
    "nodes": "names of graph nodes", "rows": "list of indices", "lines": "list of [first, last], from 1, both included",
    "scope": "path of the module that it belongs to",
    "estimate": "map of ESTIMATE_KEYS; {} where there is no hardware as it was asked for",
}  # fmt: skip

#: Of one operation, before synthesis. cycles: from one sample to the next.  latency: from an operand's first beat to
#: its own first beat; 0 where it is not known, as in designs with too many beats to follow each.  luts: tables of four
#: inputs.
#: memory_bits: weights, buffers and tables.
ESTIMATE_KEYS = ("multipliers", "luts", "memory_bits", "cycles", "latency")

#: Of the whole. interval: cycles a sample.  latency: from the first beat of a sample to the last of its result.
#: bottlenecks: the names of the slowest operations.
TOTAL_KEYS = ("multipliers", "luts", "memory_bits", "interval", "latency", "bottlenecks")


def is_whole(told: Mapping[str, Any]) -> bool:
    """Was hardware emitted of all that was asked for? told: a map of EMISSION_KEYS."""
    return not told["refusal"] and not told["unsupported"]


#: What a simulation says: the value of `mase/simulate`, and of `mase-server verilog --simulate N --format json`.
#: status: "equal" | "different" | "stood still" | "failed".  first: where the first mismatch is, or None.
SIMULATION_KEYS = {
    "status": "as above", "vectors": "samples compared", "mismatches": "elements that differ",
    "cycles_per_vector": "from the last beat of the first result to that of the last, over the others; None for one",
    "latency": "from the first beat in to the last beat of the first result", "cycles": "all",
    "first": "{output, vector, element, expected, got} or None",
    "folder": "absolute path", "seconds": "{build, run}", "log": "the tool's own words, where it failed",
}  # fmt: skip
