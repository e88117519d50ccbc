"""The client for event loops: any number of calls at once over one connection.

The end of a connection closes the files that it opened. After a reconnect the client opens them again, and asks again
only what changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from mase_server.client.methods import AsyncMethods
from mase_server.client.stream import (
    AUTHENTICATE,
    GREETING_SECONDS,
    NEWS,
    REPEATABLE,
    RETRY,
    SESSION,
    SPEAKS,
    ClientError,
    Kept,
    RpcError,
    Target,
    make_reader,
    read_notification,
)
from mase_server.protocol.records import Answer, Event, Params
from mase_server.rpc.frames import FrameError, Message, Response, pack_notification, pack_request
from mase_server.rpc.registry import UnixAddress


class _Lost(Exception):
    """The connection ended before the answer arrived."""


class _Stream(asyncio.Protocol):
    """One connection. taken: called with each message as soon as its bytes arrive, because a task would come a turn of
    the event loop later.  ended: called at the end, with the reason.
    """

    def __init__(self, taken: Callable[[Message], None], ended: Callable[[str], None]) -> None:
        self._taken, self._ended = taken, ended
        self._incoming, self._explain_entry = make_reader(), ""
        self._transport: asyncio.Transport | None = None
        self.writable, self.lost = asyncio.Event(), asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._incoming.feed(data):
                self._taken(message)
        except FrameError as error:
            self._explain_entry = str(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()
        self.lost.set()
        self._ended(self._explain_entry or (str(exc) if exc else "the daemon closed it"))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def write(self, data: bytes) -> None:
        """Send data, or keep it until it can be sent."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection; later data is ignored."""
        if self._transport is not None:
            self._transport.close()


class AsyncClient(AsyncMethods):
    """One connection to a daemon, on the running event loop. The arguments are those of `Client`.

    Cancelling a call cancels it in the daemon, too.

    >>> async with AsyncClient(workspace="~/project") as client:  # doctest: +SKIP
    ...     graph = await client.graph("/home/me/project/net.py")
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workspace: str | Path = ".",
        token_file: str | Path | None = None,
        timeout: float | None = None,
        reconnect: bool = True,
    ) -> None:
        self._target = Target(address, Path(workspace).expanduser(), Path(token_file) if token_file else None)
        self._timeout = timeout
        self._reconnect = reconnect
        self._numbers = itertools.count(1)
        self._connecting = asyncio.Lock()
        self._stream: _Stream | None = None
        self._answers: dict[int, asyncio.Future[Response]] = {}
        self._news: deque[Event] = deque(maxlen=NEWS)
        self._heard = asyncio.Event()
        self._explain_entry = self._told = ""
        self._kept = Kept()

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_connection()

    async def close_connection(self) -> None:
        """End the connection; a later call makes another."""
        if (stream := self._stream) is not None:
            stream.close()
            await stream.lost.wait()

    async def call(self, method: str, params: Params | None = None, *, timeout: float | None = None) -> Answer:
        """The answer. RpcError if the daemon refuses; ClientError for a lost connection or a timeout."""
        given, seconds = params or {}, timeout or self._timeout
        try:
            if seconds is None:
                result = await self._tried(method, given)
            else:
                async with asyncio.timeout(seconds):
                    result = await self._tried(method, given)
        except TimeoutError as error:
            raise ClientError(f"{method} had no answer within {seconds:g} s") from error
        self._kept.note(method, given, result)
        return result

    async def _tried(self, method: str, params: Params) -> Answer:
        was_connected = self._stream is not None
        try:
            if not was_connected:
                await self._connect()
            return await self._asked(method, params)
        except _Lost as error:
            if not (self._reconnect and was_connected and method in REPEATABLE):
                raise ClientError(f"{method}: the connection was lost: {error}") from error
        try:
            await self._connect()
            return await self._asked(method, params)
        except _Lost as error:
            raise ClientError(f"{method}: the connection was lost: {error}") from error

    async def events(self) -> AsyncIterator[Event]:
        """The subscribed events as they arrive, for ever.

        It tries to reach a lost daemon again for as long. {"topic": "reconnected"} then comes first: events in between
        are lost. ClientError if there is no daemon at the beginning, or with `reconnect=False`.
        """
        await self._connect()
        while True:
            while self._news:
                yield self._news.popleft()
            if self._stream is not None:
                self._heard.clear()
                await self._heard.wait()
            elif not self._reconnect:
                raise ClientError(f"the connection was lost: {self._explain_entry}")
            else:
                with contextlib.suppress(ClientError):
                    await self._connect()
                    self._news.appendleft({"topic": "reconnected"})

    async def _asked(self, method: str, params: Params) -> Answer:
        for opened in self._kept.traces(method, params):
            with contextlib.suppress(RpcError):
                await self._answered("mase/open", opened)
        return await self._answered(method, params)

    async def _answered(self, method: str, params: Params) -> Answer:
        stream, ident = self._stream, next(self._numbers) % (1 << 32)
        if stream is None:
            raise _Lost(self._explain_entry)
        answered = self._answers[ident] = asyncio.get_running_loop().create_future()
        try:
            stream.write(pack_request(ident, method, params))
            if not stream.writable.is_set():
                await stream.writable.wait()
            answer = await answered
        except asyncio.CancelledError:
            stream.write(pack_notification("mase/cancel", {"id": ident}))
            raise
        finally:
            self._answers.pop(ident, None)
        if answer.error is not None:
            raise RpcError(answer.error)
        result: Answer = answer.result
        return result

    async def _connect(self) -> None:
        async with self._connecting:
            if self._stream is not None:
                return
            token = await self._reach()
            try:
                await self._greet(token)
            except _Lost as error:
                raise ClientError(f"the connection was lost at once: {error}") from error
            except BaseException:  # a later call greets again
                await self.close_connection()
                raise

    async def _greet(self, token: str) -> None:
        async with asyncio.timeout(GREETING_SECONDS):
            if token:
                await self._answered(AUTHENTICATE, {"token": token})
            await self._answered(SESSION, SPEAKS)
        for method, params in self._kept.calls():
            with contextlib.suppress(RpcError):  # a file may be gone: calls about it say so
                await self._answered(method, params)

    async def _reach(self) -> str:
        last: Exception | None = None
        for pause in RETRY if self._reconnect else RETRY[:1]:
            await asyncio.sleep(pause)
            try:
                address, token = await asyncio.to_thread(self._target.resolve)
                loop, made = asyncio.get_running_loop(), partial(_Stream, self._take, self._ended)
                if isinstance(address, UnixAddress):
                    _, stream = await loop.create_unix_connection(made, address.path)
                else:
                    _, stream = await loop.create_connection(made, address.host, address.port)
                if not stream.lost.is_set():
                    self._stream = stream
                    return token
                last = ClientError(f"the connection was lost at once: {self._explain_entry}")
            except (OSError, ClientError) as error:
                last = error
        raise last if isinstance(last, ClientError) else ClientError(f"cannot connect to the daemon: {last}")

    def _ended(self, why: str) -> None:
        self._explain_entry, self._stream = self._told or why, None
        self._told = ""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_Lost(self._explain_entry))
        self._heard.set()

    def _take(self, message: Message) -> None:
        if isinstance(message, Response):
            answer = self._answers.get(message.ident)
            if answer is not None and not answer.done():
                answer.set_result(message)
            return
        event, ended = read_notification(message)
        if event is not None:
            self._news.append(event)
            self._heard.set()
        self._told = ended or self._told
