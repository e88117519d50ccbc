"""Messages between the server's event loop and a worker, over a non-blocking Unix socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from mase_server.wire import Decoder, Message, WireError, encode

_RECEIVE = 256 << 10


class Channel:
    """One end of a socket pair; `read` gives one message, None once the other end is closed or broken."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._decoder = Decoder()
        self._sending = asyncio.Lock()
        self.broken: str | None = None

    async def read(self) -> Message | None:
        """The next message; the loop gets a turn after each, however fast they come."""
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
        """Send one short message along with open descriptors, which the receiver gets copies of."""
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
        """Close this end; the other end reads the end of the stream."""
        self._sock.close()
