"""One launcher for each folder and interpreter: replaced when it is stale or lacks what files import."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mase_server.daemon.environment import Candidate
from mase_server.daemon.launcher import ChildProcess, ForkLauncher, Launcher
from mase_server.daemon.learned import Learned
from mase_server.daemon.process import Handshake, LaunchFailed, NoEnvironment
from mase_server.daemon.spare import SpareLauncher
from mase_server.observe.records import event

Start = Callable[[str, str, str, Sequence[str]], Awaitable[Launcher]]

_TRIES = 3
_SETTLE_SECONDS = 1.0
_STATS_AT_ONCE = 500


def fork_is_safe() -> bool:
    """Only on Linux: macOS frameworks break in forked children, and Windows has no fork."""
    return sys.platform == "linux"


class NoInterpreter(Exception):
    """None of the candidates can trace; `tried` holds each with the reason."""

    def __init__(self, code: str, tried: list[tuple[Candidate, str]]) -> None:
        super().__init__(tried[0][1])
        self.code = code
        self.tried = tried


class Pool:
    """Children for every folder. `start` boots a launcher: (interpreter, folder, job, preload)."""

    def __init__(self, cache_dir: Path, job: str, start: Start | None = None) -> None:
        self._cache_dir = cache_dir
        self._job = job
        self._start: Start = start or (ForkLauncher if fork_is_safe() else SpareLauncher).start
        self._seats: dict[tuple[str, ...], _Seat] = {}
        self._seat_of: dict[str, _Seat] = {}
        #: How many processes were started, and how many children they gave.
        self.booted = self.forked = 0

    async def child(self, folder: str, path: str, found: Sequence[Candidate]) -> tuple[Handshake, ChildProcess]:
        """A fresh child for the file `path`; NoInterpreter when no candidate can trace."""
        key = (folder, *(candidate.path for candidate in found))
        seat = self._seat_of[path] = self._seats.setdefault(key, _Seat(self, folder))
        for _ in range(_TRIES):
            try:
                launcher = await seat.launcher(found)
                child = await launcher.launch(seat.needs(path))
                self.forked += 1
                return launcher.handshake, child
            except LaunchFailed:
                continue
        raise NoInterpreter("import-failed", [(found[0], "its warm process ended again and again")])

    def learned(self, path: str, modules: Iterable[str]) -> None:
        """The file `path` imported these third-party modules: have them ready next time."""
        if (seat := self._seat_of.get(path)) is not None:
            seat.learned(path, modules)

    async def restart(self, folder: str | None = None) -> None:
        """End the launchers of `folder`, or all, with their children; the next child starts anew."""
        seats = [seat for key, seat in self._seats.items() if folder in (None, key[0])]
        await asyncio.gather(*(seat.close() for seat in seats))

    async def boot(self, interpreter: str, folder: str, preload: Sequence[str]) -> Launcher:
        """Start one launcher; NoEnvironment when this interpreter cannot be used, LaunchFailed to be tried again."""
        began = time.monotonic()
        launcher = await self._start(interpreter, folder, self._job, preload)
        self.booted += 1
        told = launcher.handshake
        seconds = time.monotonic() - began
        event("environment", worker=told.pid, python=told.python, torch=told.torch, seconds=seconds)
        return launcher

    def memory(self, folder: str, interpreter: str) -> Learned:
        """What was learned for this folder and interpreter."""
        return Learned(self._cache_dir, folder, interpreter)


class _Seat:
    """The launcher of one folder, its coming replacement, and retired ones whose children still live."""

    def __init__(self, pool: Pool, folder: str) -> None:
        self._pool = pool
        self._folder = folder
        self._lock = asyncio.Lock()
        self._candidate: Candidate | None = None
        self._launcher: Launcher | None = None
        self._learned: Learned | None = None
        self._retired: list[Launcher] = []
        self._replacing: asyncio.Task[None] | None = None

    async def launcher(self, found: Sequence[Candidate]) -> Launcher:
        """The running launcher if it is still right, else a fresh one."""
        async with self._lock:
            await self._sweep()
            running = self._launcher
            if running is not None and await self._usable(running):
                return running
            if running is not None:
                self._retired.append(running)
                self._launcher = None
            return await self._first(found)

    def needs(self, path: str) -> list[str]:
        """What the file `path` imported last time."""
        return self._learned.needs(path) if self._learned is not None else []

    def learned(self, path: str, modules: Iterable[str]) -> None:
        """Remember, and begin to replace the launcher if it lacks any."""
        if self._learned is None:
            return
        self._learned.learn(path, modules)
        busy = self._replacing is not None and not self._replacing.done()
        if self._missing() and not busy:
            self._replacing = asyncio.create_task(self._replace())

    async def close(self) -> None:
        """End everything."""
        if self._replacing is not None:
            self._replacing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._replacing
        launchers = [*self._retired, *([self._launcher] if self._launcher else [])]
        self._launcher, self._retired = None, []
        await asyncio.gather(*(launcher.close() for launcher in launchers))

    async def _usable(self, launcher: Launcher) -> bool:
        if self._learned is not None and launcher.harmful:
            self._learned.ban(launcher.harmful)
        if self._learned is not None and launcher.preloads and not launcher.alive and not launcher.reported:
            self._learned.forget()  # perhaps one of them killed it; learned again, it is first tried in a replacement
        if not launcher.alive or launcher.harmful:
            return False
        stamps = list(launcher.preloaded.values())
        many = len(stamps) > _STATS_AT_ONCE
        return not (await asyncio.to_thread(_is_stale, stamps) if many else _is_stale(stamps))

    async def _first(self, found: Sequence[Candidate]) -> Launcher:
        tried: list[tuple[Candidate, str]] = []
        code = ""
        for candidate in found:
            learned = self._pool.memory(self._folder, candidate.path)
            try:
                launcher = await self._pool.boot(candidate.path, self._folder, learned.modules())
            except NoEnvironment as error:
                tried.append((candidate, str(error)))
                code = code or error.code
                continue
            self._candidate, self._learned, self._launcher = candidate, learned, launcher
            return launcher
        raise NoInterpreter(code, tried)

    def _missing(self) -> list[str]:
        if self._learned is None or self._launcher is None or not self._launcher.preloads:
            return []
        known = {*self._launcher.preloaded, *self._launcher.failed}
        return [name for name in self._learned.modules() if name not in known]

    async def _replace(self) -> None:
        # Files that open together are learned together, and the first traces get the processor to themselves.
        await asyncio.sleep(_SETTLE_SECONDS)
        old, candidate, learned = self._launcher, self._candidate, self._learned
        if old is None or candidate is None or learned is None:
            return
        await old.settled.wait()
        if not self._missing():
            return
        try:
            fresh = await self._pool.boot(candidate.path, self._folder, learned.modules())
        except (NoEnvironment, LaunchFailed):
            return
        try:
            await fresh.settled.wait()
        except asyncio.CancelledError:
            await fresh.close()
            raise
        async with self._lock:
            if self._usable_replacement(fresh, learned) and self._launcher is old:
                self._launcher = fresh
                self._retired.append(old)
                return
        await fresh.close()

    def _usable_replacement(self, fresh: Launcher, learned: Learned) -> bool:
        if not fresh.reported:
            learned.ban(name for name in learned.modules() if self._launcher and name not in self._launcher.preloaded)
        learned.ban(fresh.harmful)
        return fresh.alive and not fresh.harmful

    async def _sweep(self) -> None:
        for launcher in [one for one in self._retired if one.idle]:
            self._retired.remove(launcher)
            await launcher.close()


def _is_stale(stamps: Iterable[list[Any]]) -> bool:
    return any(stamp and not _same(*stamp) for stamp in stamps)


def _same(path: str, mtime_ns: int, size: int) -> bool:
    try:
        stat = Path(path).stat()
    except OSError:
        return False
    return (stat.st_mtime_ns, stat.st_size) == (mtime_ns, size)
