"""The client for scripts, notebooks and threads: each call waits for its answer."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mase_server.client.errors import ClientError, RpcError
from mase_server.client.finding import Target
from mase_server.client.kept import REPEATABLE, Kept
from mase_server.client.methods import BlockingMethods
from mase_server.client.stream import AUTHENTICATE, DROPPED, EVENT, GREETING_SECONDS, NEWS, RETRY, reader
from mase_server.rpc.frames import FrameError, Request, Response, request

_RECEIVE = 256 << 10
_LOST = (OSError, FrameError, EOFError)


class Client(BlockingMethods):
    """One connection to a daemon; safe to use from several threads, one call at a time.

    address: e.g. "unix:/run/user/1000/mase-server/x.sock"; without it the daemon of `workspace` is found.  timeout:
    seconds that a call waits at most.  reconnect: after a lost connection the next call connects again, opens what was
    open, and subscribes to what was subscribed to; what only reads is then asked again.

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
        self._reader = reader()
        self._news: deque[dict[str, Any]] = deque(maxlen=NEWS)
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

    def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """The answer. RpcError is the daemon's refusal; ClientError a lost connection or a time that is over."""
        given, seconds = params or {}, timeout or self._timeout
        with self._lock:
            was_connected = self._socket is not None
            try:
                result = self._asked(method, given, seconds)
            except _LOST as error:
                self.close_connection()
                if not (self._reconnect and was_connected and method in REPEATABLE):
                    raise _lost(method, error) from error
                result = self._asked_again(method, given, seconds)
            self._kept.note(method, given, result)
            return result

    def _asked_again(self, method: str, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        try:
            return self._asked(method, params, timeout)
        except _LOST as error:
            self.close_connection()
            raise _lost(method, error) from error

    def events(self, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """The subscribed events as they arrive; ends when none has arrived for `timeout` seconds.

        After a lost connection, {"topic": "reconnected"} comes first: events in between are lost.
        """
        while True:
            with self._lock:
                try:
                    self._connect()
                    self._wait_for_news(timeout)
                except TimeoutError:
                    return
                except _LOST as error:
                    self.close_connection()
                    if not self._reconnect:
                        raise _lost("events", error) from error
                    self._connect()
                    self._news.append({"topic": "reconnected"})
            while self._news:
                yield self._news.popleft()

    def _wait_for_news(self, timeout: float | None) -> None:
        end = _end(timeout)
        while not self._news:
            self._receive(end)

    def _asked(self, method: str, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        end = _end(timeout)
        self._connect()
        ident = self._send(method, params)
        try:
            while ident not in self._answers:
                self._receive(end)
        except TimeoutError as error:
            self.close_connection()  # its answer would come one day
            raise ClientError(f"{method} had no answer within {timeout:g} s") from error
        answer = self._answers.pop(ident)
        if answer.error is not None:
            raise RpcError(answer.error)
        result: dict[str, Any] = answer.result
        return result

    def _send(self, method: str, params: dict[str, Any]) -> int:
        ident = next(self._numbers) % (1 << 32)
        assert self._socket is not None
        self._socket.settimeout(None)
        try:
            self._socket.sendall(request(ident, method, params))
        except ConnectionError:
            while True:  # until the daemon's last words, or the end
                self._receive(_end(GREETING_SECONDS))
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
        params = message.params[0] if isinstance(message.params, list) and message.params else {}
        if message.method == EVENT:
            self._news.append(params)
        elif message.method == DROPPED:
            raise EOFError(f"the daemon ended it: {params.get('message')}")

    def _connect(self) -> None:
        if self._socket is not None:
            return
        token = self._reach()
        self._reader = reader()
        self._answers.clear()
        if token:
            self._asked(AUTHENTICATE, {"token": token}, GREETING_SECONDS)
        for method, params in self._kept.calls():
            self._asked(method, params, self._timeout)

    def _reach(self) -> str:
        """Connect; the token that has to be said."""
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


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _lost(method: str, error: BaseException) -> ClientError:
    return ClientError(f"{method}: the connection was lost: {error or type(error).__name__}")
