"""The client for scripts, notebooks and threads: each call waits for its answer."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from mase_server.client.methods import BlockingMethods
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
from mase_server.rpc.frames import FrameError, Request, Response, pack_request

_RECEIVE = 256 << 10
_LOST = (OSError, FrameError, EOFError)


class Client(BlockingMethods):
    """One connection to a daemon; safe to use from several threads, one call at a time.

    address: e.g. "unix:/run/user/1000/mase-server/x.sock"; without it the daemon of `workspace` is found.  timeout:
    maximum seconds for a call.  reconnect: after a lost connection the next call connects again, opens the same files
    and subscribes to the same events; a call that only reads is then repeated.

    >>> with Client(workspace="~/project") as client:  # doctest: +SKIP
    ...     client.open("/home/me/project/net.py")
    ...     client.node_at("/home/me/project/net.py", line=12, column=8)
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
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._socket: socket.socket | None = None
        self._reader = make_reader()
        self._news: deque[Event] = deque(maxlen=NEWS)
        self._answers: dict[int, Response] = {}
        self._kept = Kept()

    def __enter__(self) -> Self:
        with self._lock:
            self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_connection()

    def close_connection(self) -> None:
        """End the connection; a later call makes another."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def call(self, method: str, params: Params | None = None, *, timeout: float | None = None) -> Answer:
        """The answer. RpcError if the daemon refuses; ClientError for a lost connection or a timeout."""
        given, seconds = params or {}, timeout or self._timeout
        with self._lock:
            was_connected = self._socket is not None
            try:
                result = self._asked(method, given, seconds)
            except _LOST as error:
                self.close_connection()
                if not (self._reconnect and was_connected and method in REPEATABLE):
                    raise _connection_lost_error(method, error) from error
                result = self._asked_again(method, given, seconds)
            self._kept.note(method, given, result)
            return result

    def _asked_again(self, method: str, params: Params, timeout: float | None) -> Answer:
        try:
            return self._asked(method, params, timeout)
        except _LOST as error:
            self.close_connection()
            raise _connection_lost_error(method, error) from error

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """The subscribed events as they arrive; ends when none has arrived for `timeout` seconds.

        It tries to reach a lost daemon again for as long. {"topic": "reconnected"} then comes first: events in between
        are lost. ClientError if there is no daemon at the beginning, or with `reconnect=False`.
        """
        with self._lock:
            self._connect()
        while True:
            with self._lock:
                try:
                    self._wait_for_news(_deadline_after(timeout))
                except TimeoutError:
                    return
            while self._news:
                yield self._news.popleft()

    def _wait_for_news(self, end: float | None) -> None:
        while not self._news:
            try:
                if self._socket is None:
                    self._news.append({"topic": "reconnected"})
                    self._connect()
                else:
                    self._receive(end)
            except TimeoutError:
                raise
            except (*_LOST, ClientError) as error:
                self.close_connection()
                if not self._reconnect:
                    raise _connection_lost_error("events", error) from error
                self._news.clear()
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError from error

    def _asked(self, method: str, params: Params, timeout: float | None) -> Answer:
        self._connect(timeout)
        for opened in self._kept.traces(method, params):
            with contextlib.suppress(RpcError):
                self._answered("mase/open", opened, timeout)
        return self._answered(method, params, timeout)

    def _answered(self, method: str, params: Params, timeout: float | None) -> Answer:
        end = _deadline_after(timeout)
        ident = self._send(method, params)
        try:
            while ident not in self._answers:
                self._receive(end)
        except TimeoutError as error:
            self.close_connection()  # the late answer would still arrive
            raise ClientError(f"{method} had no answer within {timeout:g} s") from error
        answer = self._answers.pop(ident)
        if answer.error is not None:
            raise RpcError(answer.error)
        result: Answer = answer.result
        return result

    def _send(self, method: str, params: Params) -> int:
        ident = next(self._numbers) % (1 << 32)
        assert self._socket is not None
        self._socket.settimeout(None)
        try:
            self._socket.sendall(pack_request(ident, method, params))
        except ConnectionError:
            while True:  # read until the daemon's last notification, or the end
                self._receive(_deadline_after(GREETING_SECONDS))
        return ident

    def _receive(self, end: float | None) -> None:
        assert self._socket is not None
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data = self._socket.recv(_RECEIVE)
        if not data:
            raise EOFError("the daemon closed it")
        for message in self._reader.feed(data):
            if isinstance(message, Response):
                self._answers[message.ident] = message
            else:
                self._told(message)

    def _told(self, message: Request) -> None:
        event, ended = read_notification(message)
        if event is not None:
            self._news.append(event)
        if ended:
            raise EOFError(ended)

    def _connect(self, timeout: float | None = None) -> None:
        if self._socket is not None:
            return
        greeting = min(timeout or self._timeout or GREETING_SECONDS, GREETING_SECONDS)
        token = self._reach()
        self._reader = make_reader()
        self._answers.clear()
        try:
            self._greet(token, greeting)
        except BaseException:  # a later call greets again
            self.close_connection()
            raise

    def _greet(self, token: str, greeting: float) -> None:
        if token:
            self._answered(AUTHENTICATE, {"token": token}, greeting)
        self._answered(SESSION, SPEAKS, greeting)
        for method, params in self._kept.calls():
            with contextlib.suppress(RpcError):  # a file may be gone: calls about it say so
                self._answered(method, params, self._timeout)

    def _reach(self) -> str:
        """Connect; returns the token to send."""
        last: Exception | None = None
        for pause in RETRY if self._reconnect else RETRY[:1]:
            time.sleep(pause)
            try:
                address, token = self._target.resolve()
                self._socket = address.connect(self._timeout or GREETING_SECONDS)
                return token
            except (OSError, ClientError) as error:
                last = error
        raise last if isinstance(last, ClientError) else ClientError(f"cannot connect to the daemon: {last}")


def _deadline_after(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _connection_lost_error(method: str, error: BaseException) -> ClientError:
    return ClientError(f"{method}: the connection was lost: {error or type(error).__name__}")
