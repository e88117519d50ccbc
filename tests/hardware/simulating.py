"""Emitted designs in Verilator, built as the components' own tests build theirs: shared objects, kept by content."""

import subprocess
from dataclasses import dataclass

from tests.rtl.build import RTL, run, simulator
from tests.rtl.test_lint import slang

#: What a design is tried with: stalls on both sides, sinks that wait for valid, a reset in flight.
TRIALS = ((), ("--stall", "40"), ("--late",), ("--stall", "30", "--seed", "5", "--reset", "70"))


@dataclass(frozen=True, slots=True)
class Stream:
    """What became of one output: beats that came, that should have come, and that were wrong.

    sample_cycle: when the first sample was whole.
    """

    moved: int
    total: int
    mismatches: int
    first_cycle: int
    last_cycle: int
    sample_cycle: int

    def interval(self, samples):
        """Cycles from one sample to the next."""
        return (self.last_cycle - self.sample_cycle) / (samples - 1)


def simulated(made, folder, *options):
    """The exit status of one run, and its output streams."""
    status, lines = _run(made, folder, options)
    return status, [_stream(words) for words in lines if words[0] == "out"]


def latency(made, folder):
    """Cycles from the first beat in to the last of the first result."""
    status, lines = _run(made, folder, ())
    assert status == 0
    begin = min(int(words[4]) for words in lines if words[0] == "in")
    return max(_stream(words).sample_cycle for words in lines if words[0] == "out") - begin


def _run(made, folder, options):
    made.write(folder)
    roots = [path.removeprefix("rtl/").removesuffix(".sv") for path in made.files if path.startswith("rtl/")]
    own = [path for path in made.files["files.f"].split() if not path.startswith("rtl/")]
    other = {name: folder / "rtl" / f"{name}.sv" for name in roots if made.files[f"rtl/{name}.sv"] != _component(name)}
    program = simulator("".join(made.files[path] for path in (*own, "sim/bench.sv")), roots, replaced=other)
    done = subprocess.run([program, "sim/plan", *options], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, [line.split() for line in done.stdout.splitlines() if line]


def _component(name):
    return (RTL / f"{name}.sv").read_text()


def check(made, folder, trials=TRIALS):
    """Nobody has a warning about it, and every integer of every output is right, in every trial."""
    check_text(made, folder)
    for options in trials:
        status, streams = simulated(made, folder, *options)
        assert (status, [each.mismatches for each in streams]) == (0, [0] * len(streams)), (options, streams)
        assert all(each.moved == each.total > 0 for each in streams)


def check_text(made, folder):
    """Neither Verilator nor slang has anything to say of a folder."""
    made.write(folder)
    run(["verilator", "--lint-only", "-Wall", "--top-module", made.name, "-f", "files.f"], cwd=folder)
    listed = (folder / "files.f").read_text().split()
    assert slang([folder / path for path in listed], made.name) == []


def _stream(words):
    _, _, moved, total, mismatches, _, _, _, first, last, sample, _ = words
    return Stream(*map(int, (moved, total, mismatches, first, last, sample)))
