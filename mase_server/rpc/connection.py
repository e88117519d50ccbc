"""One client: its messages in, its answers and news out. It can neither hold up the others nor grow without bound."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

from mase_server.daemon.methods import Api, ApiError
from mase_server.rpc.dispatch import answer, error_map, told_of
from mase_server.rpc.frames import MAX_STRANGER, FrameError, Message, Reader, Request, notification, response
from mase_server.rpc.front import Front
from mase_server.rpc.outbox import Outbox
from mase_server.rpc.pieces import response_pieces
from mase_server.rpc.private import is_own
from mase_server.rpc.session import ConnectionSession

AUTHENTICATE, CANCEL = "mase/authenticate", "mase/cancel"
#: The notifications that a server sends: news; a message that nobody can be answered for; why a connection ends.
EVENT, ERROR, DROPPED = "mase/event", "mase/error", "mase/dropped"
_LOG = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """One client's connection. All of it belongs to the event loop.

    token: what the client has to say first; "" where it need not.
    """

    def __init__(self, front: Front, token: str = "") -> None:
        self.front = front
        self.limits = front.limits
        self._token = token
        self._reader = Reader(MAX_STRANGER if token else self.limits.frame)
        self._buffer = bytearray(self.limits.receive)
        self._backlog: deque[Message] = deque()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._notified: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._writing = asyncio.Lock()
        self._writable = asyncio.Event()
        self._writable.set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pumping = False
        self._ended = False
        self.outbox = Outbox(self._wake, events=self.limits.events, subscriptions=self.limits.subscriptions)
        self._telling: asyncio.Task[None] | None = None
        self._session = ConnectionSession(front, self.outbox)
        self._api = Api(front.daemon, self._session)

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(self.limits.send_buffer)
        counts = self.front.counts
        if len(self.front.connections) >= self.limits.connections:
            counts.refused += 1
            self.drop(f"{self.limits.connections} clients are connected, which is the limit")
            return
        if not is_own(transport.get_extra_info("socket")):
            self.drop("another user's process")
            return
        counts.connections += 1
        self.front.connections.add(self)
        if self._token:
            self._after("greeting", self.limits.greeting_seconds, f"no {AUTHENTICATE} came in time")

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where the next bytes go: few, so that reading them takes the loop a moment only."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        if self._ended:
            return
        try:
            self._backlog.extend(self._reader.feed(memoryview(self._buffer)[:nbytes]))
        except FrameError as error:
            self._pump()
            self._fail(error_map("bad-message", str(error)))
            return
        if not self._reader.partial:
            self._cancel_timer("frame")
        elif "frame" not in self._timers:
            seconds = self.limits.frame_seconds
            self._after("frame", seconds, f"a message was not whole after {seconds:g} s")
        self._pump()

    def eof_received(self) -> bool:
        """The client sends no more; what it asked for may still be answered, for a moment."""
        self._after("end", self.limits.end_seconds, "the client sends no more")
        self._end_if_idle()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: nothing goes on for it."""
        self._ended = True
        self.front.connections.discard(self)
        for name in list(self._timers):
            self._cancel_timer(name)
        for task in (*self._running.values(), *self._notified, *([self._telling] if self._telling else ())):
            task.cancel()
        self._backlog.clear()
        self._writable.set()
        self._session.close()

    def pause_writing(self) -> None:
        """The client does not read what it asked for: nothing more is begun for it."""
        self._writable.clear()
        self._pause_reading()
        seconds = self.limits.drain_seconds
        self._after("drain", seconds, f"what was sent was not read within {seconds:g} s", at_once=True)

    def resume_writing(self) -> None:
        """It reads again."""
        self._cancel_timer("drain")
        self._writable.set()
        self._pump()

    # Messages in

    def _pump(self) -> None:
        """Begin what was asked for: a few at a time, so that others have their turns between."""
        self._pumping = False
        if self._ended:
            return
        begun = 0
        while self._backlog and self._can_begin() and begun < self.limits.turn:
            begun += 1
            self._take(self._backlog.popleft())
        if self._backlog:
            self._pause_reading()
            if self._can_begin() and not self._pumping:
                self._pumping = True
                asyncio.get_running_loop().call_soon(self._pump)
        elif self._writable.is_set():
            self._resume_reading()

    def _can_begin(self) -> bool:
        return self._writable.is_set() and len(self._running) + len(self._notified) < self.limits.pending

    def _take(self, message: Message) -> None:
        if not isinstance(message, Request):
            told = f"a response to request {message.ident} came, but this server asks nothing"
            self._send(notification(ERROR, error_map("unexpected-response", told)))
        elif message.method == CANCEL:
            self._cancel(message)
        elif message.ident is None:
            task = asyncio.ensure_future(self._heed(message))
            self._notified.add(task)
            task.add_done_callback(self._notified.discard)
        elif message.ident in self._running:
            told = f"the id {message.ident} belongs to a request that has no answer yet"
            self._send(response(message.ident, error_map("invalid-request", told), None))
        else:
            self._running[message.ident] = asyncio.ensure_future(self._serve(message.ident, message))

    def _cancel(self, message: Request) -> None:
        params = message.params[0] if isinstance(message.params, list) and message.params else message.params
        ident = params.get("id") if isinstance(params, dict) else params
        found = self._running.get(ident) if isinstance(ident, int) else None
        if found is not None:
            found.cancel()
        if message.ident is not None:
            self._send(response(message.ident, None, {"cancelled": found is not None}))

    async def _serve(self, ident: int, message: Request) -> None:
        """Answer one request."""
        self.front.counts.requests += 1
        try:
            try:
                pieces: Iterable[bytes] = response_pieces(ident, await self._result(message))
            except asyncio.CancelledError as error:
                if self._ended:
                    raise
                pieces = self._refusal(ident, error)
            except Exception as error:  # noqa: BLE001  (the request's border)
                pieces = self._refusal(ident, error)
            await self._write(ident, pieces)
        finally:
            self._running.pop(ident, None)
            self._after_request()

    async def _heed(self, message: Request) -> None:
        """Do what a notification says; there is nobody to tell of a failure."""
        try:
            await self._result(message)
        except Exception as error:  # noqa: BLE001  (the request's border)
            _LOG.debug("a notification failed: %s", told_of(error))
        finally:
            asyncio.get_running_loop().call_soon(self._after_request)

    def _after_request(self) -> None:
        if self._ended:
            return
        if self._backlog and not self._pumping:
            self._pump()
        self._end_if_idle()

    def _refusal(self, ident: int, error: BaseException) -> list[bytes]:
        self.front.counts.errors += 1
        return [response(ident, told_of(error), None)]

    async def _result(self, message: Request) -> dict[str, Any]:
        if message.method == AUTHENTICATE:
            return self._authenticate(message.params)
        if self._token:
            raise ApiError("unauthenticated", f"the first request has to be {AUTHENTICATE} with the token")
        return await answer(self._api, message.method, message.params)

    def _authenticate(self, params: Any) -> dict[str, Any]:
        given = params[0].get("token") if isinstance(params, list) and params and isinstance(params[0], dict) else None
        said = given.encode("utf-8", "replace") if isinstance(given, str) else b""
        if self._token and not hmac.compare_digest(said, self._token.encode()):
            self._after("end", 0.0, "the token is not this server's")
            raise ApiError("unauthenticated", "the token is not this server's")
        self._token = ""
        self._reader.limit = self.limits.frame
        self._cancel_timer("greeting")
        return {"authenticated": True}

    # Answers and news out

    async def _write(self, ident: int, pieces: Iterable[bytes]) -> None:
        """Send an answer, whole, piece by piece at the pace that the client reads."""
        async with self._writing:
            begun = False
            try:
                for piece in pieces:
                    if begun:
                        await asyncio.sleep(0)
                    await self._writable.wait()
                    begun = True
                    self._send(piece)
            except Exception as error:  # noqa: BLE001  (half an answer cannot be taken back)
                if begun:
                    return self._fail(told_of(error))
                self._send(response(ident, told_of(error), None))

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _wake(self) -> None:
        if self.outbox.overrun and not self._writable.is_set():
            self.drop(f"news were not read: {self.outbox.overrun}")
        elif self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(0)  # what happens in one turn of the loop is coalesced
        for event in self.outbox.take():
            await self._writable.wait()
            async with self._writing:
                self._send(notification(EVENT, event))
            self.front.counts.events += 1

    # The end

    def drop(self, why: str) -> None:
        """End the connection with a reason, which the client reads last, if it reads."""
        if not self._ended:
            self.front.counts.dropped += 1
            self._fail(error_map("dropped", why), DROPPED)

    def _fail(self, error: dict[str, Any], method: str = ERROR) -> None:
        self._ended = True
        self._send(notification(method, error))
        if self._transport is not None:
            self._transport.close()
            self._after("abort", self.limits.end_seconds, "", at_once=True)

    def _end_if_idle(self) -> None:
        if "end" in self._timers and not (self._running or self._backlog or self._notified) and self._transport:
            self._transport.close()

    def _after(self, name: str, seconds: float, why: str, at_once: bool = False) -> None:
        """End the connection after so long. at_once: what is still to be sent is thrown away."""

        def end() -> None:
            self._timers.pop(name, None)
            if at_once and self._transport is not None:
                self.front.counts.dropped += bool(why)
                self._transport.abort()
            else:
                self.drop(why)

        self._cancel_timer(name)
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, end)

    def _cancel_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _pause_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading() and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()
