"""One client's stream: it splits bytes into messages, sends at the client's pace, and ends with a reason.

The server reads bytes, starts requests and packs answers a little at a time. If a client does not read its messages,
the server stops working for it, and then disconnects it with a reason. A message is bounded before anything is
allocated for it, and more tightly before the client has sent the token.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from mase_server.protocol.answers.files import ErrorMap
from mase_server.rpc.dispatch import Front, error_map
from mase_server.rpc.frames import pack_notification
from mase_server.system import peer_user, user_id

#: Notifications from the server: an error that belongs to no request; the reason for the end of the connection.
ERROR, DROPPED = "mase/error", "mase/dropped"


class Channel(asyncio.BufferedProtocol):
    """The part of a connection that knows the transport. All methods belong to the event loop."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.limits = front.limits
        self.ended = False
        self._buffer = bytearray(self.limits.receive)
        self._transport: asyncio.Transport | None = None
        self._writing = asyncio.Lock()
        self._partial = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._later: set[asyncio.Task[None]] = set()

    # Called for the subclass.

    def received(self, data: memoryview) -> None:
        """Bytes arrived."""

    def lost(self) -> None:
        """The client is gone."""

    def drained(self) -> None:
        """The client has read everything that was sent."""

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(self.limits.send_buffer)
        counts = self.front.counts
        if len(self.front.connections) >= self.limits.connections:
            self.front.drop_stranger()
        if len(self.front.connections) >= self.limits.connections:
            counts.refused += 1
            self.drop(f"{self.limits.connections} clients are connected, which is the limit")
        elif not _is_own(transport.get_extra_info("socket")):
            counts.refused += 1
            self.drop("another user's process")
        else:
            counts.connections += 1
            self.front.connections.add(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        """The buffer for the next bytes, small enough that reading them takes the loop only a moment."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        if not self.ended:
            self.received(memoryview(self._buffer)[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: all its work stops."""
        self.ended = True
        self.front.connections.discard(self)
        self.front.strangers.pop(self, None)
        for name in list(self._timers):
            self.cancel_timer(name)
        for task in self._later:
            task.cancel()
        self._writable.set()
        self.lost()

    def pause_writing(self) -> None:
        """The client does not read its answers: nothing more is started for it."""
        self._writable.clear()
        self.pause_reading()
        self.after("drain", self.limits.drain_seconds, "the client did not read its messages in time", abort=True)

    def resume_writing(self) -> None:
        """The client reads again."""
        self.cancel_timer("drain")
        self._writable.set()
        self.drained()

    # Sending.

    @property
    def writable(self) -> bool:
        """Does the client read what is sent?"""
        return self._writable.is_set()

    def send(self, message: bytes) -> None:
        """Send a small message, after any message that is being sent in pieces."""
        if not self._partial:
            self._put(message)
            return
        task = asyncio.ensure_future(self.send_pieces([message]))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Send a whole message, piece by piece at the client's pace; FrameError before the first piece."""
        async with self._writing:
            try:
                for piece in pieces:
                    if self._partial:
                        await asyncio.sleep(0)
                    await self._writable.wait()
                    self._partial = True
                    self._put(piece)
                self._partial = False
            except BaseException:
                if self._partial and self._transport is not None:
                    self._transport.abort()  # half an answer cannot be taken back
                raise

    def _put(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # Ending.

    def drop(self, why: str) -> None:
        """End the connection with a reason, which is the last message to the client."""
        if not self.ended:
            self.front.counts.dropped += 1
            self.fail(error_map("dropped", why), DROPPED)

    def fail(self, error: ErrorMap, method: str = ERROR) -> None:
        """Send a last notification, and end the connection."""
        self.ended = True
        if not self._partial:
            self._put(pack_notification(method, error))
        self.close()

    def close(self) -> None:
        """Send what is left, but only for a moment, and end the connection."""
        if self._transport is not None:
            self._transport.close()
            self.after("abort", self.limits.end_seconds, "", abort=True)

    def after(self, name: str, seconds: float, why: str, *, abort: bool = False) -> None:
        """End the connection after so many seconds. abort: discard what is still unsent."""

        def end() -> None:
            self._timers.pop(name, None)
            if abort and self._transport is not None:
                self.front.counts.dropped += bool(why)
                self._transport.abort()
            else:
                self.drop(why)

        self.cancel_timer(name)
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, end)

    def waits(self, name: str) -> bool:
        """Is a timer of that name running?"""
        return name in self._timers

    def cancel_timer(self, name: str) -> None:
        """Stop a timer, because the awaited event happened."""
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def pause_reading(self) -> None:
        """Stop taking bytes; they wait in the socket."""
        if self._transport is not None and self._transport.is_reading() and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self._transport is not None and not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()


def _is_own(made: socket.socket | None) -> bool:
    """Does the peer of a Unix socket belong to this user or to root? True if the system does not tell."""
    return made is None or peer_user(made) in (None, user_id(), 0)
