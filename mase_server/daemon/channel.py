"""Messages between the event loop and a worker, over a non-blocking Unix socket, and calls to live children."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mase_server.protocol.snapshot import TransformAssembler
from mase_server.protocol.wire import Decoder, Message, WireError, encode

_RECEIVE = 256 << 10


class Channel:
    """One end of a socket pair; `read` returns one message, or None once the other end is closed or broken."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decoder = Decoder()
        self._sending = asyncio.Lock()
        self.broken: str | None = None

    async def read(self) -> Message | None:
        """The next message; the loop gets a turn after each message, however fast they arrive."""
        await asyncio.sleep(0)
        try:
            while (message := self._decoder.next()) is None:
                data = await asyncio.get_running_loop().sock_recv(self._sock, _RECEIVE)
                if not data:
                    self._decoder.close()
                    return None
                self._decoder.feed(data)
        except (OSError, WireError) as error:
            self.broken = str(error)
            return None
        return message

    async def send(self, message: Message) -> None:
        """Send one message; OSError when the other end is gone."""
        async with self._sending:
            await asyncio.get_running_loop().sock_sendall(self._sock, encode(message))

    async def send_with_fds(self, message: Message, fds: Sequence[int]) -> None:
        """Send one short message together with open descriptors; the receiver gets copies of them."""
        if sys.platform == "win32":
            raise NotImplementedError
        data = encode(message)
        async with self._sending:
            while True:
                try:
                    sent = socket.send_fds(self._sock, [data], list(fds))
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            await asyncio.get_running_loop().sock_sendall(self._sock, data[sent:])

    def close(self) -> None:
        """Close this end; the other end then reads the end of the stream."""
        self._sock.close()


# Calls to a live child: each gets its own answer, and its own events before that.

OnEvent = Callable[[Message], None]


class WorkerGone(Exception):
    """The child has ended before it answered."""


class CallFailed(RuntimeError):
    """The child reported an error; holds its text and its kind: pass, limit, cancelled, argument or internal."""

    def __init__(self, text: str, kind: str = "internal") -> None:
        super().__init__(text)
        self.kind = kind


def _ignore_event(message: Message) -> None:
    """Ignore an event, for callers that need only the answer."""


@dataclass(slots=True)
class Call:
    """One call that has no answer yet."""

    ident: int
    answer: asyncio.Future[Any]
    on_event: OnEvent
    assembler: TransformAssembler = field(default_factory=TransformAssembler)


class Calls:
    """All calls to one child that have no answer yet."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._ids = itertools.count(1)

    @property
    def idents(self) -> frozenset[int]:
        """The ids of the calls that wait for an answer."""
        return frozenset(self._calls)

    def open(self, on_event: OnEvent | None = None) -> Call:
        """Open a new call; its events go to `on_event`, those of transforms after reassembly."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = Call(next(self._ids), answer, on_event or _ignore_event)
        self._calls[call.ident] = call
        answer.add_done_callback(lambda done: self._calls.pop(call.ident, None))
        return call

    def take(self, message: Message) -> None:
        """Deliver an answer, or an event of a call; messages that no call waits for are dropped."""
        call = self._calls.get(message["result"] if "result" in message else message["id"])
        if call is None or call.answer.done():
            return
        if "result" not in message:
            self._pass_on_event(call, message)
        elif "error" in message:
            call.answer.set_exception(CallFailed(message["error"], message.get("kind", "internal")))
        else:
            call.answer.set_result(message["value"])

    @staticmethod
    def _pass_on_event(call: Call, message: Message) -> None:
        if "frame" not in message:
            call.on_event(message)
        elif (transform := call.assembler.add(message["frame"])) is not None:
            call.on_event({"event": message["event"], "id": call.ident, "transform": transform})

    def fail(self, error: Exception) -> None:
        """Answer all open calls with an error."""
        for call in list(self._calls.values()):
            if not call.answer.done():
                call.answer.set_exception(error)
                call.answer.exception()  # mark the error as retrieved: possibly nobody waits for it
