"""The output of `mase-server verilog`: the operations with their estimates, the simulation, the synthesis."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mase_server.cli.lines import print_lines, print_styled
from mase_server.cli.listing import problem_line
from mase_server.cli.report import problem_map
from mase_server.cli.tables import columns
from mase_server.cli.terminal import say_json
from mase_server.cli.verilog import Made
from mase_server.lsp.figures import counted, in_bytes
from mase_server.lsp.pipelines import share_text, sqnr_text
from mase_server.visible import reveal, reveal_lines

_FIGURES = ("multipliers", "luts", "memory_bits", "cycles", "latency")
_HEAD = ("operation", "layer", "module", *(name.replace("_", " ") for name in _FIGURES))
#: So many names of a kind are told.
_NAMED = 3
#: Bits of a block of memory, as Yosys counts blocks.
_BLOCK = 16 * 1024
#: What synthesis counts -> the estimate that it stands beside.
_ESTIMATED = {"luts": "luts", "flip_flops": None, "multipliers": "multipliers", "memories": None}


def report(made: Made) -> dict[str, Any]:
    """Keys of EMISSION_KEYS, and file, simulation, synthesis, results, problems, failure."""
    return {
        **made.emission,
        "file": made.outcome.file,
        "simulation": made.simulation,
        "synthesis": None if made.synthesis is None else made.synthesis.to_wire(),
        "results": None if made.results is None else str(made.results),
        "problems": [problem_map(problem) for problem in made.outcome.problems],
        "failure": made.failure,
    }


def print_json(made: Made) -> None:
    """One object."""
    say_json(report(made))


def print_text(made: Made) -> None:
    """For people: the report; where nothing was done with the text, the text, and the report on standard error."""
    alone = bool(made.emission) and not made.emission["folder"] and made.simulation is None and made.synthesis is None
    if alone:
        sys.stdout.write(reveal_lines(made.emission["text"]))
        sys.stdout.flush()
    for line in _lines(made):
        print_styled(line, error=alone)
    for problem in made.outcome.problems:
        print_lines([problem_line(made.outcome.file, problem)], error=alone)
    if made.failure:
        print_styled(f"error: {made.failure}", "bold red", error=alone)


def _lines(made: Made) -> Iterator[str]:
    if made.emission:
        yield from _emitted(made)
    if made.simulation is not None:
        yield from _simulated(made.simulation)
    if made.results is not None:
        yield f"results: {made.results}"
    if made.synthesis is not None:
        yield from _synthesised(made)


def _emitted(made: Made) -> Iterator[str]:
    told = made.emission
    yield reveal(f"{made.outcome.file}: {told['model']} -> {told['module']}")
    yield from (f"{number}. {step}" for number, step in enumerate(told["steps"], 1))
    yield from columns(_HEAD, [_row(each) for each in told["operations"] if each["module"]], range(3, len(_HEAD)))
    if told["totals"]:
        yield from _totals(told["totals"], " of the rest" if told["unsupported"] else "")
    yield from _accuracy(told)
    if told["scopes"]:
        yield f"parts that can be built alone: {', '.join(told['scopes'])} (--scope {told['scopes'][0]})"
    if told["folder"]:
        size = sum(size for _, size in told["files"])
        yield f"written: {counted(len(told['files']), 'file')}, {in_bytes(size)}, in {told['folder']}"


def _accuracy(told: Mapping[str, Any]) -> Iterator[str]:
    accuracy = told["accuracy"]
    if accuracy.get("calibrated"):
        yield f"formats calibrated on {accuracy['calibrated']}"
    if accuracy.get("problem"):
        yield f"accuracy: not known: {accuracy['problem']}"
    elif accuracy.get("inputs"):
        known = [] if accuracy["sqnr"] is None else [f"SQNR {sqnr_text(accuracy['sqnr'])}"]
        known += (
            [] if accuracy["saturated"] is None else [f"{share_text(accuracy['saturated'])} of the values saturated"]
        )
        weights = f" with {told['weights']}" if told["weights"] else ""
        yield f"accuracy: {', '.join(known) or 'not known'}, on {accuracy['inputs']}{weights}"


def _row(operation: Mapping[str, Any]) -> list[str]:
    figures = (_figure(name, operation["estimate"].get(name)) for name in _FIGURES)
    return [operation["name"], operation["scope"], operation["module"], *figures]


def _figure(name: str, value: int | None) -> str:
    """A dash for a time that is not known, and for all of hardware that there is not."""
    return f"{value:,}" if value or (value == 0 and name not in ("cycles", "latency")) else "-"


def _totals(totals: Mapping[str, Any], what: str) -> Iterator[str]:
    """what: " of the rest" where some of it has no hardware."""
    costs = (counted(totals["multipliers"], "multiplier"), f"{totals['luts']:,} LUTs", _memory(totals["memory_bits"]))
    pace = f"a sample every {_cycles(totals['interval'])}, latency {_cycles(totals['latency'])}"
    yield f"estimate{what}: {', '.join(costs)}; {pace}"
    if totals["bottlenecks"]:
        yield f"slowest: {_some(totals['bottlenecks'])}"


def _some(names: Sequence[str]) -> str:
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return ", ".join(names[:_NAMED]) + more


def _memory(bits: int) -> str:
    return f"{in_bytes(bits / 8)} of memory"


def _cycles(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,} cycles" if isinstance(number, int) else f"{number:,.1f} cycles"


def _simulated(told: Mapping[str, Any]) -> Iterator[str]:
    seconds = f"built in {told['seconds']['build']:.1f} s, run in {told['seconds']['run']:.1f} s"
    if told["status"] == "failed":
        yield f"simulation failed: {told['log']}"
        return
    yield f"simulation: {told['status']}; {_counts(told)} ({seconds})"
    if told["first"] is not None:
        place = "first mismatch: {output}, vector {vector}, element {element}: {got} instead of {expected}"
        yield place.format_map(told["first"])
    yield from told["log"].splitlines()


def _counts(told: Mapping[str, Any]) -> str:
    pace = told["cycles_per_vector"]
    counts = [counted(told["vectors"], "vector"), f"{told['mismatches']:,} mismatches"]
    counts += [] if pace is None else [f"{_cycles(pace)} a vector"]
    return ", ".join([*counts, f"latency {_cycles(told['latency'])}"])


def _synthesised(made: Made) -> Iterator[str]:
    """The counts of Yosys beside the estimates."""
    assert made.synthesis is not None
    counts, totals = made.synthesis.to_wire(), made.emission["totals"]
    parts = []
    for name, key in _ESTIMATED.items():
        estimate = f" (estimated {totals[key]:,})" if key else ""
        parts.append(f"{counts[name]:,} {name.replace('_', ' ').replace('luts', 'LUTs')}{estimate}")
    yield f"synthesis: {', '.join(parts)}; a memory has {in_bytes(_BLOCK / 8)}"
