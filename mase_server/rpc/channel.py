"""One client's stream: bytes in, whole messages out at the pace that they are read, and its end, which has a reason."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

from mase_server.rpc.dispatch import error_map
from mase_server.rpc.frames import notification
from mase_server.rpc.front import Front

#: The notifications that a server sends: a message that nobody can be answered for; why a connection ends.
ERROR, DROPPED = "mase/error", "mase/dropped"


class Channel(asyncio.BufferedProtocol):
    """The part of a connection that knows the transport. All of it belongs to the event loop."""

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

    # What a connection has besides

    def received(self, data: memoryview) -> None:
        """Bytes came."""

    def lost(self) -> None:
        """The client is gone."""

    def drained(self) -> None:
        """The client has read everything that was sent."""

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
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
        """Where the next bytes go: few, so that reading them takes the loop a moment only."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        if not self.ended:
            self.received(memoryview(self._buffer)[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: nothing goes on for it."""
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
        """The client does not read what it asked for: nothing more is begun for it."""
        self._writable.clear()
        self.pause_reading()
        self.after("drain", self.limits.drain_seconds, "the client did not read its messages in time", abort=True)

    def resume_writing(self) -> None:
        """It reads again."""
        self.cancel_timer("drain")
        self._writable.set()
        self.drained()

    # Out

    @property
    def writable(self) -> bool:
        """Does the client read what is sent?"""
        return self._writable.is_set()

    def send(self, message: bytes) -> None:
        """Send a small message; after the one that is being sent in pieces, if one is."""
        if not self._partial:
            self._put(message)
            return
        task = asyncio.ensure_future(self.send_pieces([message]))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Send a message, whole, piece by piece at the pace that the client reads; FrameError before the first."""
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

    # The end

    def drop(self, why: str) -> None:
        """End the connection with a reason, which the client reads last, if it reads."""
        if not self.ended:
            self.front.counts.dropped += 1
            self.fail(error_map("dropped", why), DROPPED)

    def fail(self, error: dict[str, Any], method: str = ERROR) -> None:
        """Send a last notification, and end."""
        self.ended = True
        if not self._partial:
            self._put(notification(method, error))
        self.close()

    def close(self) -> None:
        """Send what is left, for a moment at most, and end."""
        if self._transport is not None:
            self._transport.close()
            self.after("abort", self.limits.end_seconds, "", abort=True)

    def after(self, name: str, seconds: float, why: str, *, abort: bool = False) -> None:
        """End the connection after so long. abort: what is still to be sent is thrown away."""

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
        """Does a timer of that name run?"""
        return name in self._timers

    def cancel_timer(self, name: str) -> None:
        """Stop a timer, because the awaited event happened."""
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def pause_reading(self) -> None:
        """Leave what comes where it is."""
        if self._transport is not None and self._transport.is_reading() and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take it."""
        if self._transport is not None and not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()


def _is_own(made: socket.socket | None) -> bool:
    """Is the process at the other end of a Unix socket this user's, or root's? True where the system does not tell."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if made is None or option is None or made.family != socket.AF_UNIX:
        return True
    _, user, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return user in (os.getuid(), 0)
