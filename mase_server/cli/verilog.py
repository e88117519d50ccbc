"""`mase-server verilog`: emit a model as hardware, and simulate and synthesise it on request."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mase_server.building import SHELL_SUFFIX, is_whole
from mase_server.cli.applying import Reporter, call
from mase_server.cli.session import Outcome, Wanted, daemon_for, outcome_of
from mase_server.cli.showing import problem_line, problem_map
from mase_server.cli.steps import UsageError
from mase_server.cli.terminal import print_lines, print_styled, say_json
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.slots import wait_for_turn
from mase_server.lsp.pipelines import sqnr_text
from mase_server.lsp.wording import format_count, in_bytes
from mase_server.paths import canonical_path
from mase_server.private import cache_dir
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import Params
from mase_server.protocol.snapshot import share_text
from mase_server.simulation import SimulationError, Synthesis, simulate, synthesise, write_results
from mase_server.simulation.building import digest_contents
from mase_server.simulation.waves import STATES, Wave
from mase_server.visible import align_table_columns, reveal, reveal_lines

#: Results of a simulation in which the hardware is at fault.
_WRONG = frozenset({"different", "stood still"})


@dataclass(frozen=True, slots=True)
class Request:
    """The hardware to emit, and what to do with it.

    build: keys of `building.Build`.  passes: texts of steps to apply first.  folder: the folder to write, None for a
    temporary one.  vectors: the number of random samples to simulate, None for no simulation.  inputs: an .npz file
    with samples to use instead.  stall, reset, wave: as in `simulate`.
    """

    wanted: Wanted
    build: Mapping[str, Any]
    passes: Sequence[str] = ()
    title: str | None = None
    folder: Path | None = None
    overwrite: bool = False
    vectors: int | None = None
    inputs: Path | None = None
    stall: int = 0
    reset: int | None = None
    synthesise: bool = False
    wave: Wave | None = None

    @property
    def simulates(self) -> bool:
        """Is a simulation requested?"""
        return self.vectors is not None or self.inputs is not None

    @property
    def writes(self) -> bool:
        """Must files be written, beyond the top module's text?"""
        return self.folder is not None or self.simulates or self.synthesise

    def order(self, folder: str) -> Params:
        """The parameters of `mase/emitVerilog`."""
        given = {"path": canonical_path(self.wanted.files[0]), "build": dict(self.build), "folder": folder}
        more = {"model": self.title, "vectors": self.vectors, "inputs": self.inputs and str(self.inputs.absolute())}
        overwrite = self.overwrite or self.folder is None
        return {**given, "overwrite": overwrite} | {key: value for key, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Made:
    """The result. outcome: of the file.  emission: with EMISSION_KEYS, {} if there is none; failure says why.
    pass_failed: did a pass fail?

    simulation: of SIMULATION_KEYS.  results: the file with the integers that the hardware gave.
    """

    outcome: Outcome
    emission: Mapping[str, Any] = field(default_factory=dict)
    simulation: Mapping[str, Any] | None = None
    synthesis: Synthesis | None = None
    results: Path | None = None
    failure: str | None = None
    pass_failed: bool = False

    def without_folder(self) -> Made:
        """The same result after its folder was deleted."""
        simulation = None if self.simulation is None else {**self.simulation, "folder": None}
        return replace(self, emission={**self.emission, "folder": None}, simulation=simulation)

    @property
    def status(self) -> int:
        """The exit status: 0 for success, 1 if a pass failed or the results differ, 2 if an output is missing."""
        if self.pass_failed:
            return 1
        ran = self.simulation is None or self.simulation["status"]
        if ran in _WRONG:
            return 1
        whole = bool(self.emission) and is_whole(self.emission)
        return 0 if whole and self.failure is None and ran != "failed" else 2


async def emit_hardware(request: Request, tell: Callable[[str], None]) -> Made:
    """Trace, emit, then simulate and synthesise. UsageError for impossible requests."""
    if (request.stall or request.reset or request.wave) and not request.simulates:
        raise UsageError("--stall, --reset and --wave are for a simulation: add --simulate N or --vectors FILE")
    if request.wave is not None and not request.wave.file.absolute().parent.is_dir():
        raise UsageError(f"--wave: there is no folder {request.wave.file.absolute().parent}")
    if request.build.get("bus") and not request.writes:
        raise UsageError("--bus adds files to the top module: add -o FOLDER")
    with _output_folder(request) as folder:
        if request.folder is None:
            return await _emit_and_verify(request, folder, tell)
        # Two commands that write to the same folder would simulate each other's files.
        lock = cache_dir() / "verilog" / "folders" / digest_contents([folder])
        async with wait_for_turn(lock, lambda: tell(f"waiting for another command that writes to {folder}")):
            return await _emit_and_verify(request, folder, tell)


async def _emit_and_verify(request: Request, folder: str, tell: Callable[[str], None]) -> Made:
    made = await _emit_with_daemon(request, folder, tell)
    if made.emission.get("folder") is None or made.failure is not None:
        return made
    tried = await _simulate_and_synthesise(request, made, Path(made.emission["folder"]), tell)
    return tried if request.folder is not None else tried.without_folder()


@contextmanager
def _output_folder(request: Request) -> Iterator[str]:
    """The folder to write to; "" for none."""
    if request.folder is not None or not request.writes:
        yield "" if request.folder is None else str(request.folder.absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="mase-verilog-") as name:
            yield name


async def _emit_with_daemon(request: Request, folder: str, tell: Callable[[str], None]) -> Made:
    file = request.wanted.files[0]
    path = canonical_path(file)
    async with daemon_for(request.wanted, Reporter(tell)) as daemon:
        status = await daemon.wait(path)
        before = outcome_of(daemon, file, status)
        if before.snapshot is None or not before.snapshot.titles:
            return Made(before, failure="there is no model to make hardware of")
        failure, pass_failed = None, False
        emission: Mapping[str, Any] = {}
        try:
            emission = await _request_emission(daemon, request, folder)
        except PassError as error:
            failure, pass_failed = str(error), error.kind == "pass"
        outcome = outcome_of(daemon, file, status, overlays=True)
        return Made(outcome, emission, failure=failure, pass_failed=pass_failed)


async def _request_emission(daemon: Daemon, request: Request, folder: str) -> Mapping[str, Any]:
    order = request.order(folder)
    place = {key: order[key] for key in ("path", "model") if key in order}
    try:
        for step in map(Step.parse, request.passes):
            given = {"pass": step.name, "arguments": dict(step.arguments)}
            await call(daemon, "mase/applyPass", place | given)
        told: Mapping[str, Any] = await call(daemon, "mase/emitVerilog", order)
        return told
    except PassError as error:
        if error.kind == "argument":
            raise UsageError(str(error)) from None
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


async def _simulate_and_synthesise(request: Request, made: Made, folder: Path, tell: Callable[[str], None]) -> Made:
    """The results of simulating and synthesising the folder."""
    cache = cache_dir()

    def progress(message: str, fraction: float | None) -> None:
        tell(message if fraction is None else f"{message} ({100 * fraction:.0f} %)")

    async with wait_for_turn(cache / "verilog" / "turn", lambda: tell("waiting for another simulation")):
        simulation, results = None, None
        if request.simulates:
            simulation = await simulate(
                folder,
                cache=cache / "simulations",
                progress=progress,
                stall=request.stall,
                reset=request.reset,
                wave=request.wave,
                limit=None,
            )
            results = _write_input_results(request, folder) if simulation["status"] != "failed" else None
        synthesis, failure = None, None
        if request.synthesise:
            try:
                top = made.emission["module"] + (SHELL_SUFFIX if made.emission["build"]["bus"] else "")
                synthesis = await synthesise(folder, top, progress)
            except SimulationError as error:
                failure = str(error)
    return replace(made, simulation=simulation, synthesis=synthesis, results=results, failure=failure)


def _write_input_results(request: Request, folder: Path) -> Path | None:
    """Write the hardware's integers beside the user's own inputs."""
    if request.inputs is None:
        return None
    file = request.inputs.absolute().with_suffix(".hardware.npz")
    write_results(folder, file)
    return file


# The output of `mase-server verilog`: the operations with their estimates, the simulation, the synthesis.

_FIGURES = ("multipliers", "luts", "memory_bits", "cycles", "latency")
_HEAD = ("operation", "layer", "module", *(name.replace("_", " ") for name in _FIGURES))
#: Maximum number of names in a list.
_NAMED = 3
#: Bits of a block of memory, as Yosys counts blocks.
_BLOCK = 16 * 1024
#: Figures of the synthesis -> the estimates they are compared with.
_ESTIMATED = {"luts": "luts", "flip_flops": None, "multipliers": "multipliers", "memories": None}


#: Keys of `records.EmissionRecord`, none of them where nothing could be emitted, and what this command adds.
HardwareReport = dict[str, Any]


def report_hardware(made: Made) -> HardwareReport:
    """The keys of EMISSION_KEYS, plus file, simulation, synthesis, results, problems, failure."""
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
    """Print one JSON object."""
    say_json(report_hardware(made))


def print_text(made: Made) -> None:
    """Print the report for people; if only the text was requested, print the text, and the report on standard error."""
    alone = bool(made.emission) and not made.emission["folder"] and made.simulation is None and made.synthesis is None
    if alone:
        sys.stdout.write(reveal_lines(made.emission["text"]))
        sys.stdout.flush()
    for line in _hardware_lines(made):
        print_styled(line, error=alone)
    for problem in made.outcome.problems:
        print_lines([problem_line(made.outcome.file, problem)], error=alone)
    if made.failure:
        print_styled(f"error: {made.failure}", "bold red", error=alone)


def _hardware_lines(made: Made) -> Iterator[str]:
    if made.emission:
        yield from _emission_lines(made)
    if made.simulation is not None:
        yield from _simulation_lines(made.simulation)
    if made.results is not None:
        yield f"results: {made.results}"
    if made.synthesis is not None:
        yield from _synthesis_lines(made)


def _emission_lines(made: Made) -> Iterator[str]:
    told = made.emission
    yield reveal(f"{made.outcome.file}: {told['model']} -> {told['module']}")
    yield from (f"{number}. {step}" for number, step in enumerate(told["steps"], 1))
    yield from align_table_columns(
        _HEAD, [_operation_row(each) for each in told["operations"] if each["module"]], range(3, len(_HEAD))
    )
    if told["totals"]:
        yield from _totals_lines(told["totals"], " of the rest" if told["unsupported"] else "", told["build"]["target"])
    yield from _accuracy(told)
    if told["scopes"]:
        yield f"parts that can be built alone: {', '.join(told['scopes'])} (--scope {told['scopes'][0]})"
    if told["folder"]:
        size = sum(size for _, size in told["files"])
        yield f"written: {format_count(len(told['files']), 'file')}, {in_bytes(size)}, in {told['folder']}"


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


def _operation_row(operation: Mapping[str, Any]) -> list[str]:
    figures = (_format_figure(name, operation["estimate"].get(name)) for name in _FIGURES)
    return [operation["name"], operation["scope"], operation["module"], *figures]


def _format_figure(name: str, value: int | None) -> str:
    """A dash for an unknown time, and for every figure of missing hardware."""
    return f"{value:,}" if value or (value == 0 and name not in ("cycles", "latency")) else "-"


def _totals_lines(totals: Mapping[str, Any], what: str, target: str) -> Iterator[str]:
    """The lines with the totals. what: " of the rest" if some nodes have no hardware.  target: the part, if any."""
    costs = (
        format_count(totals["multipliers"], "multiplier"),
        f"{totals['luts']:,} LUTs",
        _memory_text(totals["memory_bits"]),
    )
    pace = f"a sample every {_cycles_text(totals['interval'])}, latency {_cycles_text(totals['latency'])}"
    copies = f"; {totals['copies']} copies take samples in turn" if "copies" in totals else ""
    yield f"estimate{what}: {', '.join(costs)}; {pace}{copies}"
    if "samples" in totals:
        rate = f"{totals['clock'] / 1e6:,.0f} MHz, {totals['samples']:,.0f} samples a second"
        yield f"estimate{what} on {target}: {rate}"
    if rams := totals.get("rams"):
        listed = (f"{count} of {words:,} words of {bits:,} bits" for words, bits, count in rams)
        yield f"memories for macros: {', '.join(listed)}"
    if totals["reads"]:
        waiting = _first_names(totals["waiting"]) or "no layer"
        yield f"weights from outside: read in {_cycles_text(totals['reads'])} a sample; waiting for them: {waiting}"
    if totals["bottlenecks"]:
        yield f"slowest: {_first_names(totals['bottlenecks'])}"


def _first_names(names: Sequence[str]) -> str:
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return ", ".join(names[:_NAMED]) + more


def _memory_text(bits: int) -> str:
    return f"{in_bytes(bits / 8)} of memory"


def _cycles_text(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,} cycles" if isinstance(number, int) else f"{number:,.1f} cycles"


def _simulation_lines(told: Mapping[str, Any]) -> Iterator[str]:
    seconds = f"built in {told['seconds']['build']:.1f} s, run in {told['seconds']['run']:.1f} s"
    if told["status"] == "failed":
        yield f"simulation failed: {told['log']}"
        return
    yield f"simulation: {told['status']}; {_simulation_counts(told)} ({seconds})"
    if told["first"] is not None:
        place = "first mismatch: {output}, vector {vector}, element {element}: {got} instead of {expected}"
        yield place.format_map(told["first"])
    yield from told["log"].splitlines()
    if told["wave"] is not None:
        yield from _wave_lines(told["wave"])


def _wave_lines(wave: Mapping[str, Any]) -> Iterator[str]:
    """The share of the cycles in which each operation works, or waits for something."""
    cycles = wave["cycles"]
    yield f"waveform: {wave['file']}, {cycles:,} cycles from {wave['begin']:,} on; its picture: {wave['picture']}"
    rows = [
        [
            each["name"],
            *(f"{100 * sum(counts) / max(cycles, 1):.0f} %" for counts in zip(*each["columns"], strict=True)),
        ]
        for each in wave["operations"]
    ]
    yield from align_table_columns(("operation", *STATES), rows, range(1, len(STATES) + 1))


def _simulation_counts(told: Mapping[str, Any]) -> str:
    pace = told["cycles_per_vector"]
    counts = [format_count(told["vectors"], "vector"), f"{told['mismatches']:,} mismatches"]
    counts += [] if pace is None else [f"{_cycles_text(pace)} per vector"]
    return ", ".join([*counts, f"latency {_cycles_text(told['latency'])}"])


def _synthesis_lines(made: Made) -> Iterator[str]:
    """Yosys's counts beside the estimates."""
    assert made.synthesis is not None
    counts: Mapping[str, Any] = made.synthesis.to_wire()
    totals = made.emission["totals"]
    parts = []
    for name, key in _ESTIMATED.items():
        estimate = f" (estimated {totals[key]:,})" if key else ""
        parts.append(f"{counts[name]:,} {name.replace('_', ' ').replace('luts', 'LUTs')}{estimate}")
    yield f"synthesis: {', '.join(parts)}; a memory has {in_bytes(_BLOCK / 8)}"
