"""One client: its requests, files and subscriptions. It can neither block other clients nor grow without bound."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from mase_server.daemon.events import TOPICS, Event
from mase_server.daemon.methods import Api, ApiError
from mase_server.private import is_token
from mase_server.protocol.answers.files import ErrorForm, ErrorMap, EventForm
from mase_server.protocol.records import Answer
from mase_server.rpc.channel import ERROR, Channel
from mase_server.rpc.dispatch import (
    Front,
    answer_at_once,
    answer_request,
    can_wait,
    error_map,
    file_of_request,
    name_for_metrics,
    told_of,
)
from mase_server.rpc.frames import (
    MAX_STRANGER,
    STRANGER_ELEMENTS,
    FrameError,
    Message,
    Reader,
    Request,
    pack_notification,
    pack_response,
    response_pieces,
    whole_response,
)
from mase_server.suggestions import suggest
from mase_server.telemetry.metrics import Measured

AUTHENTICATE, CANCEL, EVENT = "mase/authenticate", "mase/cancel", "mase/event"
_LOG = logging.getLogger(__name__)


class Connection(Channel):
    """One client's requests and events. token: the client must send it first; "" if none is required."""

    def __init__(self, front: Front, token: str = "") -> None:
        super().__init__(front)
        self._token = token
        self._strange = bool(token)
        self._turned_away = False
        self._reader = Reader(MAX_STRANGER, STRANGER_ELEMENTS) if token else Reader(self.limits.frame)
        self._backlog: deque[Message] = deque()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._refresh_answered: set[int] = set()
        self._heeded: set[asyncio.Task[None]] = set()
        self._pumping = False
        self._half_open = False
        self._telling: asyncio.Task[None] | None = None
        limits = self.limits
        self._outbox = Outbox(self._wake, events=limits.events, subscriptions=limits.subscriptions)
        self._session = ConnectionSession(front, self._outbox)
        self._api = Api(front.daemon, self._session)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        if self._token and not self.ended:
            self.front.strangers[self] = None
            self.after("greeting", self.limits.greeting_seconds, f"the client sent no {AUTHENTICATE} in time")

    def eof_received(self) -> bool:
        """The client sends no more; its open requests may still be answered for a moment."""
        self._half_open = True
        self.after("end", self.limits.end_seconds, "the client sends no more")
        self._end_if_idle()
        return True

    def lost(self) -> None:
        """The client is gone: all its work stops."""
        self._backlog.clear()
        for task in (*self._running.values(), *self._heeded, *([self._telling] if self._telling else ())):
            task.cancel()
        self._session.close()

    def drained(self) -> None:
        """The client reads again."""
        self._begin_requests()

    # Incoming messages.

    def received(self, data: memoryview) -> None:
        """Bytes arrived."""
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
        self._begin_requests()

    def _begin_requests(self) -> None:
        """Start the pending requests, a few at a time, so that other clients get turns in between."""
        self._pumping = False
        if self.ended:
            return
        for _ in range(self.limits.turn):
            if not self._backlog or not self._may_begin():
                break
            self._take_message(self._backlog.popleft())
        if not self._backlog:
            if self.writable:
                self.resume_reading()
            return
        self.pause_reading()
        if self._may_begin():
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._begin_requests)

    def _may_begin(self) -> bool:
        # A client without the token may send one request at a time, so that a connection is a single guess.
        most = 1 if self._token else self.limits.pending
        return self.writable and not self._turned_away and len(self._running) + len(self._heeded) < most

    def _take_message(self, message: Message) -> None:
        if not isinstance(message, Request):
            told = f"a response to request {message.ident} arrived, but this server sends no requests"
            self.send(pack_notification(ERROR, error_map("unexpected-response", told)))
        elif message.method == CANCEL:
            self._cancel(message)
        elif message.ident is None:
            task = asyncio.ensure_future(self._heed_notification(message))
            self._heeded.add(task)
            task.add_done_callback(self._was_heeded)
        elif message.ident in self._running:
            told = f"the id {message.ident} belongs to a request that has no answer yet"
            self.send(pack_response(message.ident, self._format_error(error_map("invalid-request", told)), None))
        elif self._token or message.method == AUTHENTICATE or can_wait(message.method):
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
            self._refuse_request(ident, error)
            return
        if whole is None:
            self._begin(ident, message, result)
        else:
            self.front.counts.requests += 1
            self.send(whole)

    def _begin(self, ident: int, message: Request, result: Answer | None = None) -> None:
        self.front.counts.requests += 1
        task = asyncio.ensure_future(self._serve(ident, message, result))
        self._running[ident] = task
        task.add_done_callback(self._was_served)
        task.set_name(str(ident))

    def _cancel(self, message: Request) -> None:
        params = message.params[0] if isinstance(message.params, list) and message.params else message.params
        ident = params.get("id") if isinstance(params, dict) else params
        found = self._running.get(ident) if isinstance(ident, int) and ident not in self._refresh_answered else None
        if found is not None:
            found.cancel()
        if message.ident is not None:
            self.send(pack_response(message.ident, None, {"cancelled": found is not None}))

    async def _serve(self, ident: int, message: Request, made: Answer | None) -> None:
        """Answer one request; it can be cancelled until its answer is being sent. made: the answer, if known."""
        try:
            result = await self._result(message) if made is None else made
            self._refresh_answered.add(ident)
            whole = whole_response(ident, result) if self.writable else None
            if whole is not None:
                self.send(whole)
            else:
                await self.send_pieces(response_pieces(ident, result))
        except Exception as error:  # noqa: BLE001  (the request's border)
            self._refresh_answered.add(ident)
            self._refuse_request(ident, error)

    def _was_served(self, task: asyncio.Task[None]) -> None:
        ident = int(task.get_name())
        del self._running[ident]
        if task.cancelled() and ident not in self._refresh_answered:
            self._refuse_request(ident, asyncio.CancelledError())
        self._refresh_answered.discard(ident)
        self._after_request()

    def _refuse_request(self, ident: int, error: BaseException) -> None:
        self.front.counts.errors += 1
        if not self.ended:
            self.send(pack_response(ident, self._format_error(told_of(error)), None))

    def _format_error(self, error: ErrorMap) -> Any:
        """An error in the form that this client wants: some clients know only a number and a text."""
        return error if self._session.errors == "map" else [0, f"{error['code']}: {error['message']}"]

    async def _heed_notification(self, message: Request) -> None:
        """Process a notification; a failure can only be logged."""
        try:
            await self._result(message)
        except Exception as error:  # noqa: BLE001  (the request's border)
            _LOG.debug("a notification failed: %s", told_of(error))

    def _was_heeded(self, task: asyncio.Task[None]) -> None:
        self._heeded.discard(task)
        self._after_request()

    def _after_request(self) -> None:
        if self._backlog and not self._pumping:
            self._begin_requests()
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._half_open and not (self._running or self._backlog or self._heeded):
            self.close()

    async def _result(self, message: Request) -> Answer:
        if message.method == AUTHENTICATE:
            return self._authenticate(message.params)
        if self._token:
            raise ApiError("unauthenticated", f"the first request has to be {AUTHENTICATE} with the token")
        with self._measured(message):
            return await answer_request(self._api, message.method, message.params)

    def _measured(self, message: Request) -> Measured:
        path = partial(file_of_request, self._api, message.params)
        return Measured(self.front.daemon.metrics, "r", name_for_metrics(message.method), path)

    def _authenticate(self, params: Any) -> Answer:
        given = params[0].get("token") if isinstance(params, list) and params and isinstance(params[0], dict) else None
        if self._token and not is_token(given, self._token):
            self._turned_away = True
            self.after("end", self.limits.end_seconds / 10, "the token is not this server's")
            raise ApiError("unauthenticated", "the token is not this server's")
        self._token = ""
        self.front.strangers.pop(self, None)
        self.cancel_timer("greeting")
        return {"authenticated": True}

    # Outgoing events.

    def _wake(self) -> None:
        if self._outbox.overrun and not self.writable:
            self.drop(f"the client did not read its events: {self._outbox.overrun}")
        elif self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._tell_news())

    async def _tell_news(self) -> None:
        await asyncio.sleep(0)  # events of one turn of the loop are merged
        for event in self._outbox.take():
            packed = pack_notification(EVENT, event)
            if self._session.events == "autocommand":
                packed = pack_notification("nvim_exec_autocmds", "User", {"pattern": "MaseEvent", "data": event})
            await self.send_pieces([packed])
            self.front.counts.events += 1


# The state of a connection in the daemon: its open files and its subscriptions.

_NUMBERS = itertools.count(1)


class ConnectionSession:
    """See `daemon.methods.Session`."""

    def __init__(self, front: Front, outbox: Outbox) -> None:
        self.ident = f"rpc {next(_NUMBERS)}"
        self.opened: set[str] = set()
        self.errors: ErrorForm = "map"
        self.events: EventForm = "notification"
        self._front = front
        self._outbox = outbox

    def subscribe(self, topics: frozenset[str], path: str | None) -> int:
        """Subscribe to these topics, of one file or of all; returns the subscription's number."""
        number = self._outbox.subscribe(topics, path)
        self._front.daemon.events.add(self._outbox)
        return number

    def unsubscribe(self, number: int) -> bool:
        """End a subscription; returns whether there was one."""
        found = self._outbox.unsubscribe(number)
        if not self._outbox.subscribed:
            self._front.daemon.events.remove(self._outbox)
        return found

    def statistics(self) -> dict[str, float]:
        """Counters: connections now and ever, requests, errors, events; seconds since the server began to listen."""
        front = self._front
        now = {"now": len(front.connections), "seconds": time.monotonic() - front.began}
        return {**asdict(front.counts), **now}

    def close(self) -> None:
        """Close the files of a connection that ended."""
        self._front.daemon.events.remove(self._outbox)
        for path in self.opened:
            self._front.daemon.closed(path, by=self.ident)


# The subscriptions of a connection, and its pending events: only the newest of each kind.

Key = tuple[str, ...]


class Outbox:
    """The subscriptions of one connection. wake: called when events are pending.

    limit: of different pending events.
    """

    def __init__(self, wake: Callable[[], None], *, events: int, subscriptions: int) -> None:
        self._wake = wake
        self._limits = (events, subscriptions)
        self._numbers = itertools.count(1)
        self._topics: dict[int, tuple[frozenset[str], str | None]] = {}
        self._waiting: dict[Key, tuple[list[int], Event]] = {}
        self.overrun = ""

    def subscribe(self, topics: frozenset[str], path: str | None) -> int:
        """Subscribe to these topics, of one file or of all.

        ApiError for an unknown topic, or too many subscriptions.
        """
        if unknown := sorted(topics - set(TOPICS)):
            name = unknown[0][:80]
            raise ApiError("invalid-params", f"there is no topic {name!r}{suggest(name, TOPICS)}")
        if len(self._topics) >= self._limits[1]:
            raise ApiError("too-many", f"a connection has at most {self._limits[1]} subscriptions")
        number = next(self._numbers)
        self._topics[number] = (topics, path)
        return number

    def unsubscribe(self, number: int) -> bool:
        """End a subscription; returns whether there was one."""
        return self._topics.pop(number, None) is not None

    @property
    def subscribed(self) -> bool:
        """Is there a subscription?"""
        return bool(self._topics)

    def offer(self, key: Key, event: Event) -> None:
        """Take an event; it replaces a pending one with the same key."""
        path = event["path"]
        wanted = [
            number for number, (topics, of) in self._topics.items() if event["topic"] in topics and of in (None, path)
        ]
        if not wanted:
            return
        known = self._waiting.pop(key, None)
        if known is None and len(self._waiting) >= self._limits[0]:
            self.overrun = f"{self._limits[0]} different events were waiting"
        else:
            self._waiting[key] = (wanted, event if known is None else {**event, "coalesced": True})
        self._wake()

    def take(self) -> Iterator[Event]:
        """The pending events, oldest first, each with the numbers of its subscriptions."""
        while self._waiting:
            wanted, event = self._waiting.pop(next(iter(self._waiting)))
            yield {**event, "subscriptions": wanted}
