"""One launcher for each folder and interpreter, replaced when it is stale or lacks modules that files import."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mase_server.daemon.environment import Candidate
from mase_server.daemon.launcher import ChildProcess, ForkLauncher, Launcher, cancel_and_wait
from mase_server.daemon.process import BootedProcess, Handshake, LaunchFailed, NoEnvironment, boot_worker, end_groups
from mase_server.private import change_file, read_own, write_whole
from mase_server.protocol.request import TraceRequest
from mase_server.reading import path_exists
from mase_server.system import HAS_FORK
from mase_server.telemetry.records import log_event

Start = Callable[[str, str, str, Sequence[str]], Awaitable[Launcher]]

_TRIES = 3
_SETTLE_SECONDS = 1.0
_STATS_AT_ONCE = 500


class NoInterpreter(Exception):
    """No candidate can trace; `tried` holds each with the reason."""

    def __init__(self, code: str, tried: list[tuple[Candidate, str]]) -> None:
        super().__init__(tried[0][1])
        self.code = code
        self.tried = tried


class Pool:
    """Children for every folder. `start` boots a launcher: (interpreter, folder, job, preload)."""

    def __init__(self, cache_dir: Path, job: str, start: Start | None = None) -> None:
        self._cache_dir = cache_dir
        self._job = job
        self._start: Start = start or (ForkLauncher if HAS_FORK else SpareLauncher).start
        self._seats: dict[tuple[str, ...], _Seat] = {}
        self._seat_of: dict[str, _Seat] = {}
        #: Counters of the started processes and the children they gave.
        self.booted = self.forked = 0

    async def child(
        self, folder: str, path: str, found: Sequence[Candidate], text: bytes | None = None
    ) -> tuple[Handshake, ChildProcess]:
        """A fresh child for the file `path`; NoInterpreter when no candidate can trace.

        text: of the file, where a child may do that has run ahead with another one.
        """
        key = (folder, *(candidate.path for candidate in found))
        seat = self._seat_of[path] = self._seats.setdefault(key, _Seat(self, folder))
        for _ in range(_TRIES):
            try:
                launcher = await seat.launcher(found)
                child = await launcher.launch(seat.needs(path), path, text)
                self.forked += 1
                return launcher.handshake, child
            except LaunchFailed:
                continue
        raise NoInterpreter("import-failed", [(found[0], "its warm process ended again and again")])

    def foresee(self, request: TraceRequest) -> None:
        """Another text of a request's file will be traced soon, which differs a little."""
        seat = self._seat_of.get(request.path)
        if seat is not None and seat.running is not None:
            seat.running.foresee(request)

    def reason_of(self, path: str) -> str:
        """Why the interpreter that runs the file `path` was chosen."""
        return self._seat_of[path].reason

    def learned(self, path: str, modules: Iterable[str]) -> None:
        """The file `path` imported these third-party modules: preload them next time."""
        if (seat := self._seat_of.get(path)) is not None:
            seat.learned(path, modules)

    def used(self, path: str, modules: Iterable[str]) -> None:
        """A call about the file `path` imported these modules: preload them from now on, after all others."""
        if (seat := self._seat_of.get(path)) is not None:
            seat.used(modules)

    async def restart(self, folder: str | None = None) -> None:
        """End the launchers of `folder`, or all, with their children; the next child starts anew."""
        seats = [seat for key, seat in self._seats.items() if folder in (None, key[0])]
        await asyncio.gather(*(seat.close() for seat in seats))

    async def boot(self, interpreter: str, folder: str, preload: Sequence[str]) -> Launcher:
        """Start one launcher.

        NoEnvironment if the interpreter is unusable, LaunchFailed if another attempt may work.
        """
        began = time.monotonic()
        launcher = await self._start(interpreter, folder, self._job, preload)
        self.booted += 1
        told = launcher.handshake
        seconds = time.monotonic() - began
        log_event("environment", worker=told.pid, python=told.python, torch=told.torch, seconds=seconds)
        return launcher

    def memory(self, folder: str, interpreter: str) -> Learned:
        """The learned preload of this folder and interpreter."""
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
            await self._close_idle()
            running = self._launcher
            if running is not None and await self._is_usable(running):
                return running
            if running is not None:
                self._retire(running)
                self._launcher = None
            return await self._boot_first(found)

    @property
    def running(self) -> Launcher | None:
        """The launcher, once there is one."""
        return self._launcher

    @property
    def reason(self) -> str:
        """Why its interpreter was chosen; "" before it is."""
        return self._candidate.reason if self._candidate is not None else ""

    def needs(self, path: str) -> list[str]:
        """The modules that the file `path` imported last time."""
        return self._learned.needs(path) if self._learned is not None else []

    def learned(self, path: str, modules: Iterable[str]) -> None:
        """Remember these modules, and begin to replace the launcher if it lacks any."""
        if self._learned is None:
            return
        self._learned.learn(path, modules)
        self._replace_soon()

    def used(self, modules: Iterable[str]) -> None:
        """Preload these modules as long as this server runs."""
        if self._learned is not None:
            self._learned.used.update(dict.fromkeys(modules))
            self._replace_soon()

    def _replace_soon(self) -> None:
        busy = self._replacing is not None and not self._replacing.done()
        if self._list_missing() and not busy:
            self._replacing = asyncio.create_task(self._replace_launcher())

    async def close(self) -> None:
        """End all its processes."""
        if self._replacing is not None:
            self._replacing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._replacing
        launchers = [*self._retired, *([self._launcher] if self._launcher else [])]
        self._launcher, self._retired = None, []
        await asyncio.gather(*(launcher.close() for launcher in launchers))

    async def _is_usable(self, launcher: Launcher) -> bool:
        if self._learned is not None and launcher.harmful:
            self._learned.ban(launcher.harmful)
        if self._learned is not None and launcher.preloads and not launcher.alive and not launcher.reported:
            self._learned.forget()  # perhaps one of them killed it; learned again, each is tried in a replacement first
        if not launcher.alive or launcher.harmful:
            return False
        stamps = list(launcher.preloaded.values())
        many = len(stamps) > _STATS_AT_ONCE
        return not (await asyncio.to_thread(_is_stale, stamps) if many else _is_stale(stamps))

    async def _boot_first(self, found: Sequence[Candidate]) -> Launcher:
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

    def _list_missing(self) -> list[str]:
        if self._learned is None or self._launcher is None or not self._launcher.preloads:
            return []
        known = {*self._launcher.preloaded, *self._launcher.failed}
        return [name for name in self._learned.modules() if name not in known]

    async def _replace_launcher(self) -> None:
        # Files that open together are learned together, and the first traces keep the processor to themselves.
        await asyncio.sleep(_SETTLE_SECONDS)
        old, candidate, learned = self._launcher, self._candidate, self._learned
        if old is None or candidate is None or learned is None:
            return
        await old.settled.wait()
        if not self._list_missing():
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
                self._retire(old)
                return
        await fresh.close()

    def _retire(self, launcher: Launcher) -> None:
        launcher.retire()
        self._retired.append(launcher)

    def _usable_replacement(self, fresh: Launcher, learned: Learned) -> bool:
        if not fresh.reported:
            learned.ban(name for name in learned.modules() if self._launcher and name not in self._launcher.preloaded)
        learned.ban(fresh.harmful)
        return fresh.alive and not fresh.harmful

    async def _close_idle(self) -> None:
        for launcher in [one for one in self._retired if one.idle]:
            self._retired.remove(launcher)
            await launcher.close()


def _is_stale(stamps: Iterable[list[Any]]) -> bool:
    return any(stamp and not _is_same_file(*stamp) for stamp in stamps)


def _is_same_file(path: str, mtime_ns: int, size: int) -> bool:
    try:
        stat = Path(path).stat()
    except OSError:
        return False
    return (stat.st_mtime_ns, stat.st_size) == (mtime_ns, size)


# The learned preload: third-party modules that the files of a folder imported, kept for the next warm parent.

_MAX_MODULES = 4000
#: Seconds to wait for another server that writes the same file.
_PATIENCE = 0.5


class Learned:
    """For one (folder, interpreter): modules by file, and those that must never be imported before a fork."""

    def __init__(self, cache_dir: Path, folder: str, interpreter: str) -> None:
        key = hashlib.sha256(f"{folder}\0{interpreter}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self._path = cache_dir / "preload" / f"{key}.json"
        self._files: dict[str, list[str]] = {}
        self._harmful: set[str] = set()
        #: Modules for calls; they are not kept, so that the first trace of the next server does not wait for them.
        self.used: dict[str, None] = {}
        self._read_kept()

    def _read_kept(self) -> None:
        """Merge the stored modules: other servers of the folder learn as well."""
        try:
            data = json.loads(read_own(self._path))
            files = {str(path): [str(one) for one in names] for path, names in data["files"].items()}
            harmful = {str(one) for one in data["harmful"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._files = files | self._files
        self._harmful |= harmful

    def modules(self) -> list[str]:
        """Every module to preload, in the order learned."""
        every = dict.fromkeys(name for names in (*self._files.values(), self.used) for name in names)
        return [name for name in every if not self._is_harmful(name)][:_MAX_MODULES]

    def needs(self, path: str) -> list[str]:
        """The modules that the file `path` imported last time."""
        return [name for name in self._files.get(path, ()) if not self._is_harmful(name)]

    def learn(self, path: str, names: Iterable[str]) -> None:
        """Remember what the file `path` imported beyond the modules already there."""
        known = self._files.get(path, [])
        found = list(dict.fromkeys([*known, *names]))
        if found != known:
            self._change_kept(lambda: self._files.update({path: found}))

    def forget(self) -> None:
        """Begin anew, but keep the harmful modules."""
        self._change_kept(lambda: self._files.clear())

    def ban(self, names: Iterable[str]) -> None:
        """Never preload these modules or their submodules again."""
        new = set(names) - self._harmful
        if new:
            self._change_kept(lambda: self._harmful.update(new))

    def _is_harmful(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._harmful)

    def _change_kept(self, change: Callable[[], None]) -> None:
        change()  # it applies to this process even if it cannot be stored: a cache costs time, not correctness
        with contextlib.suppress(OSError), change_file(self._path, _PATIENCE):
            self._read_kept()
            change()
            self._files = {path: names for path, names in self._files.items() if path_exists(path)}
            write_whole(self._path, json.dumps({"files": self._files, "harmful": sorted(self._harmful)}))


# Trace children without fork: a process booted ahead becomes the next child.


class SpareLauncher:
    """Keeps one booted process in reserve as the next child, for platforms where fork is not safe."""

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
        self._boot = partial(boot_worker, interpreter, "spare", folder, job)
        self._spare: asyncio.Task[BootedProcess] = asyncio.create_task(_return_booted(first))
        self._children: list[ChildProcess] = []
        self._taking = asyncio.Lock()
        self._closed = False

    @classmethod
    async def start(cls, interpreter: str, folder: str, job: str, preload: Sequence[str] = ()) -> SpareLauncher:
        """Boot the first spare; NoEnvironment when the interpreter cannot be used. A spare preloads nothing yet."""
        return cls(interpreter, folder, job, await boot_worker(interpreter, "spare", folder, job))

    @property
    def alive(self) -> bool:
        """A spare launcher can always boot another process."""
        return not self._closed

    @property
    def idle(self) -> bool:
        """Have all its children ended?"""
        return not any(child.alive for child in self._children)

    async def launch(self, needs: Sequence[str] = (), path: str = "", text: bytes | None = None) -> ChildProcess:
        """Take the spare, and boot the next one in the background."""
        async with self._taking:  # otherwise two callers that wait for the same spare would both get it
            try:
                booted = await asyncio.shield(self._spare)
            finally:
                if self._spare.done():
                    self._spare = asyncio.create_task(self._boot())
        exited = asyncio.ensure_future(_wait_status(booted.process))
        child = ChildProcess(booted.process.pid, booted.channel, booted.log, exited)
        self._children = [one for one in self._children if one.alive] + [child]
        return child

    def foresee(self, request: TraceRequest) -> None:
        """A spare runs nothing ahead."""

    def retire(self) -> None:
        """The spare ends with the launcher."""

    async def close(self) -> None:
        """End the children and the spare."""
        self._closed = True
        await asyncio.gather(*(child.stop() for child in self._children))
        if self._spare.done() and not self._spare.cancelled() and self._spare.exception() is None:
            booted = self._spare.result()
            booted.channel.close()
            await end_groups([booted.process.pid], booted.process.wait())
            booted.log.close()
        await cancel_and_wait(self._spare)


async def _return_booted(booted: BootedProcess) -> BootedProcess:
    return booted


async def _wait_status(process: asyncio.subprocess.Process) -> int:
    code = await process.wait()
    return -code if code < 0 else code << 8
