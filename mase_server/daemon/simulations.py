"""Simulate the hardware of models: at most one simulation per model, and one at a time on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mase_server.daemon.pipelines import PassError
from mase_server.daemon.slots import end_tasks, wait_for_turn
from mase_server.daemon.status import Listener
from mase_server.daemon.verilog import Verilog
from mase_server.private import describe_os_error
from mase_server.protocol.records import EmissionRecord, SimulationRecord
from mase_server.simulation import simulate
from mase_server.simulation.waves import WAVE, Wave

#: Maximum number of emitted folders of other models that are kept.
_SIMULATIONS_KEPT = 16
#: A stall in this percentage of the cycles would stop everything.
_ALWAYS = 100


class Simulate(Protocol):
    """The part of `simulation.simulate` that is needed here."""

    async def __call__(
        self, folder: Path, *, cache: Path, stall: int, progress: Any, wave: Wave | None
    ) -> SimulationRecord:
        """Simulate an emitted folder; returns a map of `building.SIMULATION_KEYS`."""


class Simulations:
    """Simulations of models. cache_dir: the place of their folders and programs."""

    def __init__(self, verilog: Verilog, listener: Listener, cache_dir: Path, run: Simulate = simulate) -> None:
        self._verilog, self._listener = verilog, listener
        self._cache, self._simulate = cache_dir, run
        self._running: dict[tuple[str, str], asyncio.Task[SimulationRecord]] = {}

    async def simulate(
        self,
        path: str,
        title: str | None,
        *,
        vectors: int | None = None,
        inputs: str = "",
        stall: int = 0,
        wave: bool = False,
    ) -> SimulationRecord:
        """Simulate the present text, with the model's or the settings' build: a map of `building.SIMULATION_KEYS`.

        vectors, inputs: as in `Verilog.emit`.  stall: both sides pause in this percentage of the cycles.  wave: is a
        waveform recorded in the folder?
        A running simulation of the same model is stopped.  PassError if there is nothing to simulate, ValueError for
        impossible parameters.
        """
        if not 0 <= stall < _ALWAYS:
            raise ValueError(f"stall is {stall}; it takes percents of the cycles, from 0 to {_ALWAYS - 1}")
        title = await self._verilog.title(path, title)
        before = self._running.get((path, title))
        work = self._run_after(before, path, title, stall, wave, vectors=vectors, inputs=inputs)
        self._running[path, title] = task = asyncio.create_task(work)
        task.add_done_callback(lambda done: self._forget_task(path, title, done))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            raise PassError(
                "cancelled", f"the simulation of {title} was stopped: another one began, or the server ends"
            )
        return task.result()

    async def shutdown(self) -> None:
        """Stop all simulations."""
        await end_tasks(self._running.values())

    async def _run_after(
        self, before: asyncio.Task[Any] | None, path: str, title: str, stall: int, wave: bool, **order: Any
    ) -> SimulationRecord:
        if before is not None:
            before.cancel()
            await asyncio.wait((before,))
        try:
            return await self._simulate_model(path, title, stall, wave, order)
        except OSError as error:
            told = f"nothing is simulated, since its files cannot be kept: {describe_os_error(error)}"
            raise PassError("internal", told) from error

    async def _simulate_model(
        self, path: str, title: str, stall: int, wave: bool, order: Mapping[str, Any]
    ) -> SimulationRecord:
        folder = self._get_folder(path, title)
        await asyncio.to_thread(_make_room, folder)
        told = (await self._verilog.make(path, title, folder=str(folder), overwrite=True, **order)).told
        if told["folder"] is None:
            raise PassError("argument", f"there is nothing to simulate: {_describe_missing_hardware(told)}")
        say = partial(self._listener.verilog_progress, path, title)
        async with wait_for_turn(self._cache / "verilog" / "turn", lambda: say("waiting for another simulation", None)):
            file = Wave(folder / WAVE) if wave else None
            return await self._simulate(folder, cache=self._cache / "simulations", stall=stall, progress=say, wave=file)

    def _get_folder(self, path: str, title: str) -> Path:
        name = hashlib.sha256(f"{path}\0{title}".encode()).hexdigest()[:24]
        return self._cache / "verilog" / name

    def _forget_task(self, path: str, title: str, task: asyncio.Task[SimulationRecord]) -> None:
        if self._running.get((path, title)) is task:
            del self._running[path, title]
            self._listener.verilog_ended(path, title)
        if not task.cancelled():
            task.exception()  # mark the error as retrieved: possibly nobody waits for it


def _make_room(folder: Path) -> None:
    """Remove what was emitted here before, and the oldest folders of other models."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    others = sorted((each for each in folder.parent.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    for old in others[: max(0, len(others) - _SIMULATIONS_KEPT)]:
        shutil.rmtree(old, ignore_errors=True)


def _describe_missing_hardware(told: EmissionRecord) -> str:
    if told["refusal"]:
        return str(told["refusal"])
    names = ", ".join(str(each["node"]) for each in told["unsupported"])
    return f"these nodes have no hardware: {names}"
