"""Any number of components, each with its own streams, in one simulation: what goes in, and what has to come out."""

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mase_server.hardware.memories import words_to_hexadecimal
from tests.rtl.build import simulator


@dataclass(frozen=True, slots=True)
class Stream:
    """The beats of one port, each as one integer of `width` bits."""

    width: int
    beats: list[int]


@dataclass(frozen=True, slots=True)
class Case:
    """A component with its parameters, the beats of its ports, and the contents of its memories.

    memories: the parameter that names the file -> its words (width in bits, words).
    body: what to instantiate in place of the component alone; `{port}`, `{port_valid}`, `{port_ready}` are its wires,
    `{number}` is in the names of its memories.
    uses: the components that the body instantiates.  made: modules that stand in no file; NUMBER is in
    their names.
    """

    module: str
    parameters: Mapping[str, int]
    inputs: Mapping[str, Stream]
    outputs: Mapping[str, Stream]
    memories: Mapping[str, tuple[int, list[int]]] = field(default_factory=dict)
    body: str = ""
    uses: tuple[str, ...] = ()
    made: str = ""

    def __str__(self):
        return f"{self.module}({', '.join(f'{name}={value}' for name, value in self.parameters.items())})"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an output stream. `interval`: cycles per beat between its first and its last one."""

    case: Case
    moved: int
    total: int
    mismatches: int
    first_mismatch: int
    changed: int
    surplus: int
    first_cycle: int
    last_cycle: int
    sample_cycle: int
    mismatch_cycle: int
    got: list[int]

    @property
    def fine(self):
        return self.moved == self.total and not (self.mismatches or self.changed or self.surplus)

    def __str__(self):
        at = self.first_mismatch
        where = f", first at beat {at}: {self.got[at]:x}" if at >= 0 else ""
        return (
            f"{self.case}: {self.moved} of {self.total} beats, {self.mismatches} wrong{where}, "
            f"{self.changed} changed while waiting, {self.surplus} too many"
        )


class Bench:
    """Cases in one program, which runs any number of times."""

    def __init__(self, cases, optimise="-O0", replaced=None):
        self.cases = cases
        roots = [name for case in cases for name in (case.uses or (case.module,))]
        self.program = simulator(_top(cases), roots, optimise, replaced)

    def run(self, *options):
        """One result for each output stream. Options are those of the driver."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _write(self.cases, folder)
            command = [str(self.program), "plan", *map(str, options)]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 1, 2), f"exit {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            return _results(self.cases, folder, done.stdout)

    def check(self, *options):
        """Run, and every beat of every stream has to be right."""
        wrong = [str(result) for result in self.run(*options) if not result.fine]
        assert not wrong, "\n".join(wrong)

    def check_all(self):
        """Without stalls, with 40 % of them on both sides, with sinks that wait for valid, and with reset in flight."""
        self.check()
        self.check("--stall", 40, "--seed", 2)
        self.check("--late")
        self.check("--stall", 40, "--seed", 3, "--reset", 53)


def _ports(cases, side):
    """(case number, port, stream, first word, bit) of all streams of one side."""
    word, found = 0, []
    for number, case in enumerate(cases):
        for port, stream in getattr(case, side).items():
            found.append((number, port, stream, word, len(found)))
            word += (stream.width + 31) // 32
    return found


def _top(cases):
    sides = {"in": _ports(cases, "inputs"), "out": _ports(cases, "outputs")}
    bits = {side: 32 * max(3, sum((s.width + 31) // 32 for _, _, s, _, _ in ports)) for side, ports in sides.items()}
    flags = {side: max(96, len(ports)) for side, ports in sides.items()}
    wires = [{} for _ in cases]
    for side, ports in sides.items():
        for number, port, stream, word, bit in ports:
            wires[number][port] = f"{side}_data[{32 * word}+:{stream.width}]"
            wires[number][f"{port}_valid"] = f"{side}_valid[{bit}]"
            wires[number][f"{port}_ready"] = f"{side}_ready[{bit}]"
    bodies = "\n".join(_body(number, case, wires[number]) for number, case in enumerate(cases))
    made = "".join(case.made.replace("NUMBER", str(number)) for number, case in enumerate(cases))
    return f"""{made}module bench (
    input  logic clk,
    input  logic rst,
    input  logic [{bits["in"] - 1}:0] in_data,
    input  logic [{flags["in"] - 1}:0] in_valid,
    output logic [{flags["in"] - 1}:0] in_ready,
    output logic [{bits["out"] - 1}:0] out_data,
    output logic [{flags["out"] - 1}:0] out_valid,
    input  logic [{flags["out"] - 1}:0] out_ready
);
{bodies}
endmodule
"""


def _body(number, case, wires):
    if case.body:
        return f"if (1) begin : case_{number}\n{case.body.format(number=number, **wires)}\nend"
    files = {name: f'"{_file(number, name)}"' for name in case.memories}
    parameters = ", ".join(f".{name}({value})" for name, value in {**case.parameters, **files}.items())
    connections = ", ".join(f".{port}({wire})" for port, wire in wires.items())
    return f"  {case.module} #({parameters}) case_{number} (.clk, .rst, {connections});"


def _file(number, name):
    return f"case_{number}_{name.lower()}.mem"


def _write(cases, folder):
    plan = []
    for side, kind in (("inputs", "in"), ("outputs", "out")):
        for number, port, stream, word, _ in _ports(cases, side):
            path = f"{number}.{port}.hex"
            (folder / path).write_text(words_to_hexadecimal(stream.beats, stream.width))
            plan.append(f"{kind} {number}.{port} {word} {stream.width} {path}\n")
    (folder / "plan").write_text("".join(plan))
    for number, case in enumerate(cases):
        for name, (width, words) in case.memories.items():
            (folder / _file(number, name)).write_text(words_to_hexadecimal(words, width))


def _results(cases, folder, text):
    found = []
    for line in text.splitlines():
        kind, name, *numbers = line.split(" ")
        if kind == "out":
            got = [int(beat, 16) for beat in (folder / f"{name}.hex.got").read_text().split()]
            found.append(Result(cases[int(name.split(".")[0])], *map(int, numbers), got))
    return found
