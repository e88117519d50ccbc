"""The service of a trace child: after its trace it answers the server's calls, each in a fork, and stays responsive.

The trace child never changes its graphs: each call runs in a fork that builds a graph of the recording anew and runs
the whole pipeline. So undo is another call, cancelling is a kill, and whatever a pass does costs one fork.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mase_server.protocol import wire
from mase_server.system import HAS_FORK, KILL, is_stopped, resident_bytes_of
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.execution.program import as_program
from mase_server.tracing.models.real import Real, real_model
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask, AskError, in_units
from mase_server.worker.transforms.compiled import import_for_view
from mase_server.worker.transforms.forks import Fork, Send, fork_with_socket, how_it_ended, make_sender
from mase_server.worker.transforms.pipeline import told
from mase_server.worker.transforms.work import METHODS, answer_errors, perform_method

#: Seconds between two checks of the forks' time and memory.
POLL = 0.1
#: Seconds for which a process may stay stopped by a signal before it is ended.
_STOPPED_SECONDS = 1.0
_STOPPED = "was stopped by a signal, and was ended"
_FAULT_FILE = "fault-pass.txt"


@dataclass(slots=True)
class Stopped:
    """The time since which a process is stopped by a signal; None while it runs."""

    since: float | None = None

    def lasts(self, pid: int) -> bool:
        """Has the process `pid` been stopped for longer than allowed?"""
        if not pid or not is_stopped(pid):
            self.since = None
            return False
        self.since = self.since or time.monotonic()
        return time.monotonic() - self.since > _STOPPED_SECONDS


@dataclass(slots=True)
class Task:
    """One running call. at: its last reported activity.  answer: its final message."""

    ident: int
    method: str
    params: Mapping[str, Any]
    ask: Ask
    end: float
    fork: Fork
    at: str = ""
    answer: wire.Message | None = None
    stopped: Stopped = field(default_factory=Stopped)


class Service:
    """Serves `call` and `cancel` on one wire until it closes, then ends all forks."""

    def __init__(self, connection: wire.Connection, live: object) -> None:
        self.connection = connection
        self.live = live if isinstance(live, Live) else None
        self.tasks: dict[int, Task] = {}
        self.holder: Holder | None = None
        self._holder_stopped = Stopped()
        self._decoder = connection.decoder
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Serve until the server closes the wire."""
        self._selector.register(self.connection.sock, selectors.EVENT_READ)
        try:
            self._take_messages()
            while self._serve_events():
                pass
        finally:
            for task in list(self.tasks.values()):
                self._end_task(task)
            self._drop_holder()
            self._selector.close()

    def _serve_events(self) -> bool:
        for key, _ in self._selector.select(POLL if self.tasks else None):
            if key.fileobj is self.connection.sock:
                if not self._receive_calls():
                    return False
            elif key.fileobj is self.holder:
                self._read_holder(self.holder)
            elif key.data is not None and key.fileobj is key.data.fork:
                self._read_task(key.data)
        self._hold_to_limits()
        return True

    # Messages of the server.

    def _receive_calls(self) -> bool:
        data = self.connection.sock.recv(1 << 16)
        self._decoder.feed(data)
        self._take_messages()
        return bool(data)

    def _take_messages(self) -> None:
        while (message := self._decoder.next()) is not None:
            if message["op"] == "cancel":
                self._cancel_call(message["id"])
            elif message["op"] == "call":
                self._start_call(message["id"], message.get("method", ""), message.get("params") or {})

    def _start_call(self, ident: int, method: str, params: Mapping[str, Any]) -> None:
        if method == "ping":
            self.connection.send({"result": ident, "value": "pong"})
        elif (why := self._explain_refusal(method)) is not None:
            self._send_answer(ident, {"error": why, "kind": "argument"})
        else:
            with answer_errors(lambda answer: self._send_answer(ident, answer)):
                ask = Ask.of(params)
                fork = self._fork_call(method, ask)
                self._add_task(Task(ident, method, params, ask, time.monotonic() + ask.seconds, fork))

    def _explain_refusal(self, method: str) -> str | None:
        if method not in METHODS:
            return f"unknown method {method!r}; known: {sorted([*METHODS, 'ping'])}"
        if self.live is None:
            return "this file was not traced to its end: there is no model to work on"
        return None if HAS_FORK else "passes run in forks of the process that traced the file, on Linux alone"

    def _cancel_call(self, ident: int) -> None:
        if (task := self.tasks.get(ident)) is not None:
            self._end_task(task)
            self._send_answer(ident, {"error": "it was cancelled", "kind": "cancelled"})

    def _send_answer(self, ident: int, answer: wire.Message) -> None:
        self.connection.send({"result": ident, **answer})

    # Forks.

    def _fork_call(self, method: str, ask: Ask) -> Fork:
        live = self.live
        assert live is not None

        def work(sock: socket.socket) -> None:
            perform_method(method, live, ask, None, make_sender(sock))

        return Fork.of(work, self._iterate_sockets(), self._get_fault_file())

    def _iterate_sockets(self) -> Iterator[socket.socket]:
        """The sockets that a fork must close, so that the other ends notice when this process ends."""
        yield self.connection.sock
        yield from (task.fork.sock for task in self.tasks.values())
        if self.holder is not None:
            yield self.holder.sock

    def _get_fault_file(self) -> str:
        scratch = "" if self.live is None else self.live.request.scratch
        return str(Path(scratch) / _FAULT_FILE) if scratch else ""

    def _add_task(self, task: Task) -> None:
        self.tasks[task.ident] = task
        self._selector.register(task.fork, selectors.EVENT_READ, task)

    def _end_task(self, task: Task) -> int:
        """Forget a task and end its fork; return the fork's status."""
        del self.tasks[task.ident]
        with contextlib.suppress(KeyError):  # `_finish_task` does not hear of it any more
            self._selector.unregister(task.fork)
        unborn = isinstance(task.fork, Held) and not task.fork.pid
        status = task.fork.reap()
        if unborn:
            self._drop_holder()
        return status

    def _read_task(self, task: Task) -> None:
        for message in task.fork.messages():
            if "event" not in message:
                task.answer = message
                continue
            task.at = message.get("message", task.at)
            self.connection.send({**message, "id": task.ident})
        if task.fork.ended and task.ident in self.tasks:
            self._finish_task(task)

    def _finish_task(self, task: Task) -> None:
        if task.answer is None and isinstance(task.fork, Held) and task.fork.status is None and self.holder:
            task.fork.kill()
            self._selector.unregister(task.fork)
            return  # its parent will report how it ended
        status = self._end_task(task)
        answer = task.answer or {"error": self._describe_death(task, status), "kind": "pass"}
        if answer.get("value") == {"then": "measure"}:
            self._continue_with_values(task)
        else:
            self._send_answer(task.ident, answer)

    def _describe_death(self, task: Task, status: int) -> str:
        line = _find_crash_line(self._get_fault_file(), "" if self.live is None else self.live.request.folder)
        doing = f" during {task.at}" if task.at else ""
        return f"the process that ran the passes {how_it_ended(status)}{doing}{line}"

    # The holder.

    def _continue_with_values(self, task: Task) -> None:
        """Continue the same call on the model with values."""
        assert self.live is not None
        if self.holder is None:
            self.holder = Holder.start(self.live, self._iterate_sockets())
            self._selector.register(self.holder, selectors.EVENT_READ)
        try:
            task.fork = self.holder.run(task.ident, task.method, task.params, self._get_fault_file())
        except OSError:  # it has just ended
            self._drop_holder()
            return self._send_answer(task.ident, {"error": "the process with the real model ended", "kind": "internal"})
        task.answer = None
        return self._add_task(task)

    def _read_holder(self, holder: Holder) -> None:
        for message in holder.messages():
            held = [task for task in self.tasks.values() if isinstance(task.fork, Held)]
            for task in held:
                if message.get("id") == task.ident:
                    task.fork.pid = message["started"]
                elif message.get("exited") == task.fork.pid:
                    self._note_exit(task, message["status"])
        if holder.ended:
            self._drop_holder()

    def _note_exit(self, task: Task, status: int) -> None:
        assert isinstance(task.fork, Held)
        task.fork.status = status
        with contextlib.suppress(KeyError):
            self._selector.get_key(task.fork)
            return  # its remaining messages are read first
        self._selector.register(task.fork, selectors.EVENT_READ, task)
        self._finish_task(task)

    def _drop_holder(self) -> None:
        """End the holder, and with it everything that it runs."""
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
            self._send_answer(task.ident, {"error": self._describe_death(task, status), "kind": "internal"})

    # Limits.

    def _hold_to_limits(self) -> None:
        if self.holder is not None and self._holder_stopped.lasts(self.holder.pid):
            self._drop_holder()
        for task in list(self.tasks.values()):
            if task.stopped.lasts(task.fork.pid):
                self._end_task(task)
                self._send_answer(task.ident, {"error": f"the process that ran the passes {_STOPPED}", "kind": "pass"})
            elif time.monotonic() > task.end:
                self._stop_over_limit(task, f"it took more than {task.ask.seconds:g} s")
            elif self._get_resident_bytes(task) > task.ask.memory:
                self._stop_over_limit(task, f"it took more than {in_units(task.ask.memory)} of memory")

    def _get_resident_bytes(self, task: Task) -> int:
        holder = self.holder.pid if self.holder is not None and isinstance(task.fork, Held) else 0
        return max(resident_bytes_of(pid) if pid else 0 for pid in (task.fork.pid, holder))

    def _stop_over_limit(self, task: Task, text: str) -> None:
        self._end_task(task)
        if self.holder is not None and resident_bytes_of(self.holder.pid) > task.ask.memory:
            self._drop_holder()
        doing = f" during {task.at}" if task.at else ""
        text = f"stopped{doing}: {text}; change the limit, or use a pass that needs less"
        self._send_answer(task.ident, {"error": text, "kind": "limit"})


def _find_crash_line(fault: str, folder: str) -> str:
    """The line of the workspace at which it crashed, from faulthandler's output; "" if unknown."""
    try:
        lines = Path(fault).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    own = [line.strip() for line in lines if line.lstrip().startswith(f'File "{folder}')]
    return f", at {own[0]}" if own else ""


# The fork that holds models with values: it makes each one once, and forks a process for each pipeline on it.
#
# A pipeline's changes to the model end with its process.
#
# The holder makes models with one thread and never computes with them. Only its forks may use several threads, and they
# do so for large models while processors are idle: on a busy machine, threads that wait for each other took twenty
# times
# as long as one. Only the holder ends its forks, because only a parent knows that an id is still its child's.

_RECEIVE = 64 << 10


class Holder(Fork):
    """The holder as its parent sees it. started, exited: its reports on its forks, by process id."""

    @classmethod
    def start(cls, live: Live, close: Iterator[socket.socket]) -> Holder:
        """Fork the holder for the models of a file."""
        return cls.of(lambda sock: _Holding(live, sock).serve(), close)

    def run(self, ident: int, method: str, params: Mapping[str, Any], fault: str) -> Held:
        """Have the holder fork a process for a call."""
        if sys.platform == "win32":
            raise NotImplementedError
        ours, theirs = socket.socketpair()
        message = {"op": "run", "id": ident, "method": method, "params": params, "fault": fault}
        self.sock.setblocking(True)
        socket.send_fds(self.sock, [wire.encode(message)], [theirs.fileno()])
        self.sock.setblocking(False)
        theirs.close()
        return Held(self, ours)

    def tell(self, message: wire.Message) -> None:
        """Send the holder a message, if it still listens."""
        with contextlib.suppress(OSError):
            self.sock.sendall(wire.encode(message))


class Held(Fork):
    """A fork of the holder, as the holder's parent sees it. pid: 0 while its model is being made."""

    def __init__(self, holder: Holder, sock: socket.socket) -> None:
        super().__init__(0, sock)
        self.holder = holder
        self.status: int | None = None

    def kill(self) -> None:
        """End it at once, through its parent: only that knows whether the process id is still its own."""
        if self.pid:
            self.holder.tell({"op": "kill", "pid": self.pid})
        else:
            self.holder.kill()

    def reap(self) -> int:
        """End it; return its status, or 0 if the holder has not told it."""
        self.kill()
        self.sock.close()
        return self.status or 0


@dataclass(slots=True)
class _Holding:
    """The code of the holder process."""

    live: Live
    sock: socket.socket
    models: dict[int, Real] = field(default_factory=dict)
    children: set[int] = field(default_factory=set)
    decoder: wire.Decoder = field(default_factory=wire.Decoder)
    descriptors: list[int] = field(default_factory=list)

    def serve(self) -> None:
        """Serve until the parent closes its end."""
        if sys.platform == "win32":
            raise NotImplementedError
        wake, woken = socket.socketpair()
        for one in (wake, woken):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while all(map(self._read_source, [key.fileobj for key, _ in selector.select()])):
                pass

    def _read_source(self, source: Any) -> bool:
        """Read the messages that have arrived; return False at the end of the stream."""
        if sys.platform == "win32":
            raise NotImplementedError
        if source is not self.sock:
            source.recv(_RECEIVE)
            self._reap_forks()
            return True
        data, descriptors, _, _ = socket.recv_fds(self.sock, _RECEIVE, 8)
        self.descriptors += descriptors
        self.decoder.feed(data)
        while (message := self.decoder.next()) is not None:
            if message["op"] == "run":
                with socket.socket(fileno=self.descriptors.pop(0)) as task:
                    self._run_task(task, message)
            elif message["pid"] in self.children:
                os.kill(message["pid"], KILL)
        return bool(data)

    def _reap_forks(self) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self.children.discard(pid)
            make_sender(self.sock)({"exited": pid, "status": status})

    def _run_task(self, task: socket.socket, message: wire.Message) -> None:
        ask = Ask.of(message["params"])
        made: list[Real] = []
        with answer_errors(make_sender(task)):
            made.append(self._make_real(ask, make_sender(task)))
        if not made:
            return

        if message["method"] == "compiled":
            import_for_view(ask.name)  # here, so that it is there for the next call, too

        def run(sock: socket.socket) -> None:
            perform_method(message["method"], self.live, ask, made[0], make_sender(sock))

        pid = fork_with_socket(task, run, [self.sock], message["fault"])
        self.children.add(pid)
        make_sender(self.sock)({"started": pid, "id": message["id"]})

    def _make_real(self, ask: Ask, send: Send) -> Real:
        index = self.live.index(ask.model)
        if index not in self.models:
            traced, request = self.live.traced[index], self.live.request
            send({"event": "progress", "message": f"making {traced.name} with its weights", "fraction": 0.0})
            try:
                with guard_program(request.scratch), as_program(request.path, request.folder):
                    self.models[index] = real_model(traced.found.model, traced.session.shadows, traced.found.construct)
            except (Exception, SystemExit) as error:  # the border to the user's constructors
                text = (
                    f"{traced.name} could not be made with values ({told(error)}): errors are not measured, and passes"
                )
                raise AskError(f"{text} that need weights cannot run", "internal") from error
        return self.models[index]
