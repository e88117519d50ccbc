"""Watches one trace child: takes what it sends, holds it to its limits, and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mase_server.daemon.calls import Call, Calls, OnEvent, WorkerGone
from mase_server.daemon.death import (
    Breach,
    Place,
    container_text,
    death_problem,
    how_it_ended,
    last_place,
    read_fault,
    spoilt,
    stack_of,
    tells_the_end,
)
from mase_server.daemon.heartbeat import Heartbeat
from mase_server.daemon.launcher import ChildProcess
from mase_server.daemon.limits import container, exceeds_processes, held_bytes
from mase_server.descendants import end_family
from mase_server.observe.records import event, within
from mase_server.priority import waited
from mase_server.snapshot import Assembler, Payload, Problem
from mase_server.wire import Message
from mase_server.worker.request import TraceRequest

_POLL_TRACING = 0.1
_POLL_IDLE = 2.0
_SAMPLE_EVERY = 20
_FIRST_SAMPLE = 5
#: So many looks at what a trace takes for each at whether it was stopped.
_BEAT_EVERY = 10
#: Seconds between looks at what a child says of its line, and how many: on a busy machine it takes long to say it.
_FAULT_SECONDS = 0.05
_FAULT_LOOKS = 20
_REAP_SECONDS = 2.0
_EXIT_SECONDS = 0.5
#: Rows of a table from which a payload is a big one.
_MANY_ROWS = 2000
#: Within these seconds a child has to say that it has cancelled a call.
_CANCEL_SECONDS = 5.0
#: As many times its limit may a trace take, if it is excused for the rest.
_LONGEST = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """What one child may use: `seconds` for import and trace, for all its life `memory` in resident bytes, and
    `processes` that it started or that these did."""

    seconds: float = 30.0
    memory: int = 4 << 30
    processes: int = 100


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
    on_phase: Callable[[Message], None] = lambda message: None


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
        self._calls = Calls()
        around = container()
        self._killed = around.killed if around is not None else 0
        self._ping: Call | None = None
        self._held: asyncio.Task[int] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._connected = True
        self._end = ""
        self.retired = False
        loop = asyncio.get_running_loop()
        self._traced: asyncio.Future[bool] = loop.create_future()
        self._breached: asyncio.Future[Breach] = loop.create_future()
        work = (self._read(), self._watch())
        self._tasks: tuple[asyncio.Task[None], ...] = tuple(map(asyncio.create_task, work))

    @property
    def live(self) -> bool:
        """Does it still hold the graphs that it traced?"""
        return self.child.alive and self._traced.done() and self._connected

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

    async def call(self, method: str, params: dict[str, Any] | None = None, on_event: OnEvent | None = None) -> Any:
        """The live child's answer; WorkerGone at once when it ends, CallFailed with the child's error text.

        Cancelling it cancels the call in the child, which is ended if it does not follow.
        """
        if not self.live:
            raise self._gone()
        call = self._calls.open(on_event)
        try:
            await self.child.channel.send({"op": "call", "id": call.ident, "method": method, "params": params or {}})
            # Waited for from outside, so that who is cancelled leaves the answer to `_cancel`.
            await asyncio.wait((call.answer,))
            return call.answer.result()
        except OSError as error:
            raise self._gone() from error
        except asyncio.CancelledError:
            self._send_soon(self._cancel(call))
            raise

    def _send_soon(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _cancel(self, call: Call) -> None:
        call.on_event = lambda message: None
        with contextlib.suppress(OSError):
            await self.child.channel.send({"op": "cancel", "id": call.ident})
        done, _ = await asyncio.wait((call.answer,), timeout=_CANCEL_SECONDS)
        if done:
            call.answer.exception()  # nobody waits for it any more
        else:
            await self.stop()

    def _gone(self) -> WorkerGone:
        why = self._breached.result().text() if self._breached.done() else self._end
        return WorkerGone(f"the worker of {self.request.path} has ended{': ' if why else ''}{why}")

    def place(self) -> Place | None:
        """Where in the person's code it was when it was asked last."""
        return self._place(read_fault(self.request.scratch))

    async def stop(self) -> None:
        """End the child and all that it started."""
        for task in self._tasks:
            task.cancel()
        # A cancelled task knows where it was, and so holds us: every save would leave a cycle with all that it read.
        self._tasks = ()
        if self._held is not None:
            self._held.cancel()
        self._calls.fail(self._gone())
        await self.child.stop()

    async def _read(self) -> None:
        try:
            while (message := await self.child.channel.read()) is not None:
                self._take(message)
        except Exception as error:  # noqa: BLE001  (what a worker sends may be anything; nonsense must not end us)
            self.child.channel.broken = f"{type(error).__name__}: {error}"
        self._connected = False
        if not self._traced.done():
            self._traced.set_result(False)
        with contextlib.suppress(TimeoutError):
            # Who waits for an answer should hear how it died; that comes from another process, a moment later.
            status = await asyncio.wait_for(asyncio.shield(self.child.exited), _EXIT_SECONDS)
            self._end = how_it_ended(status)[1]
        self._calls.fail(self._gone())

    def _take(self, message: Message) -> None:
        if "result" in message or "id" in message:
            self._calls.take(message)
            return
        if self._breached.done():
            return  # a stopped process goes on to tell its line, and may even finish: its end is decided already
        event = message["event"]
        if event == "stage":
            self._events.on_stage(message["stage"], message.get("message", ""))
        elif event == "snapshot":
            payload = self._progress.assembler.add(message["frame"])
            if message["frame"].get("start", 0) >= _MANY_ROWS:
                gc.freeze()  # looking through all that has come so far, again and again, took up to eight milliseconds
            if payload is not None:
                self._events.on_payload(payload)
        elif event == "phase":
            self._events.on_phase(message)
        elif event == "excused":
            self._progress.excused += message["seconds"]
        elif event == "failed":
            self._progress.failed = True
            self._progress.problems.append(Problem(**message["problem"]))
        elif event == "done":
            self._progress.seconds = message["seconds"]
            self._log("done", request=message.get("request", ""), seconds=message["seconds"])
            if not self._traced.done():
                self._traced.set_result(True)

    async def _watch(self) -> None:
        started, before = asyncio.get_running_loop().time(), waited(self.child.pid)
        heartbeat = Heartbeat(self.child.pid)
        for turn in itertools.count(1):
            tracing = not self._traced.done()
            await asyncio.sleep(_POLL_TRACING if tracing else _POLL_IDLE)
            seconds = asyncio.get_running_loop().time() - started
            late = tracing and not self._traced.done() and seconds > self._limits.seconds
            if late and seconds - self._excused(before) > self._limits.seconds:
                return self._breach(Breach("time-limit", self._limits.seconds))
            # While it traces, its own limit of time takes care of a child that does nothing.
            if (not tracing or turn % _BEAT_EVERY == 0) and (did := heartbeat.look(None if tracing else self._asked())):
                return self._breach(Breach("crashed", did=did))
            if exceeds_processes(self.child.pid, self._limits.processes):
                # Each may be about to start more, and leave no time to us: this loop waits, rather than for a thread.
                end_family(self.child.pid, partial(read_fault, self.request.scratch))
                return self._breach(Breach("process-limit", self._limits.processes))
            if await self._holds_too_much():
                return self._breach(Breach("memory-limit", self._limits.memory))
            if tracing and turn % _SAMPLE_EVERY == _FIRST_SAMPLE:
                self.child.ask_line()  # so that even a kill -9 leaves a line behind

    async def _holds_too_much(self) -> bool:
        """Does it hold more memory than it may? False while that is counted: with many processes it takes long."""
        limit = self._limits.memory
        if self._held is None:
            self._held = asyncio.create_task(held_bytes(self.child.pid, limit))
            await asyncio.sleep(0)
        if not self._held.done():
            return False
        held, self._held = self._held.result(), None
        return held > limit

    def _asked(self) -> int | None:
        """The ping that the child has to answer first; None where nobody waits for an answer of it."""
        ping = self._ping if self._ping is not None and not self._ping.answer.done() else None
        if ping is None and self._calls.idents:
            ping = self._ping = self._calls.open()
            self._send_soon(self._send({"op": "call", "id": ping.ident, "method": "ping"}))
        return None if ping is None else ping.ident

    async def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            await self.child.channel.send(message)

    def _excused(self, before: float) -> float:
        """Seconds of the trace that are no fault of the file. before: what its child had `waited` at its start."""
        told = max(self._progress.excused, waited(self.child.pid) - before)
        return min(told, (_LONGEST - 1) * self._limits.seconds)

    def _breach(self, breach: Breach) -> None:
        if not self._breached.done():
            self._breached.set_result(breach)
            self._log("limit", logging.WARNING, code=breach.code, limit=breach.limit)
        if self._traced.done():
            asyncio.create_task(self.stop())  # noqa: RUF006  (the child is ended whether or not anyone waits for it)

    async def _death(self) -> Problem:
        path = self.request.path
        if self._breached.done():
            breach = self._breached.result()
            if breach.code != "process-limit":  # then it has ended
                await self._say_line()
            fault = self._last_words(breach.code)
            return death_problem(breach.code, breach.text(), self._place(fault), path)
        broken = self.child.channel.broken
        try:
            seconds = _REAP_SECONDS if broken is None else _EXIT_SECONDS
            status = await asyncio.wait_for(asyncio.shield(self.child.exited), seconds)
        except TimeoutError:
            text = "The process that ran this file closed its connection" if broken is None else spoilt(broken)
            return death_problem("crashed", text, None, path)
        code, text = how_it_ended(status)
        fault = self._last_words(code, status)
        now = container()
        contained = os.WIFSIGNALED(status) and now is not None and now.killed > self._killed
        if contained and now is not None:
            code, text = "memory-limit", container_text(now.limit)
        output, place = self.child.log.text(), self._place(fault)
        return death_problem(code, text, place, path, output, exact=tells_the_end(fault), contained=contained)

    async def _say_line(self) -> None:
        """Have the child write down its line, and wait until it has, or has had its time."""
        before = said = read_fault(self.request.scratch)
        self.child.ask_line(at_once=True)
        for _ in range(_FAULT_LOOKS):
            await asyncio.sleep(_FAULT_SECONDS)
            now = read_fault(self.request.scratch)
            if now == said != before:
                return
            said = now

    def _last_words(self, code: str, status: int | None = None) -> str:
        """What its fault handlers wrote; the log gets it, too."""
        fault = read_fault(self.request.scratch)
        if not self.child.stopping:
            stack = stack_of(fault, self.request.folder)
            self._log("died", logging.WARNING, code=code, status=status, stack=stack)
        return fault

    def _log(self, name: str, level: int = logging.INFO, **facts: Any) -> None:
        """An event of this worker."""
        path = within(self.request.path, self.request.folder)
        event(name, level, component=f"worker {self.child.pid}", path=path, **facts)

    def _place(self, fault: str) -> Place | None:
        return last_place(fault, self.request.path, self.request.folder)
