"""Watch one trace child: receive its messages, enforce its limits, and report how it ended.

During a trace, the supervisor asks the child now and then (SIGUSR1) for its line, so that even a kill -9 leaves a line
to show. The time a child waits for a processor, which Linux reports, does not count against its limit: CPU seconds
alone cannot tell a sleeping program from a starved one.
"""

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

from mase_server.daemon.channel import Call, Calls, OnEvent, WorkerGone
from mase_server.daemon.death import (
    Breach,
    Place,
    container_text,
    death_problem,
    describe_spoilt_stream,
    explain_late_end,
    how_it_ended,
    last_place,
    read_fault,
    stack_of,
    tells_the_end,
)
from mase_server.daemon.launcher import ChildProcess
from mase_server.daemon.limits import Heartbeat, exceeds_processes, find_container, held_bytes
from mase_server.protocol.records import Params
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import Assembler, Payload, Problem
from mase_server.protocol.wire import Message
from mase_server.system import end_family, seconds_waited
from mase_server.telemetry.records import log_event, path_in_log

_POLL_TRACING = 0.1
_POLL_IDLE = 2.0
_SAMPLE_EVERY = 20
_FIRST_SAMPLE = 5
#: Number of looks at the resources of a trace per look at whether it was stopped.
_BEAT_EVERY = 10
#: Seconds between looks at the line that a child writes down, and how many: on a busy machine writing takes long.
_FAULT_SECONDS = 0.05
_FAULT_LOOKS = 20
_REAP_SECONDS = 2.0
_EXIT_SECONDS = 0.5
#: Rows of a table from which a payload counts as big.
_MANY_ROWS = 2000
#: Seconds within which a child has to confirm that it has cancelled a call.
_CANCEL_SECONDS = 5.0
#: A trace may take at most so many times its limit, if it is excused for the rest.
_LONGEST = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one child: `seconds` for its import and trace, and for its whole life `memory` in resident bytes
    and `processes`, with all its descendants.
    """

    seconds: float = 30.0
    memory: int = 4 << 30
    processes: int = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trace: state ready, failed, crashed, or refused by a child that had run ahead with another text;
    problems that no payload carries; the child's seconds."""

    state: str
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Events:
    """Receivers of a trace's messages; called on the event loop. on_end: the child ended after its trace, and why."""

    on_payload: Callable[[Payload], None]
    on_stage: Callable[[str, str], None]
    on_phase: Callable[[Message], None] = lambda message: None
    on_end: Callable[[str], None] = lambda why: None


@dataclass(slots=True)
class _Progress:
    assembler: Assembler = field(default_factory=Assembler)
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0
    excused: float = 0.0
    failed: bool = False
    refused: bool = False


class TraceWorker:
    """One child from its request to its end: `trace` once, then `call` any number of times, then `stop`."""

    def __init__(self, child: ChildProcess, request: TraceRequest, limits: Limits, events: Events) -> None:
        self.child = child
        self.request = request
        self._limits = limits
        self._events = events
        self._progress = _Progress()
        self._calls = Calls()
        self._killed = 0
        self._ping: Call | None = None
        self._held: asyncio.Task[int] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._connected = True
        self._end = ""
        self.retired = False
        loop = asyncio.get_running_loop()
        self._traced: asyncio.Future[bool] = loop.create_future()
        self._breached: asyncio.Future[Breach] = loop.create_future()
        work = (self._read_messages(), self._watch_child())
        self._tasks: tuple[asyncio.Task[None], ...] = tuple(map(asyncio.create_task, work))

    @property
    def live(self) -> bool:
        """Does it still hold the graphs that it traced?"""
        return self.child.alive and self._traced.done() and self._connected

    async def trace(self) -> Outcome:
        """Send the request and wait for the end of the trace, successful or not."""
        with contextlib.suppress(OSError):
            await self.child.channel.send({"op": "trace", "request": self.request.to_wire()})
        around = find_container()  # it stands in a dozen files, which are read while the child begins
        self._killed = around.killed if around is not None else 0
        ends: tuple[asyncio.Future[Any], ...] = (self._traced, self._breached)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._traced.done() and self._traced.result():
            progress = self._progress
            if progress.refused:
                return Outcome("refused")
            return Outcome("failed" if progress.failed else "ready", progress.seconds, tuple(progress.problems))
        return Outcome("crashed", 0.0, (await self._explain_death(),))

    async def call(self, method: str, params: Params | None = None, on_event: OnEvent | None = None) -> Any:
        """The live child's answer; WorkerGone as soon as it ends, CallFailed with the child's error text.

        Cancelling it cancels the call in the child; a child that does not obey is ended.
        """
        if not self.live:
            raise self._make_gone_error()
        call = self._calls.open(on_event)
        try:
            await self.child.channel.send({"op": "call", "id": call.ident, "method": method, "params": params or {}})
            # Wait from outside, so that a cancelled caller leaves the answer to `_cancel`.
            await asyncio.wait((call.answer,))
            return call.answer.result()
        except OSError as error:
            raise self._make_gone_error() from error
        except asyncio.CancelledError:
            self._send_soon(self._cancel_call(call))
            raise

    def _send_soon(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _cancel_call(self, call: Call) -> None:
        call.on_event = lambda message: None
        with contextlib.suppress(OSError):
            await self.child.channel.send({"op": "cancel", "id": call.ident})
        done, _ = await asyncio.wait((call.answer,), timeout=_CANCEL_SECONDS)
        if done:
            call.answer.exception()  # mark the error as retrieved: nobody waits for it any more
        else:
            await self.stop()

    def _make_gone_error(self) -> WorkerGone:
        why = self._breached.result().text() if self._breached.done() else self._end
        return WorkerGone(f"the worker of {self.request.path} has ended{': ' if why else ''}{why}")

    def place(self) -> Place | None:
        """Its last known place in the user's code."""
        return self._find_place(read_fault(self.request.scratch))

    async def stop(self) -> None:
        """End the child and all its descendants."""
        for task in self._tasks:
            task.cancel()
        # A cancelled task keeps its frames, and so this object: every save would leave a cycle with all data read.
        self._tasks = ()
        if self._held is not None:
            self._held.cancel()
        self._calls.fail(self._make_gone_error())
        await self.child.stop()

    async def _read_messages(self) -> None:
        try:
            while (message := await self.child.channel.read()) is not None:
                self._take_message(message)
        except Exception as error:  # noqa: BLE001  (what a worker sends may be anything; nonsense must not end us)
            self.child.channel.broken = f"{type(error).__name__}: {error}"
        self._connected = False
        if not self._traced.done():
            self._traced.set_result(False)
        with contextlib.suppress(TimeoutError):
            # Callers that wait for an answer should learn how it died; another process reports that a moment later.
            status = await asyncio.wait_for(asyncio.shield(self.child.exited), _EXIT_SECONDS)
            self._end = how_it_ended(status)[1]
        if self._traced.result() and not (self._progress.refused or self.child.stopping or self._breached.done()):
            self._events.on_end(explain_late_end("", self._end or "The process that ran this file ended"))
        self._calls.fail(self._make_gone_error())

    def _take_message(self, message: Message) -> None:
        if "result" in message or "id" in message:
            self._calls.take(message)
            return
        if self._breached.done():
            return  # a stopped process may still write its line or even finish, but its end is decided
        event = message["event"]
        if event == "stage":
            self._events.on_stage(message["stage"], message.get("message", ""))
        elif event == "snapshot":
            payload = self._progress.assembler.add(message["frame"])
            if message["frame"].get("start", 0) >= _MANY_ROWS:
                gc.freeze()  # scanning everything received so far, again and again, took up to eight milliseconds
            if payload is not None:
                self._events.on_payload(payload)
        elif event == "phase":
            self._events.on_phase(message)
        elif event == "excused":
            self._progress.excused += message["seconds"]
        elif event == "failed":
            self._progress.failed = True
            self._progress.problems.append(Problem(**message["problem"]))
        elif event == "refused":
            self._progress.refused = True
            if not self._traced.done():
                self._traced.set_result(True)
        elif event == "done":
            self._progress.seconds = message["seconds"]
            self._log_event("done", request=message.get("request", ""), seconds=message["seconds"])
            if not self._traced.done():
                self._traced.set_result(True)

    async def _watch_child(self) -> None:
        started, before = asyncio.get_running_loop().time(), seconds_waited(self.child.pid)
        heartbeat = Heartbeat(self.child.pid)
        for turn in itertools.count(1):
            tracing = not self._traced.done()
            await asyncio.sleep(_POLL_TRACING if tracing else _POLL_IDLE)
            seconds = asyncio.get_running_loop().time() - started
            late = tracing and not self._traced.done() and seconds > self._limits.seconds
            if late and seconds - self._excused(before) > self._limits.seconds:
                return self._note_breach(Breach("time-limit", self._limits.seconds))
            # During the trace, its own time limit covers a child that does nothing.
            if (not tracing or turn % _BEAT_EVERY == 0) and (
                did := heartbeat.look(None if tracing else self._get_first_question())
            ):
                return self._note_breach(Breach("crashed", did=did))
            if exceeds_processes(self.child.pid, self._limits.processes):
                # Each process may be about to start more: block this loop, because a thread would come too late.
                end_family(self.child.pid, partial(read_fault, self.request.scratch))
                return self._note_breach(Breach("process-limit", self._limits.processes))
            if await self._holds_too_much():
                return self._note_breach(Breach("memory-limit", self._limits.memory))
            if tracing and turn % _SAMPLE_EVERY == _FIRST_SAMPLE:
                self.child.ask_line()  # so that its line is known even after a kill -9

    async def _holds_too_much(self) -> bool:
        """Does it hold more memory than allowed? False while that is counted: with many processes it takes long."""
        limit = self._limits.memory
        if self._held is None:
            self._held = asyncio.create_task(held_bytes(self.child.pid, limit))
            await asyncio.sleep(0)
        if not self._held.done():
            return False
        held, self._held = self._held.result(), None
        return held > limit

    def _get_first_question(self) -> int | None:
        """The ping that the child has to answer first; None if no answer is awaited."""
        ping = self._ping if self._ping is not None and not self._ping.answer.done() else None
        if ping is None and self._calls.idents:
            ping = self._ping = self._calls.open()
            self._send_soon(self._send_quietly({"op": "call", "id": ping.ident, "method": "ping"}))
        return None if ping is None else ping.ident

    async def _send_quietly(self, message: Message) -> None:
        with contextlib.suppress(OSError):
            await self.child.channel.send(message)

    def _excused(self, before: float) -> float:
        """Seconds of the trace that are not the file's fault. before: what its child had `waited` at its start."""
        told = max(self._progress.excused, seconds_waited(self.child.pid) - before)
        return min(told, (_LONGEST - 1) * self._limits.seconds)

    def _note_breach(self, breach: Breach) -> None:
        if not self._breached.done():
            self._breached.set_result(breach)
            self._log_event("limit", logging.WARNING, code=breach.code, limit=breach.limit)
        if self._traced.done():
            self._events.on_end(explain_late_end(breach.code, breach.text()))
            asyncio.create_task(self.stop())  # noqa: RUF006  (the child is ended whether or not anyone waits for it)

    async def _explain_death(self) -> Problem:
        path = self.request.path
        if self._breached.done():
            breach = self._breached.result()
            if breach.code != "process-limit":  # it has ended then
                await self._say_line()
            fault = self._last_words(breach.code)
            return death_problem(breach.code, breach.text(), self._find_place(fault), path)
        broken = self.child.channel.broken
        try:
            seconds = _REAP_SECONDS if broken is None else _EXIT_SECONDS
            status = await asyncio.wait_for(asyncio.shield(self.child.exited), seconds)
        except TimeoutError:
            text = (
                "The process that ran this file closed its connection"
                if broken is None
                else describe_spoilt_stream(broken)
            )
            return death_problem("crashed", text, None, path)
        code, text = how_it_ended(status)
        fault = self._last_words(code, status)
        now, contained = find_container(), False
        if os.waitstatus_to_exitcode(status) < 0 and now is not None and now.killed > self._killed:
            code, text, contained = "memory-limit", container_text(now.limit), True
        output, place = self.child.log.text(), self._find_place(fault)
        return death_problem(code, text, place, path, output, exact=tells_the_end(fault), contained=contained)

    async def _say_line(self) -> None:
        """Make the child write down its line, and wait until it has, but not for ever."""
        before = said = read_fault(self.request.scratch)
        self.child.ask_line(at_once=True)
        for _ in range(_FAULT_LOOKS):
            await asyncio.sleep(_FAULT_SECONDS)
            now = read_fault(self.request.scratch)
            if now == said != before:
                return
            said = now

    def _last_words(self, code: str, status: int | None = None) -> str:
        """The text that its fault handlers wrote; it is logged, too."""
        fault = read_fault(self.request.scratch)
        if not self.child.stopping:
            stack = stack_of(fault, self.request.folder)
            self._log_event("died", logging.WARNING, code=code, status=status, stack=stack)
        return fault

    def _log_event(self, name: str, level: int = logging.INFO, **facts: Any) -> None:
        """Log an event of this worker."""
        path = path_in_log(self.request.path, self.request.folder)
        log_event(name, level, component=f"worker {self.child.pid}", path=path, **facts)

    def _find_place(self, fault: str) -> Place | None:
        return last_place(fault, self.request.path, self.request.folder)
