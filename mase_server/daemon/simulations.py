"""Simulating the hardware of models: one simulation of a model at a time, and one on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mase_server.daemon.pipelines import PassError
from mase_server.daemon.status import Listener
from mase_server.daemon.turns import turn
from mase_server.daemon.verilog import Verilog
from mase_server.directories import why
from mase_server.simulation import simulate

#: So many emitted folders of other models are kept.
_KEPT = 16
#: Percent of the cycles: nothing would ever move.
_ALWAYS = 100


class Simulate(Protocol):
    """The part of `simulation.simulate` that is needed here."""

    async def __call__(self, folder: Path, *, cache: Path, stall: int, progress: Any) -> dict[str, Any]:
        """A map of `building.SIMULATION_KEYS` of an emitted folder."""


class Simulations:
    """Simulations of models. cache_dir: where their folders and programs are kept."""

    def __init__(self, verilog: Verilog, listener: Listener, cache_dir: Path, run: Simulate = simulate) -> None:
        self._verilog, self._listener = verilog, listener
        self._cache, self._simulate = cache_dir, run
        self._running: dict[tuple[str, str], asyncio.Task[dict[str, Any]]] = {}

    async def simulate(
        self, path: str, title: str | None, *, vectors: int | None = None, inputs: str = "", stall: int = 0
    ) -> dict[str, Any]:
        """A map of `building.SIMULATION_KEYS`: the present text by the model's build, or the one of the settings.

        vectors, inputs: as `Verilog.emit` takes them.  stall: both sides pause in so many percent of the cycles.
        A simulation of the model that still runs is stopped.  PassError where there is nothing to simulate, ValueError
        for what cannot be.
        """
        if not 0 <= stall < _ALWAYS:
            raise ValueError(f"stall is {stall}; it takes percents of the cycles, from 0 to {_ALWAYS - 1}")
        title = await self._verilog.title(path, title)
        before = self._running.get((path, title))
        work = self._run(before, path, title, stall, vectors=vectors, inputs=inputs)
        self._running[path, title] = task = asyncio.create_task(work)
        task.add_done_callback(lambda done: self._over(path, title, done))
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
        """Stop all of them."""
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, before: asyncio.Task[Any] | None, path: str, title: str, stall: int, **order: Any
    ) -> dict[str, Any]:
        if before is not None:
            before.cancel()
            await asyncio.wait((before,))
        try:
            return await self._simulated(path, title, stall, order)
        except OSError as error:
            told = f"nothing is simulated, since its files cannot be kept: {why(error)}"
            raise PassError("internal", told) from error

    async def _simulated(self, path: str, title: str, stall: int, order: Mapping[str, Any]) -> dict[str, Any]:
        folder = self._folder(path, title)
        await asyncio.to_thread(_make_room, folder)
        told = (await self._verilog.make(path, title, folder=str(folder), overwrite=True, **order)).told
        if told["folder"] is None:
            raise PassError("argument", f"there is nothing to simulate: {_missing(told)}")
        say = partial(self._listener.verilog_progress, path, title)
        async with turn(self._cache / "verilog" / "turn", lambda: say("waiting for another simulation", None)):
            return await self._simulate(folder, cache=self._cache / "simulations", stall=stall, progress=say)

    def _folder(self, path: str, title: str) -> Path:
        name = hashlib.sha256(f"{path}\0{title}".encode()).hexdigest()[:24]
        return self._cache / "verilog" / name

    def _over(self, path: str, title: str, task: asyncio.Task[dict[str, Any]]) -> None:
        if self._running.get((path, title)) is task:
            del self._running[path, title]
            self._listener.verilog_ended(path, title)
        if not task.cancelled():
            task.exception()  # nobody may be left to look at it


def _make_room(folder: Path) -> None:
    """Remove what was emitted here before, and the oldest folders of other models."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    others = sorted((each for each in folder.parent.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    for old in others[: max(0, len(others) - _KEPT)]:
        shutil.rmtree(old, ignore_errors=True)


def _missing(told: Mapping[str, Any]) -> str:
    if told["refusal"]:
        return str(told["refusal"])
    names = ", ".join(str(each["node"]) for each in told["unsupported"])
    return f"these nodes have no hardware: {names}"
