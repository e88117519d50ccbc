"""One run of a program that simulates a design: what the driver said of every stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mase_server.simulation.processes import SimulationError, run

_PLAN = Path("sim") / "plan"
#: What a line of the driver begins with that tells how far it is.
_SHARE = "progress"
#: What the driver's exit status means; anything else is a failure.
STATUSES = {0: "equal", 1: "different", 2: "stood still"}


@dataclass(frozen=True, slots=True)
class Given:
    """The traffic of one input: beats given, beats in all, cycles of the first and the last one (-1: none)."""

    name: str
    moved: int
    total: int
    first_cycle: int
    last_cycle: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The traffic of one output.

    moved: beats that came, of `total`.  mismatches: beats that differ.  changed: beats that were withdrawn or altered
    while they waited.  surplus: beats too many.  sample_cycle: of the first sample's last beat.  -1: none.
    """

    name: str
    moved: int
    total: int
    mismatches: int
    first_mismatch: int
    changed: int
    surplus: int
    first_cycle: int
    last_cycle: int
    sample_cycle: int


@dataclass(frozen=True, slots=True)
class Told:
    """The report of a run. status: as in SIMULATION_KEYS.  reset: beats in and out before it; None without a reset."""

    status: str
    inputs: tuple[Given, ...]
    outputs: tuple[Taken, ...]
    reset: tuple[int, int] | None = None

    @property
    def cycles(self) -> int:
        """From the end of reset to the last beat."""
        ends = [each.last_cycle for each in self.inputs] + [each.last_cycle for each in self.outputs]
        return 1 + max(ends, default=-1)

    @property
    def latency(self) -> int | None:
        """Cycles from the first beat in to the last beat of the first result; None where that did not come."""
        ends = [each.sample_cycle for each in self.outputs]
        begins = [each.first_cycle for each in self.inputs if each.first_cycle >= 0]
        return max(ends) - min(begins, default=0) if ends and min(ends) >= 0 else None

    def cycles_per_vector(self, vectors: int) -> float | None:
        """Between results after the first one; None where there is none or where not all came."""
        if vectors < 2 or any(each.moved < each.total for each in self.outputs):
            return None
        return max((each.last_cycle - each.sample_cycle) / (vectors - 1) for each in self.outputs)


async def drive(program: Path, folder: Path, options: Sequence[str], on_share: Callable[[float], None]) -> Told:
    """Run a program in its emitted folder. SimulationError where it did not get to compare anything.

    on_share: is told now and then which share of the results came.
    """

    def heard(line: str) -> None:
        word, _, share = line.partition(" ")
        if word == _SHARE:
            on_share(float(share))

    done = await run([program, _PLAN, "--progress", *options], folder, heard)
    errors = "".join(f"{line}\n" for line in done.errors.splitlines() if not line.startswith(_SHARE))
    if done.status not in STATUSES:
        raise SimulationError(f"the simulation ended with {done.status}:\n{done.output}{errors}")
    lines = [line.split() for line in done.output.splitlines()]
    inputs = tuple(Given(words[1], *map(int, words[2:])) for words in lines if words[:1] == ["in"])
    outputs = tuple(Taken(words[1], *map(int, words[2:])) for words in lines if words[:1] == ["out"])
    if not outputs:
        raise SimulationError(f"the simulation told of no output:\n{done.output}{errors}")
    resets = [(int(words[2]), int(words[3])) for words in lines if words[:1] == ["reset"]]
    return Told(STATUSES[done.status], inputs, outputs, resets[0] if resets else None)
