"""A trace child's service in a fork of the test process, and its server's end of the wire."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mase_server.protocol import wire
from mase_server.protocol.arguments import Step
from mase_server.protocol.snapshot import TransformAssembler
from mase_server.system import resident_bytes_of
from mase_server.worker.traced import Live
from mase_server.worker.transforms.forks import Fork
from mase_server.worker.transforms.service import Service

#: Seconds for one answer; a test that waits longer fails.
PATIENCE = 60.0


@dataclass
class Answer:
    """One call's end: its transforms as they came, what it told meanwhile, and its answer."""

    transforms: list[dict[str, Any]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    value: Any = None
    error: str = ""
    kind: str = ""

    @property
    def last(self) -> dict[str, Any]:
        return self.transforms[-1]


class Child:
    """The child. `call` waits for the answer; `ask` and `wait` do so in two steps."""

    def __init__(self, live: Live) -> None:
        self._fork_call = Fork.of(lambda sock: Service(wire.Connection(sock), live).serve())
        self._fork_call.sock.setblocking(True)
        self._decoder = wire.Decoder()
        self._arrived: list[wire.Message] = []
        self._ids = 0
        self.pid = self._fork_call.pid

    def ask(self, method: str, *steps: str, **params: Any) -> int:
        self._ids += 1
        params = {"memory": room(4 << 30)} | params
        params |= {"steps": [Step.parse(step).to_wire() for step in steps]}
        self.send({"op": "call", "id": self._ids, "method": method, "params": params})
        return self._ids

    def send(self, message: wire.Message) -> None:
        self._fork_call.sock.sendall(wire.encode(message))

    def call(self, method: str, *steps: str, **params: Any) -> Answer:
        return self.wait(self.ask(method, *steps, **params))

    def wait(self, ident: int, until: Callable[[wire.Message], bool] = lambda message: False) -> Answer:
        """The answer of a call; what came until then, where a message is what `until` waits for."""
        answer, assembler = Answer(), TransformAssembler()
        for message in self._messages(ident):
            if message.get("event") == "transform":
                if (found := assembler.add(message["frame"])) is not None:
                    answer.transforms.append(found)
            elif message.get("event") == "progress":
                answer.told.append(message["message"])
            else:
                answer.value = message.get("value")
                answer.error, answer.kind = message.get("error", ""), message.get("kind", "")
                return answer
            if until(message):
                return answer
        raise AssertionError("unreachable")

    def _messages(self, ident: int) -> Iterator[wire.Message]:
        """Messages of one call; those of others stay for whoever waits for them."""
        end = time.monotonic() + PATIENCE
        while True:
            mine = [message for message in self._arrived if ident in (message.get("id"), message.get("result"))]
            if mine:
                self._arrived.remove(mine[0])
                yield mine[0]
                continue
            assert time.monotonic() < end, "no answer came"
            if select.select([self._fork_call.sock], [], [], 1.0)[0]:
                data = self._fork_call.sock.recv(1 << 20)
                assert data, "the child ended"
                self._decoder.feed(data)
                while (message := self._decoder.next()) is not None:
                    self._arrived.append(message)

    def forks(self) -> list[int]:
        """The processes that the child has started, and those that they have."""
        found, waiting = [], [self.pid]
        while waiting:
            below = children(waiting.pop())
            found += below
            waiting += below
        return found

    def close(self) -> None:
        """Close the wire, as a server does that goes; the child must end by itself."""
        self._fork_call.sock.shutdown(socket.SHUT_RDWR)
        assert os.waitpid(self.pid, 0)[1] == 0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def room(extra: int) -> int:
    """A limit for forks of this process, which after thousands of tests is large itself: what it has, and more."""
    return resident_bytes_of(os.getpid()) + extra


def children(pid: int) -> list[int]:
    try:
        return [int(part) for part in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Is it there, and no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int]) -> bool:
    """Do these processes end?"""
    end = time.monotonic() + PATIENCE
    while any(map(alive, pids)) and time.monotonic() < end:
        select.select([], [], [], 0.01)
    return not any(map(alive, pids))
