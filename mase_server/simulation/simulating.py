"""`simulate`: everything from an emitted folder to what is told of its simulation."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from mase_server.simulation.building import Progress, Sources, program
from mase_server.simulation.comparing import differences
from mase_server.simulation.processes import SimulationError
from mase_server.simulation.running import Told, drive
from mase_server.simulation.streams import Stream, streams
from mase_server.simulation.tools import tools


def silent(message: str, fraction: float | None) -> None:
    """Tell nobody."""


async def simulate(
    folder: Path,
    *,
    cache: Path,
    stall: int = 0,
    late: bool = False,
    reset: int | None = None,
    seed: int = 1,
    limit: float | None = 600.0,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Build and run an emitted folder, and compare every integer: a map of SIMULATION_KEYS.

    cache: where programs are kept by the content of the sources; new weights or vectors need no new one.  stall: both
    sides pause in so many percent of the cycles.  late: sinks wait for valid.  reset: at this cycle, in flight.
    limit: seconds for all, None for no end.  progress: is told how far it is.  What goes wrong is told in "log", with
    status "failed"; cancelling ends all programs.
    """
    options = ["--stall", str(stall), "--seed", str(seed)]
    options += ["--late"] if late else []
    options += [] if reset is None else ["--reset", str(reset)]
    try:
        async with asyncio.timeout(limit):
            return await _simulated(folder, cache, options, progress)
    except SimulationError as error:
        return _failed(folder, str(error))
    except TimeoutError:
        return _failed(folder, f"the simulation did not end within {limit} s; use fewer vectors")


async def _simulated(folder: Path, cache: Path, options: list[str], progress: Progress) -> dict[str, Any]:
    begin = time.perf_counter()
    known = await asyncio.to_thread(streams, folder)
    made = await program(_sources(folder), await tools(), cache, progress)
    built = time.perf_counter()
    progress("running", None)
    told = await drive(made, folder, options, lambda share: progress("running", share))
    if "--reset" in options and told.reset is None:
        raise SimulationError(f"the simulation ended after {told.cycles} cycles, before the reset: reset earlier")
    ran = time.perf_counter()
    outputs = [stream for stream in known if stream.kind == "out"]
    return await asyncio.to_thread(_told, folder, outputs, told, {"build": built - begin, "run": ran - built})


def _sources(folder: Path) -> Sources:
    try:
        listed = (folder / "files.f").read_text(encoding="utf-8").split()
    except OSError as error:
        raise SimulationError(f"{folder} was not emitted by mase-server: {error}") from None
    return Sources([*(folder / name for name in listed), folder / "sim" / "bench.sv"], folder / "sim")


def _told(folder: Path, outputs: list[Stream], told: Told, seconds: dict[str, float]) -> dict[str, Any]:
    vectors = min(each.total * stream.lanes // stream.size for each, stream in zip(told.outputs, outputs, strict=True))
    wrong = differences(folder, outputs)
    return {
        "status": told.status,
        "vectors": vectors,
        "mismatches": wrong.count,
        "cycles_per_vector": told.cycles_per_vector(vectors),
        "latency": told.latency,
        "cycles": told.cycles,
        "first": wrong.first and wrong.first.to_wire(),
        "folder": str(folder.absolute()),
        "seconds": seconds,
        "log": _complaints(told),
    }


def _complaints(told: Told) -> str:
    """The faults other than wrong integers."""
    found = []
    for each in told.outputs:
        if each.moved < each.total:
            found.append(f"{each.name}: {each.moved} of {each.total} beats came")
        if each.changed:
            found.append(f"{each.name}: {each.changed} beats were withdrawn or altered while they waited")
        if each.surplus:
            found.append(f"{each.name}: {each.surplus} beats too many")
    return "\n".join(found)


def _failed(folder: Path, log: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("cycles_per_vector", "latency", "first"))
    counts = dict.fromkeys(("vectors", "mismatches", "cycles"), 0)
    seconds = {"build": 0.0, "run": 0.0}
    return {"status": "failed", **counts, **nothing, "folder": str(folder.absolute()), "seconds": seconds, "log": log}
