"""One client: what it asks is begun, answered and cancelled. It can neither hold up others nor grow without bound."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any

from mase_server.daemon.methods import Api, ApiError
from mase_server.observe.measured import Measured
from mase_server.private import is_token
from mase_server.rpc.channel import ERROR, Channel
from mase_server.rpc.dispatch import about, answer, answer_at_once, error_map, named, told_of, waits
from mase_server.rpc.frames import (
    MAX_STRANGER,
    STRANGER_ELEMENTS,
    FrameError,
    Message,
    Reader,
    Request,
    notification,
    response,
)
from mase_server.rpc.front import Front
from mase_server.rpc.outbox import Outbox
from mase_server.rpc.pieces import response_pieces, whole_response
from mase_server.rpc.session import ConnectionSession

AUTHENTICATE, CANCEL, EVENT = "mase/authenticate", "mase/cancel", "mase/event"
_LOG = logging.getLogger(__name__)


class Connection(Channel):
    """One client's requests and news. token: what it has to say first; "" where it need not."""

    def __init__(self, front: Front, token: str = "") -> None:
        super().__init__(front)
        self._token = token
        self._strange = bool(token)
        self._turned_away = False
        self._reader = Reader(MAX_STRANGER, STRANGER_ELEMENTS) if token else Reader(self.limits.frame)
        self._backlog: deque[Message] = deque()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._answered: set[int] = set()
        self._heeded: set[asyncio.Task[None]] = set()
        self._pumping = False
        self._half_open = False
        self._telling: asyncio.Task[None] | None = None
        limits = self.limits
        self._outbox = Outbox(self._wake, events=limits.events, subscriptions=limits.subscriptions)
        self._session = ConnectionSession(front, self._outbox)
        self._api = Api(front.daemon, self._session)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        super().connection_made(transport)
        if self._token and not self.ended:
            self.front.strangers[self] = None
            self.after("greeting", self.limits.greeting_seconds, f"the client sent no {AUTHENTICATE} in time")

    def eof_received(self) -> bool:
        """The client sends no more; what it asked for may still be answered, for a moment."""
        self._half_open = True
        self.after("end", self.limits.end_seconds, "the client sends no more")
        self._end_if_idle()
        return True

    def lost(self) -> None:
        """The client is gone: nothing goes on for it."""
        self._backlog.clear()
        for task in (*self._running.values(), *self._heeded, *([self._telling] if self._telling else ())):
            task.cancel()
        self._session.close()

    def drained(self) -> None:
        """It reads again."""
        self._pump()

    # Messages in

    def received(self, data: memoryview) -> None:
        """Bytes came."""
        if self._strange and not self._token and not self._reader.partial:
            self._strange, self._reader = False, Reader(self.limits.frame)
        try:
            self._backlog.extend(self._reader.feed(data))
        except FrameError as error:
            self.fail(error_map("bad-message", str(error)))
            return
        if not self._reader.partial:
            self.cancel_timer("frame")
        elif not self.waits("frame"):
            seconds = self.limits.frame_seconds
            self.after("frame", seconds, f"a message was incomplete after {seconds:g} s")
        self._pump()

    def _pump(self) -> None:
        """Begin what was asked for: a few at a time, so that others have their turns between."""
        self._pumping = False
        if self.ended:
            return
        for _ in range(self.limits.turn):
            if not self._backlog or not self._may_begin():
                break
            self._take(self._backlog.popleft())
        if not self._backlog:
            if self.writable:
                self.resume_reading()
            return
        self.pause_reading()
        if self._may_begin():
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _may_begin(self) -> bool:
        # A stranger is heard one request at a time, so that a connection is one guess of the token, and no more.
        most = 1 if self._token else self.limits.pending
        return self.writable and not self._turned_away and len(self._running) + len(self._heeded) < most

    def _take(self, message: Message) -> None:
        if not isinstance(message, Request):
            told = f"a response to request {message.ident} arrived, but this server sends no requests"
            self.send(notification(ERROR, error_map("unexpected-response", told)))
        elif message.method == CANCEL:
            self._cancel(message)
        elif message.ident is None:
            task = asyncio.ensure_future(self._heed(message))
            self._heeded.add(task)
            task.add_done_callback(self._was_heeded)
        elif message.ident in self._running:
            told = f"the id {message.ident} belongs to a request that has no answer yet"
            self.send(response(message.ident, self._formed(error_map("invalid-request", told)), None))
        elif self._token or message.method == AUTHENTICATE or waits(message.method):
            self._begin(message.ident, message)
        else:
            self._answer_at_once(message.ident, message)

    def _answer_at_once(self, ident: int, message: Request) -> None:
        try:
            with self._measured(message):
                result = answer_at_once(self._api, message.method, message.params)
            whole = whole_response(ident, result)
        except Exception as error:  # noqa: BLE001  (the request's border)
            self.front.counts.requests += 1
            self._refuse(ident, error)
            return
        if whole is None:
            self._begin(ident, message, result)
        else:
            self.front.counts.requests += 1
            self.send(whole)

    def _begin(self, ident: int, message: Request, result: dict[str, Any] | None = None) -> None:
        self.front.counts.requests += 1
        task = asyncio.ensure_future(self._serve(ident, message, result))
        self._running[ident] = task
        task.add_done_callback(self._was_served)
        task.set_name(str(ident))

    def _cancel(self, message: Request) -> None:
        params = message.params[0] if isinstance(message.params, list) and message.params else message.params
        ident = params.get("id") if isinstance(params, dict) else params
        found = self._running.get(ident) if isinstance(ident, int) and ident not in self._answered else None
        if found is not None:
            found.cancel()
        if message.ident is not None:
            self.send(response(message.ident, None, {"cancelled": found is not None}))

    async def _serve(self, ident: int, message: Request, made: dict[str, Any] | None) -> None:
        """Answer one request; once its answer is on the way it can no longer be cancelled. made: it, where known."""
        try:
            result = await self._result(message) if made is None else made
            self._answered.add(ident)
            whole = whole_response(ident, result) if self.writable else None
            if whole is not None:
                self.send(whole)
            else:
                await self.send_pieces(response_pieces(ident, result))
        except Exception as error:  # noqa: BLE001  (the request's border)
            self._answered.add(ident)
            self._refuse(ident, error)

    def _was_served(self, task: asyncio.Task[None]) -> None:
        ident = int(task.get_name())
        del self._running[ident]
        if task.cancelled() and ident not in self._answered:
            self._refuse(ident, asyncio.CancelledError())
        self._answered.discard(ident)
        self._after_request()

    def _refuse(self, ident: int, error: BaseException) -> None:
        self.front.counts.errors += 1
        if not self.ended:
            self.send(response(ident, self._formed(told_of(error)), None))

    def _formed(self, error: dict[str, Any]) -> Any:
        """An error as this client wants errors: some know only a number and a text."""
        return error if self._session.errors == "map" else [0, f"{error['code']}: {error['message']}"]

    async def _heed(self, message: Request) -> None:
        """Do what a notification says; there is nobody to tell of a failure."""
        try:
            await self._result(message)
        except Exception as error:  # noqa: BLE001  (the request's border)
            _LOG.debug("a notification failed: %s", told_of(error))

    def _was_heeded(self, task: asyncio.Task[None]) -> None:
        self._heeded.discard(task)
        self._after_request()

    def _after_request(self) -> None:
        if self._backlog and not self._pumping:
            self._pump()
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._half_open and not (self._running or self._backlog or self._heeded):
            self.close()

    async def _result(self, message: Request) -> dict[str, Any]:
        if message.method == AUTHENTICATE:
            return self._authenticate(message.params)
        if self._token:
            raise ApiError("unauthenticated", f"the first request has to be {AUTHENTICATE} with the token")
        with self._measured(message):
            return await answer(self._api, message.method, message.params)

    def _measured(self, message: Request) -> Measured:
        path = partial(about, self._api, message.params)
        return Measured(self.front.daemon.metrics, "r", named(message.method), path)

    def _authenticate(self, params: Any) -> dict[str, Any]:
        given = params[0].get("token") if isinstance(params, list) and params and isinstance(params[0], dict) else None
        if self._token and not is_token(given, self._token):
            self._turned_away = True
            self.after("end", self.limits.end_seconds / 10, "the token is not this server's")
            raise ApiError("unauthenticated", "the token is not this server's")
        self._token = ""
        self.front.strangers.pop(self, None)
        self.cancel_timer("greeting")
        return {"authenticated": True}

    # News out

    def _wake(self) -> None:
        if self._outbox.overrun and not self.writable:
            self.drop(f"the client did not read its events: {self._outbox.overrun}")
        elif self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(0)  # what happens in one turn of the loop is coalesced
        for event in self._outbox.take():
            await self.send_pieces([notification(EVENT, event)])
            self.front.counts.events += 1
