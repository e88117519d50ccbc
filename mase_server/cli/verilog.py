"""`mase-server verilog`: a model as hardware, simulated and synthesised where that is asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mase_server.building import is_whole
from mase_server.cli.applying import Reporter, call
from mase_server.cli.session import Outcome, Wanted, daemon_for, outcome_of
from mase_server.cli.steps import UsageError
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.turns import turn
from mase_server.directories import cache_dir
from mase_server.paths import canonical
from mase_server.simulation import SimulationError, Synthesis, simulate, synthesise, write_results
from mase_server.simulation.kept import digest

#: How a simulation ends where the hardware is at fault.
_WRONG = frozenset({"different", "stood still"})


@dataclass(frozen=True, slots=True)
class Request:
    """The hardware to emit, and what to do with it.

    build: keys of `building.Build`.  passes: texts of steps that come first.  folder: where all is written, None for a
    place that is thrown away.  vectors: random samples to simulate, None for no simulation.  inputs: an .npz file with
    samples in their place.  stall, reset: as `simulate` has them.
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

    @property
    def simulates(self) -> bool:
        """Is the hardware run?"""
        return self.vectors is not None or self.inputs is not None

    @property
    def writes(self) -> bool:
        """Is more wanted than the top module's text?"""
        return self.folder is not None or self.simulates or self.synthesise

    def order(self, folder: str) -> dict[str, Any]:
        """The parameters of `mase/emitVerilog`."""
        given = {"path": canonical(self.wanted.files[0]), "build": dict(self.build), "folder": folder}
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
        """The same, when what was written is gone."""
        simulation = None if self.simulation is None else {**self.simulation, "folder": None}
        return replace(self, emission={**self.emission, "folder": None}, simulation=simulation)

    @property
    def status(self) -> int:
        """The exit status: 0 as asked for, 1 a pass failed or the hardware gives other integers, 2 there is none, or no
        simulation."""
        if self.pass_failed:
            return 1
        ran = self.simulation is None or self.simulation["status"]
        if ran in _WRONG:
            return 1
        whole = bool(self.emission) and is_whole(self.emission)
        return 0 if whole and self.failure is None and ran != "failed" else 2


async def emit(request: Request, tell: Callable[[str], None]) -> Made:
    """Trace, emit, then simulate and synthesise. UsageError for what cannot be meant."""
    if (request.stall or request.reset) and not request.simulates:
        raise UsageError("--stall and --reset are for a simulation: add --simulate N or --vectors FILE")
    with _place(request) as folder:
        if request.folder is None:
            return await _made(request, folder, tell)
        # Two commands that write to one folder would simulate each other's files.
        lock = cache_dir() / "verilog" / "folders" / digest([folder])
        async with turn(lock, lambda: tell(f"waiting for another command that writes to {folder}")):
            return await _made(request, folder, tell)


async def _made(request: Request, folder: str, tell: Callable[[str], None]) -> Made:
    made = await _emitted(request, folder, tell)
    if made.emission.get("folder") is None or made.failure is not None:
        return made
    tried = await _tried(request, made, Path(made.emission["folder"]), tell)
    return tried if request.folder is not None else tried.without_folder()


@contextmanager
def _place(request: Request) -> Iterator[str]:
    """The folder to write to; "" for none."""
    if request.folder is not None or not request.writes:
        yield "" if request.folder is None else str(request.folder.absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="mase-verilog-") as name:
            yield name


async def _emitted(request: Request, folder: str, tell: Callable[[str], None]) -> Made:
    file = request.wanted.files[0]
    path = canonical(file)
    async with daemon_for(request.wanted, Reporter(tell)) as daemon:
        status = await daemon.wait(path)
        before = outcome_of(daemon, file, status)
        if before.snapshot is None or not before.snapshot.titles:
            return Made(before, failure="there is no model to make hardware of")
        failure, pass_failed = None, False
        emission: Mapping[str, Any] = {}
        try:
            emission = await _asked(daemon, request, folder)
        except PassError as error:
            failure, pass_failed = str(error), error.kind == "pass"
        outcome = outcome_of(daemon, file, status, overlays=True)
        return Made(outcome, emission, failure=failure, pass_failed=pass_failed)


async def _asked(daemon: Daemon, request: Request, folder: str) -> Mapping[str, Any]:
    order = request.order(folder)
    place = {key: order[key] for key in ("path", "model") if key in order}
    try:
        if request.passes:
            await call(daemon, "mase/setPipeline", place | {"steps": list(request.passes)})
        told: Mapping[str, Any] = await call(daemon, "mase/emitVerilog", order)
        return told
    except PassError as error:
        if error.kind == "argument":
            raise UsageError(str(error)) from None
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


async def _tried(request: Request, made: Made, folder: Path, tell: Callable[[str], None]) -> Made:
    """The results of simulating and synthesising the folder."""
    cache = cache_dir()

    def progress(message: str, fraction: float | None) -> None:
        tell(message if fraction is None else f"{message} ({100 * fraction:.0f} %)")

    async with turn(cache / "verilog" / "turn", lambda: tell("waiting for another simulation")):
        simulation, results = None, None
        if request.simulates:
            wishes: dict[str, Any] = {"stall": request.stall, "reset": request.reset, "limit": None}
            simulation = await simulate(folder, cache=cache / "simulations", progress=progress, **wishes)
            results = _written(request, folder) if simulation["status"] != "failed" else None
        synthesis, failure = None, None
        if request.synthesise:
            try:
                synthesis = await synthesise(folder, made.emission["module"], progress)
            except SimulationError as error:
                failure = str(error)
    return replace(made, simulation=simulation, synthesis=synthesis, results=results, failure=failure)


def _written(request: Request, folder: Path) -> Path | None:
    """The integers beside the person's own inputs."""
    if request.inputs is None:
        return None
    file = request.inputs.absolute().with_suffix(".hardware.npz")
    write_results(folder, file)
    return file
