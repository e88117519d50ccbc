"""Launchers give trace children for one (folder, interpreter), forked from a warm parent or taken from a spare."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mase_server.daemon.channel import Channel
from mase_server.daemon.limits import IDLE_SECONDS, LOOK_SECONDS, Heartbeat
from mase_server.daemon.process import (
    TERM_SECONDS,
    BootedProcess,
    Handshake,
    LaunchFailed,
    OutputLog,
    boot_worker,
    end_groups,
    wire_and_log,
)
from mase_server.protocol.wire import Message
from mase_server.system import KILL, ask_line, end_descendants, signal_group
from mase_server.telemetry.records import log_event

if TYPE_CHECKING:
    from mase_server.protocol.request import TraceRequest

#: Seconds without a launch after which the next child is prepared.
_CALM_SECONDS = 0.3
#: Seconds in which a child rehearses, and runs ahead.
_PREPARING_SECONDS = 10.0
#: Seconds at most to notice the end of a warm parent that a message could not be sent to.
_END_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """A request with whose text a child has run ahead, and the lines, from 1, that may differ in the next text."""

    request: TraceRequest
    lines: tuple[tuple[int, int], ...]

    def may_go_on(self, path: str, text: bytes) -> bool:
        """Does another text of a file only differ in these lines?"""
        if path != self.request.path:
            return False
        before, now = self.request.texts[path].split(b"\n"), text.split(b"\n")
        pairs = enumerate(zip(before, now, strict=False), 1)
        changed = [number for number, (one, other) in pairs if one != other]
        return len(before) == len(now) and all(
            any(first <= number <= last for first, last in self.lines) for number in changed
        )


@dataclass(slots=True)
class ChildProcess:
    """A process that waits for its trace request. `exited` receives its wait status, as `os.waitpid` returns it.

    ahead: with which text it has run ahead, if it has.
    """

    pid: int
    channel: Channel
    log: OutputLog
    exited: asyncio.Future[int]
    stopping: bool = field(default=False)
    ahead: Ahead | None = None

    @property
    def alive(self) -> bool:
        """True until it was seen to end or was told to end."""
        return not self.exited.done() and not self.stopping

    def may_go_on(self, path: str, text: bytes) -> bool:
        """Has it run ahead with a text that only differs from this one where it may?"""
        return self.alive and self.ahead is not None and self.ahead.may_go_on(path, text)

    def signal(self, number: signal.Signals) -> None:
        """Signal its whole process group, unless it was seen to end."""
        if not self.exited.done():
            signal_group(self.pid, number)

    def ask_line(self, *, at_once: bool = False) -> None:
        """Make it write its current Python line to its fault file. Only for the child: other processes would die.

        at_once: even inside C code or while it is stopped, at the risk of killing it.
        """
        if not self.exited.done():
            ask_line(self.pid, at_once=at_once)

    async def stop(self) -> None:
        """End it and everything it started: TERM, 0.7 s, KILL."""
        if not self.stopping:
            self.stopping = True
            if not self.exited.done():
                await end_groups([self.pid], asyncio.shield(self.exited))
        self.channel.close()
        self.log.close()


async def with_child(child: ChildProcess, request: Callable[[], TraceRequest]) -> TraceRequest:
    """Make the request for a child; if that fails, end the child, and OSError says why."""
    try:
        return request()
    except OSError:
        await child.stop()
        raise


async def end_unused(child: ChildProcess) -> None:
    """End a child that was prepared in vain, and remove the folder that was to be its scratch."""
    await child.stop()
    if child.ahead is not None:
        await asyncio.to_thread(shutil.rmtree, child.ahead.request.scratch, True)


class _Start:
    """A requested fork."""

    def __init__(self, channel: Channel, log: OutputLog) -> None:
        self.channel = channel
        self.log = log
        self.child: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()


class Launcher(Protocol):
    """Starts trace children in one interpreter."""

    handshake: Handshake
    folder: str
    preloaded: dict[str, list[Any]]
    harmful: list[str]
    failed: dict[str, str]
    preloads: bool
    reported: bool
    settled: asyncio.Event

    async def launch(self, needs: Sequence[str] = (), path: str = "", text: bytes | None = None) -> ChildProcess:
        """Give a fresh child; LaunchFailed when the launcher's process is gone.

        text: of the file `path`, where a child may do that has run ahead with another one.
        """
        ...

    def foresee(self, request: TraceRequest) -> None:
        """Another text will be traced after that of a request, which differs a little."""
        ...

    @property
    def alive(self) -> bool:
        """Can it still launch?"""
        ...

    @property
    def idle(self) -> bool:
        """Has it no child left?"""
        ...

    def retire(self) -> None:
        """Prepare no further child: another launcher has taken its place, and it only keeps the children that live."""
        ...

    async def close(self) -> None:
        """End its process and every child."""
        ...


class ForkLauncher:
    """Forks from a warm parent: 10 ms instead of seconds. `preloaded` maps module to [file, mtime_ns, size].

    While nothing is launched it prepares the next child, which rehearses a trace: its own trace then takes half of the
    time. A child that is launched before that is a plain fork. Another child runs ahead with a text that is typed.
    """

    preloads = True

    def __init__(self, booted: BootedProcess, folder: str) -> None:
        self.handshake = booted.handshake
        self.folder = folder
        self.preloaded: dict[str, list[Any]] = {}
        self.harmful: list[str] = []
        self.failed: dict[str, str] = {}
        self.reported = False
        self.settled = asyncio.Event()
        self._booted = booted
        self._ids = itertools.count(1)
        self._starting: dict[int, _Start] = {}
        self._children: dict[int, ChildProcess] = {}
        self._prepared: ChildProcess | None = None
        self._ahead: ChildProcess | None = None
        self._foreseen: TraceRequest | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._launched = 0.0
        self._retired = False
        self._ending: set[asyncio.Task[None]] = set()
        self._reader = asyncio.create_task(self._read_messages())
        self._wake = asyncio.Event()
        self._watcher = asyncio.create_task(self._watch_parent())

    @classmethod
    async def start(cls, interpreter: str, folder: str, job: str, preload: Sequence[str] = ()) -> ForkLauncher:
        """Boot a warm parent and ask it to import `preload`; NoEnvironment when the interpreter cannot be used."""
        launcher = cls(await boot_worker(interpreter, "parent", folder, job), folder)
        with contextlib.suppress(OSError):
            await launcher._booted.channel.send({"op": "preload", "modules": list(preload)})
        return launcher

    @property
    def alive(self) -> bool:
        """Is the warm parent still running?"""
        return not self._reader.done()

    @property
    def idle(self) -> bool:
        """Have all its children ended, but for those that are prepared?"""
        prepared = self._prepared, self._ahead
        return not self._starting and all(child in prepared for child in self._children.values())

    async def launch(self, needs: Sequence[str] = (), path: str = "", text: bytes | None = None) -> ChildProcess:
        """A prepared child, or a fork, after importing those of its `needs` that are still on the preload list."""
        self._launched = asyncio.get_running_loop().time()
        self._prepare_soon()
        if text is not None and self._ahead is not None and self._ahead.may_go_on(path, text):
            ahead, self._ahead = self._ahead, None
            return ahead
        child, self._prepared = self._prepared, None
        return child if child is not None and child.alive else await self._fork(needs)

    def foresee(self, request: TraceRequest) -> None:
        """Have a child run ahead with the text of a request, in place of an earlier one."""
        self._drop_ahead()
        self._foreseen = request
        self._prepare_soon()

    def retire(self) -> None:
        """Prepare no further child, and end those that wait."""
        self._retired = True
        self._drop_ahead()
        self._end_soon(self._prepared)
        self._prepared = None

    def _drop_ahead(self) -> None:
        if self._foreseen is not None:
            shutil.rmtree(self._foreseen.scratch, ignore_errors=True)  # it is empty
        self._end_soon(self._ahead)
        self._ahead = self._foreseen = None

    def _end_soon(self, child: ChildProcess | None) -> None:
        if child is not None:
            self._ending.add(task := asyncio.create_task(end_unused(child)))
            task.add_done_callback(self._ending.discard)

    def _prepare_soon(self) -> None:
        if not self._retired and (self._preparing is None or self._preparing.done()):
            self._preparing = asyncio.create_task(self._prepare_children())

    async def _prepare_children(self) -> None:
        """After a while without a launch, have a child run ahead if a text is foreseen, and have one rehearse."""
        await self.settled.wait()
        with contextlib.suppress(LaunchFailed):
            while not self._retired:
                if (left := self._launched + _CALM_SECONDS - asyncio.get_running_loop().time()) > 0:
                    await asyncio.sleep(left)
                elif (request := self._foreseen) is not None:
                    child = await self._rehearse(request)
                    # Another text may have been foreseen meanwhile.
                    if child is not None and (self._retired or self._foreseen is not request):
                        self._end_soon(child)
                    elif self._foreseen is request:
                        self._ahead, self._foreseen = child, None
                elif self._prepared is None or not self._prepared.alive:
                    self._prepared = child = await self._rehearse()
                    if child is None or self._retired:
                        break
                else:
                    break
        if self._retired:
            self._end_soon(self._prepared)
            self._prepared = None

    async def _rehearse(self, request: TraceRequest | None = None) -> ChildProcess | None:
        """A child that has rehearsed a trace, and has run ahead with a request's text; None if it ends or hangs."""
        child, ready = await self._fork(rehearse=True), False
        try:
            async with asyncio.timeout(_PREPARING_SECONDS):
                ready = await child.channel.read() is not None
                if ready and request is not None:
                    await child.channel.send({"op": "ahead", "request": request.to_wire()})
                    said = await child.channel.read()
                    ready = said is not None and said.get("event") == "ahead"
                    lines = said["lines"] if said is not None and ready else ()
                    child.ahead = Ahead(request, tuple(map(tuple, lines)))
        except (OSError, TimeoutError):
            ready = False
        finally:
            if not ready:
                await end_unused(child)
        return child if ready else None

    async def _fork(self, needs: Sequence[str] = (), *, rehearse: bool = False) -> ChildProcess:
        if not self.alive:
            raise LaunchFailed(f"the warm parent of {self.folder} has ended")
        ident = next(self._ids)
        channel, theirs, log = wire_and_log()
        start = self._starting[ident] = _Start(channel, log)
        self._wake.set()
        message = {"op": "fork", "id": ident, "needs": list(needs), "rehearse": rehearse}
        try:
            with theirs:
                await self._booted.channel.send_with_fds(message, [theirs.fileno(), start.log.write_fd])
            start.log.handed_over()
            return await start.child
        except BaseException as error:
            start.child.cancel()  # nobody waits for it any more: a child forked later is ended
            start.channel.close()
            start.log.close()
            if isinstance(error, OSError):
                # Its end is read a moment later; until then it would seem alive and be asked again.
                await asyncio.wait((self._reader,), timeout=_END_SECONDS)
                raise LaunchFailed(str(error)) from error
            raise

    async def _read_messages(self) -> None:
        while (message := await self._booted.channel.read()) is not None:
            for key, handle in self._get_handlers().items():
                if key in message:
                    handle(message)
        self._lose_children()

    async def _watch_parent(self) -> None:
        """End the warm parent when it is stopped or stuck; another one then gets its open requests."""
        heartbeat = Heartbeat(self._booted.process.pid)
        while not (why := heartbeat.look(asked := self._get_first_question())):
            self._wake.clear()
            if asked is not None or heartbeat.doubted:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), IDLE_SECONDS)
        log_event("parent-ended", logging.WARNING, component=f"warm parent {heartbeat.pid}", why=why)
        await self._kill_parent()

    def _get_first_question(self) -> int | None:
        """The first request that the warm parent has to answer: a fork, or 0 for the preload."""
        return next(iter(self._starting), None if self.settled.is_set() else 0)

    async def _kill_parent(self) -> None:
        """Kill the warm parent and its descendants, because it cannot do so itself."""
        pid = self._booted.process.pid
        await asyncio.to_thread(end_descendants, pid)
        signal_group(pid, KILL)

    def _lose_children(self) -> None:
        self.settled.set()
        for start in self._starting.values():
            if not start.child.done():
                start.child.set_exception(LaunchFailed(f"the warm parent of {self.folder} has ended"))
        self._starting.clear()
        for child in self._children.values():
            # Linux has killed the child along with its parent; the processes it started are killed here.
            child.signal(KILL)
            if not child.exited.done():
                child.exited.set_result(KILL)
        self._children.clear()

    def _get_handlers(self) -> dict[str, Callable[[Message], None]]:
        return {"forked": self._on_forked, "refused": self._on_refused, "exited": self._on_exited,
                "preloaded": self._on_preloaded}  # fmt: skip

    def _on_forked(self, message: Message) -> None:
        ident, pid = message["forked"], message["pid"]
        start = self._starting.pop(ident)
        if start.child.cancelled():
            signal_group(pid, KILL)
            return
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        child = self._children[ident] = ChildProcess(pid, start.channel, start.log, exited)
        start.child.set_result(child)

    def _on_refused(self, message: Message) -> None:
        start = self._starting.pop(message["refused"])
        if not start.child.done():
            start.child.set_exception(LaunchFailed("a module that it imported ahead makes forking unsafe"))

    def _on_exited(self, message: Message) -> None:
        child = self._children.pop(message["exited"], None)
        if child is not None and not child.exited.done():
            child.exited.set_result(message["status"])

    def _on_preloaded(self, message: Message) -> None:
        self.preloaded = message["preloaded"]
        self.harmful = message["harmful"]
        self.failed = message["failed"]
        self.reported = True
        self.settled.set()

    async def close(self) -> None:
        """End the children's groups and the warm parent: TERM, 0.7 s, KILL."""
        self.retire()
        await asyncio.gather(*self._ending, return_exceptions=True)
        for task in filter(None, (self._preparing, self._watcher, self._reader)):
            await cancel_and_wait(task)
        pids = [child.pid for child in self._children.values()]
        for child in self._children.values():
            child.stopping = True
        # When its wire closes, the warm parent ends its children itself, strays included, and then exits.
        self._booted.channel.close()
        parent = self._booted.process
        try:
            await asyncio.wait_for(parent.wait(), TERM_SECONDS)
        except TimeoutError:
            await self._kill_parent()
        for pid in pids:
            signal_group(pid, KILL)
        await parent.wait()
        self._lose_children()
        self._booted.log.close()


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, whatever its result."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
