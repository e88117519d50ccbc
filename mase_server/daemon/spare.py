"""Trace children without fork: a process booted ahead becomes the next child."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from mase_server.daemon.launcher import ChildProcess, cancelled
from mase_server.daemon.process import BootedProcess, boot, end_groups


class SpareLauncher:
    """Keeps one booted process in reserve that becomes the next child: for platforms where fork is not safe."""

    preloads = False

    def __init__(self, interpreter: str, folder: str, job: str, first: BootedProcess) -> None:
        self.handshake = first.handshake
        self.folder = folder
        self.preloaded: dict[str, list[Any]] = {}
        self.harmful: list[str] = []
        self.failed: dict[str, str] = {}
        self.reported = False
        self.settled = asyncio.Event()
        self.settled.set()
        self._boot = partial(boot, interpreter, "spare", folder, job)
        self._spare: asyncio.Task[BootedProcess] = asyncio.create_task(_given(first))
        self._children: list[ChildProcess] = []
        self._taking = asyncio.Lock()
        self._closed = False

    @classmethod
    async def start(cls, interpreter: str, folder: str, job: str, preload: Sequence[str] = ()) -> SpareLauncher:
        """Boot the first spare; NoEnvironment when the interpreter cannot be used. A spare preloads nothing yet."""
        return cls(interpreter, folder, job, await boot(interpreter, "spare", folder, job))

    @property
    def alive(self) -> bool:
        """A spare launcher can always boot another process."""
        return not self._closed

    @property
    def idle(self) -> bool:
        """Has every child of it ended?"""
        return not any(child.alive for child in self._children)

    async def launch(self, needs: Sequence[str] = ()) -> ChildProcess:
        """Take the spare, and boot the next one in the background."""
        async with self._taking:  # or two that wait for the same spare would both get it
            try:
                booted = await asyncio.shield(self._spare)
            finally:
                if self._spare.done():
                    self._spare = asyncio.create_task(self._boot())
        exited = asyncio.ensure_future(_wait_status(booted.process))
        child = ChildProcess(booted.process.pid, booted.channel, booted.log, exited)
        self._children = [one for one in self._children if one.alive] + [child]
        return child

    async def close(self) -> None:
        """End the children and the spare."""
        self._closed = True
        await asyncio.gather(*(child.stop() for child in self._children))
        if self._spare.done() and not self._spare.cancelled() and self._spare.exception() is None:
            booted = self._spare.result()
            booted.channel.close()
            await end_groups([booted.process.pid], booted.process.wait())
            booted.log.close()
        await cancelled(self._spare)


async def _given(booted: BootedProcess) -> BootedProcess:
    return booted


async def _wait_status(process: asyncio.subprocess.Process) -> int:
    code = await process.wait()
    return -code if code < 0 else code << 8
