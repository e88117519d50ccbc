"""The service of a trace child: after its trace it answers calls of the server, each in a fork, and stays free."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mase_server import wire
from mase_server.descendants import is_stopped
from mase_server.worker.live import Live
from mase_server.worker.proof import can_fork
from mase_server.worker.transforms.ask import Ask
from mase_server.worker.transforms.forks import Fork, how_it_ended, resident_bytes, sender
from mase_server.worker.transforms.holder import Held, Holder
from mase_server.worker.transforms.room import in_units
from mase_server.worker.transforms.work import METHODS, answering, perform

#: Seconds between two looks at the time and memory that forks take.
POLL = 0.1
#: Seconds that a process may have been stopped by a signal before it is ended.
_STOPPED_SECONDS = 1.0
_STOPPED = "was stopped by a signal, and was ended"
_FAULT_FILE = "fault-pass.txt"


@dataclass(slots=True)
class Stopped:
    """Since when a process has been seen stopped by a signal; None while it runs."""

    since: float | None = None

    def lasts(self, pid: int) -> bool:
        """Has the process `pid` been stopped for a while?"""
        if not pid or not is_stopped(pid):
            self.since = None
            return False
        self.since = self.since or time.monotonic()
        return time.monotonic() - self.since > _STOPPED_SECONDS


@dataclass(slots=True)
class Task:
    """One call under way. at: what it was doing when it last told.  answer: what it said at its end."""

    ident: int
    method: str
    params: dict[str, Any]
    ask: Ask
    end: float
    fork: Fork
    at: str = ""
    answer: wire.Message | None = None
    stopped: Stopped = field(default_factory=Stopped)


class Service:
    """Serves one wire: `call` and `cancel`, until it ends; then no fork is left."""

    def __init__(self, connection: wire.Connection, live: object) -> None:
        self.connection = connection
        self.live = live if isinstance(live, Live) else None
        self.tasks: dict[int, Task] = {}
        self.holder: Holder | None = None
        self._holder_stopped = Stopped()
        self._decoder = connection.decoder
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Until the server closes the wire."""
        self._selector.register(self.connection.sock, selectors.EVENT_READ)
        try:
            self._take()
            while self._turn():
                pass
        finally:
            for task in list(self.tasks.values()):
                self._end(task)
            self._drop_holder()
            self._selector.close()

    def _turn(self) -> bool:
        for key, _ in self._selector.select(POLL if self.tasks else None):
            if key.fileobj is self.connection.sock:
                if not self._receive():
                    return False
            elif key.fileobj is self.holder:
                self._hear(self.holder)
            elif key.data is not None and key.fileobj is key.data.fork:
                self._read(key.data)
        self._hold_to_limits()
        return True

    # The server's messages

    def _receive(self) -> bool:
        data = self.connection.sock.recv(1 << 16)
        self._decoder.feed(data)
        self._take()
        return bool(data)

    def _take(self) -> None:
        while (message := self._decoder.next()) is not None:
            if message["op"] == "cancel":
                self._cancel(message["id"])
            elif message["op"] == "call":
                self._call(message["id"], message.get("method", ""), message.get("params") or {})

    def _call(self, ident: int, method: str, params: dict[str, Any]) -> None:
        if method == "ping":
            self.connection.send({"result": ident, "value": "pong"})
        elif (why := self._cannot(method)) is not None:
            self._answer(ident, {"error": why, "kind": "argument"})
        else:
            with answering(lambda answer: self._answer(ident, answer)):
                ask = Ask.of(params)
                fork = self._fork(method, ask)
                self._add(Task(ident, method, params, ask, time.monotonic() + ask.seconds, fork))

    def _cannot(self, method: str) -> str | None:
        if method not in METHODS:
            return f"unknown method {method!r}; known: {sorted([*METHODS, 'ping'])}"
        if self.live is None:
            return "this file was not traced to its end: there is no model to work on"
        return None if can_fork() else "passes run in forks of the process that traced the file, on Linux alone"

    def _cancel(self, ident: int) -> None:
        if (task := self.tasks.get(ident)) is not None:
            self._end(task)
            self._answer(ident, {"error": "it was cancelled", "kind": "cancelled"})

    def _answer(self, ident: int, answer: wire.Message) -> None:
        self.connection.send({"result": ident, **answer})

    # Forks

    def _fork(self, method: str, ask: Ask) -> Fork:
        live = self.live
        assert live is not None

        def work(sock: socket.socket) -> None:
            perform(method, live, ask, None, sender(sock))

        return Fork.of(work, self._sockets(), self._fault())

    def _sockets(self) -> Iterator[socket.socket]:
        """All that a fork must close, so that whoever is at the other end sees the end when this process ends."""
        yield self.connection.sock
        yield from (task.fork.sock for task in self.tasks.values())
        if self.holder is not None:
            yield self.holder.sock

    def _fault(self) -> str:
        scratch = "" if self.live is None else self.live.request.scratch
        return str(Path(scratch) / _FAULT_FILE) if scratch else ""

    def _add(self, task: Task) -> None:
        self.tasks[task.ident] = task
        self._selector.register(task.fork, selectors.EVENT_READ, task)

    def _end(self, task: Task) -> int:
        """Forget a task and end its fork; the fork's status."""
        del self.tasks[task.ident]
        with contextlib.suppress(KeyError):  # `_finish` hears no more of it, either
            self._selector.unregister(task.fork)
        unborn = isinstance(task.fork, Held) and not task.fork.pid
        status = task.fork.reap()
        if unborn:
            self._drop_holder()
        return status

    def _read(self, task: Task) -> None:
        for message in task.fork.messages():
            if "event" not in message:
                task.answer = message
                continue
            task.at = message.get("message", task.at)
            self.connection.send({**message, "id": task.ident})
        if task.fork.ended and task.ident in self.tasks:
            self._finish(task)

    def _finish(self, task: Task) -> None:
        if task.answer is None and isinstance(task.fork, Held) and task.fork.status is None and self.holder:
            task.fork.kill()
            self._selector.unregister(task.fork)
            return  # its parent will say how it ended
        status = self._end(task)
        answer = task.answer or {"error": self._death(task, status), "kind": "pass"}
        if answer.get("value") == {"then": "measure"}:
            self._continue(task)
        else:
            self._answer(task.ident, answer)

    def _death(self, task: Task, status: int) -> str:
        line = _line(self._fault(), "" if self.live is None else self.live.request.folder)
        doing = f" during {task.at}" if task.at else ""
        return f"the process that ran the passes {how_it_ended(status)}{doing}{line}"

    # The holder

    def _continue(self, task: Task) -> None:
        """The same call on the model with values."""
        assert self.live is not None
        if self.holder is None:
            self.holder = Holder.start(self.live, self._sockets())
            self._selector.register(self.holder, selectors.EVENT_READ)
        try:
            task.fork = self.holder.run(task.ident, task.method, task.params, self._fault())
        except OSError:  # it has just ended
            self._drop_holder()
            return self._answer(task.ident, {"error": "the process with the real model ended", "kind": "internal"})
        task.answer = None
        return self._add(task)

    def _hear(self, holder: Holder) -> None:
        for message in holder.messages():
            held = [task for task in self.tasks.values() if isinstance(task.fork, Held)]
            for task in held:
                if message.get("id") == task.ident:
                    task.fork.pid = message["started"]
                elif message.get("exited") == task.fork.pid:
                    self._exited(task, message["status"])
        if holder.ended:
            self._drop_holder()

    def _exited(self, task: Task, status: int) -> None:
        assert isinstance(task.fork, Held)
        task.fork.status = status
        with contextlib.suppress(KeyError):
            self._selector.get_key(task.fork)
            return  # what it told is read to its end first
        self._selector.register(task.fork, selectors.EVENT_READ, task)
        self._finish(task)

    def _drop_holder(self) -> None:
        """End the holder, and with it whatever it runs."""
        holder, self.holder = self.holder, None
        if holder is None:
            return
        self._selector.unregister(holder)
        status = holder.reap()
        for task in [task for task in self.tasks.values() if isinstance(task.fork, Held)]:
            with contextlib.suppress(KeyError):
                self._selector.unregister(task.fork)
            del self.tasks[task.ident]
            task.fork.sock.close()
            self._answer(task.ident, {"error": self._death(task, status), "kind": "internal"})

    # Limits

    def _hold_to_limits(self) -> None:
        if self.holder is not None and self._holder_stopped.lasts(self.holder.pid):
            self._drop_holder()
        for task in list(self.tasks.values()):
            if task.stopped.lasts(task.fork.pid):
                self._end(task)
                self._answer(task.ident, {"error": f"the process that ran the passes {_STOPPED}", "kind": "pass"})
            elif time.monotonic() > task.end:
                self._breach(task, f"it took more than {task.ask.seconds:g} s")
            elif self._resident(task) > task.ask.memory:
                self._breach(task, f"it took more than {in_units(task.ask.memory)} of memory")

    def _resident(self, task: Task) -> int:
        holder = self.holder.pid if self.holder is not None and isinstance(task.fork, Held) else 0
        return max(resident_bytes(pid) if pid else 0 for pid in (task.fork.pid, holder))

    def _breach(self, task: Task, text: str) -> None:
        self._end(task)
        if self.holder is not None and resident_bytes(self.holder.pid) > task.ask.memory:
            self._drop_holder()
        doing = f" during {task.at}" if task.at else ""
        text = f"stopped{doing}: {text}; change the limit, or use a pass that needs less"
        self._answer(task.ident, {"error": text, "kind": "limit"})


def _line(fault: str, folder: str) -> str:
    """Where in the workspace a crash was, as faulthandler wrote it; "" where nobody knows."""
    try:
        lines = Path(fault).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    own = [line.strip() for line in lines if line.lstrip().startswith(f'File "{folder}')]
    return f", at {own[0]}" if own else ""
