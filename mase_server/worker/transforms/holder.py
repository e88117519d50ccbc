"""The fork that keeps models with values: it makes each one once, and forks a process for each pipeline on it.

Changes that a pipeline makes to the model end with its process.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mase_server import wire
from mase_server.inputs.execution.guard import guarded
from mase_server.inputs.execution.program import as_program
from mase_server.inputs.making.real import Real, real_model
from mase_server.worker.live import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Fork, Send, fork, sender
from mase_server.worker.transforms.pipeline import told
from mase_server.worker.transforms.work import answering, perform

_RECEIVE = 64 << 10


class Holder(Fork):
    """The holder as its parent sees it. started, exited: what it told of its forks, by process id."""

    @classmethod
    def start(cls, live: Live, close: Iterator[socket.socket]) -> Holder:
        """Fork the holder for the models of a file."""
        return cls.of(lambda sock: _Holding(live, sock).serve(), close)

    def run(self, ident: int, method: str, params: dict[str, Any], fault: str) -> Held:
        """Have it fork a process for a call."""
        ours, theirs = socket.socketpair()
        message = {"op": "run", "id": ident, "method": method, "params": params, "fault": fault}
        self.sock.setblocking(True)
        socket.send_fds(self.sock, [wire.encode(message)], [theirs.fileno()])
        self.sock.setblocking(False)
        theirs.close()
        return Held(self, ours)

    def tell(self, message: wire.Message) -> None:
        """Send it a message, if it still listens."""
        with contextlib.suppress(OSError):
            self.sock.sendall(wire.encode(message))


class Held(Fork):
    """A fork of the holder, as the holder's parent sees it. pid: 0 while its model is being made."""

    def __init__(self, holder: Holder, sock: socket.socket) -> None:
        super().__init__(0, sock)
        self.holder = holder
        self.status: int | None = None

    def kill(self) -> None:
        """End it at once: by its parent, the only one that knows whether its id is still its own."""
        if self.pid:
            self.holder.tell({"op": "kill", "pid": self.pid})
        else:
            self.holder.kill()

    def reap(self) -> int:
        """End it; its status, where the holder has told it."""
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
        """Until the parent's end is closed."""
        wake, woken = socket.socketpair()
        for one in (wake, woken):
            one.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while all(map(self._ready, [key.fileobj for key, _ in selector.select()])):
                pass

    def _ready(self, source: Any) -> bool:
        """Read what has arrived; False at the end."""
        if source is not self.sock:
            source.recv(_RECEIVE)
            self._reap()
            return True
        data, descriptors, _, _ = socket.recv_fds(self.sock, _RECEIVE, 8)
        self.descriptors += descriptors
        self.decoder.feed(data)
        while (message := self.decoder.next()) is not None:
            if message["op"] == "run":
                with socket.socket(fileno=self.descriptors.pop(0)) as task:
                    self._run(task, message)
            elif message["pid"] in self.children:
                os.kill(message["pid"], signal.SIGKILL)
        return bool(data)

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self.children.discard(pid)
            sender(self.sock)({"exited": pid, "status": status})

    def _run(self, task: socket.socket, message: wire.Message) -> None:
        ask = Ask.of(message["params"])
        made: list[Real] = []
        with answering(sender(task)):
            made.append(self._real(ask, sender(task)))
        if not made:
            return

        def run(sock: socket.socket) -> None:
            perform(message["method"], self.live, ask, made[0], sender(sock))

        pid = fork(task, run, [self.sock], message["fault"])
        self.children.add(pid)
        sender(self.sock)({"started": pid, "id": message["id"]})

    def _real(self, ask: Ask, send: Send) -> Real:
        index = self.live.index(ask.model)
        if index not in self.models:
            traced, request = self.live.traced[index], self.live.request
            send({"event": "progress", "message": f"making {traced.name} with its weights", "fraction": 0.0})
            try:
                with guarded(request.scratch), as_program(request.path, request.folder):
                    self.models[index] = real_model(traced.found.model, traced.session.shadows, traced.found.construct)
            except (Exception, SystemExit) as error:  # the border to the person's constructors
                text = (
                    f"{traced.name} could not be made with values ({told(error)}): errors are not measured, and passes"
                )
                raise AskError(f"{text} that need weights cannot run", "internal") from error
        return self.models[index]
