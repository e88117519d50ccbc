"""Watches one trace child: takes what it sends, holds it to its limits, and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mase_server.daemon.death import Breach, Place, death_problem, how_it_ended, last_place, read_fault
from mase_server.daemon.launcher import ChildProcess
from mase_server.daemon.limits import resident_bytes
from mase_server.snapshot import Assembler, Payload, Problem
from mase_server.wire import Message
from mase_server.worker.request import TraceRequest

_POLL_TRACING = 0.1
_POLL_IDLE = 2.0
_SAMPLE_EVERY = 20
_FIRST_SAMPLE = 5
_FAULT_SECONDS = 0.15
_REAP_SECONDS = 2.0
#: As many times its limit may a trace take, if it is excused for the rest.
_LONGEST = 4


class WorkerGone(Exception):
    """The child that should have answered has ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child may use: `seconds` for import and trace, `memory` in resident bytes for all its life."""

    seconds: float = 30.0
    memory: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trace ended: state ready, failed or crashed; the problems that no payload carries; the child's seconds."""

    state: str
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Events:
    """Where a trace's news goes; called on the event loop."""

    on_payload: Callable[[Payload], None]
    on_stage: Callable[[str, str], None]


@dataclass(slots=True)
class _Progress:
    assembler: Assembler = field(default_factory=Assembler)
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0
    excused: float = 0.0
    failed: bool = False


class TraceWorker:
    """One child from its request to its end. `trace` once, then `call` as often as wanted, then `stop`."""

    def __init__(self, child: ChildProcess, request: TraceRequest, limits: Limits, events: Events) -> None:
        self.child = child
        self.request = request
        self._limits = limits
        self._events = events
        self._progress = _Progress()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        loop = asyncio.get_running_loop()
        self._traced: asyncio.Future[bool] = loop.create_future()
        self._breached: asyncio.Future[Breach] = loop.create_future()
        self._reader = asyncio.create_task(self._read())
        self._tasks = (self._reader, asyncio.create_task(self._watch()))

    @property
    def live(self) -> bool:
        """Does it still hold the graphs that it traced?"""
        return self.child.alive and self._traced.done() and not self._reader.done()

    async def trace(self) -> Outcome:
        """Send the request and wait for the end of the trace, whichever way it ends."""
        with contextlib.suppress(OSError):
            await self.child.channel.send({"op": "trace", "request": self.request.to_wire()})
        ends: tuple[asyncio.Future[Any], ...] = (self._traced, self._breached)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._traced.done() and self._traced.result():
            progress = self._progress
            return Outcome("failed" if progress.failed else "ready", progress.seconds, tuple(progress.problems))
        return Outcome("crashed", 0.0, (await self._death(),))

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The live child's answer; WorkerGone at once when it ends, RuntimeError with the child's error text."""
        if not self.live:
            raise WorkerGone(f"the worker of {self.request.path} has ended")
        ident = next(self._ids)
        answer = self._calls[ident] = asyncio.get_running_loop().create_future()
        try:
            await self.child.channel.send({"op": "call", "id": ident, "method": method, "params": params or {}})
            return await answer
        except OSError as error:
            raise WorkerGone(f"the worker of {self.request.path} has ended") from error
        finally:
            self._calls.pop(ident, None)

    async def stop(self) -> None:
        """End the child and all that it started."""
        for task in self._tasks:
            task.cancel()
        self._fail_calls()
        await self.child.stop()

    async def _read(self) -> None:
        try:
            while (message := await self.child.channel.read()) is not None:
                self._take(message)
        except Exception as error:  # noqa: BLE001  (what a worker sends may be anything; nonsense must not end us)
            self.child.channel.broken = f"{type(error).__name__}: {error}"
        if not self._traced.done():
            self._traced.set_result(False)
        self._fail_calls()

    def _take(self, message: Message) -> None:
        if "result" in message:
            self._answered(message)
            return
        event = message["event"]
        if event == "stage":
            self._events.on_stage(message["stage"], message.get("message", ""))
        elif event == "snapshot":
            payload = self._progress.assembler.add(message["frame"])
            if payload is not None:
                self._events.on_payload(payload)
        elif event == "excused":
            self._progress.excused += message["seconds"]
        elif event == "failed":
            self._progress.failed = True
            self._progress.problems.append(Problem(**message["problem"]))
        elif event == "done":
            self._progress.seconds = message["seconds"]
            if not self._traced.done():
                self._traced.set_result(True)

    def _answered(self, message: Message) -> None:
        answer = self._calls.get(message["result"])
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(RuntimeError(message["error"]))
        else:
            answer.set_result(message["value"])

    def _fail_calls(self) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(WorkerGone(f"the worker of {self.request.path} has ended"))

    async def _watch(self) -> None:
        started = asyncio.get_running_loop().time()
        for turn in itertools.count(1):
            tracing = not self._traced.done()
            await asyncio.sleep(_POLL_TRACING if tracing else _POLL_IDLE)
            seconds = asyncio.get_running_loop().time() - started
            excused = min(self._progress.excused, (_LONGEST - 1) * self._limits.seconds)
            if tracing and not self._traced.done() and seconds - excused > self._limits.seconds:
                return self._breach(Breach("time-limit", self._limits.seconds))
            if await resident_bytes(self.child.pid) > self._limits.memory:
                return self._breach(Breach("memory-limit", self._limits.memory))
            if tracing and turn % _SAMPLE_EVERY == _FIRST_SAMPLE:
                self.child.ask_line()  # so that even a kill -9 leaves a line behind

    def _breach(self, breach: Breach) -> None:
        if not self._breached.done():
            self._breached.set_result(breach)
        if self._traced.done():
            asyncio.create_task(self.stop())  # noqa: RUF006  (the child is ended whether or not anyone waits for it)

    async def _death(self) -> Problem:
        path, scratch = self.request.path, self.request.scratch
        if self._breached.done():
            breach = self._breached.result()
            self.child.ask_line(at_once=True)
            await asyncio.sleep(_FAULT_SECONDS)
            return death_problem(breach.code, breach.text(), self._place(read_fault(scratch)), path)
        try:
            status = await asyncio.wait_for(asyncio.shield(self.child.exited), _REAP_SECONDS)
        except TimeoutError:
            said = self.child.channel.broken or "closed its connection"
            return death_problem("crashed", f"The process that ran this file {said}", None, path)
        code, text = how_it_ended(status)
        return death_problem(code, text, self._place(read_fault(scratch)), path, self.child.log.text())

    def _place(self, fault: str) -> Place | None:
        return last_place(fault, self.request.path, self.request.folder)
