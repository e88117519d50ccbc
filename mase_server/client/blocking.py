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
from mase_server.rpc.frames import MAX_RESPONSE, FrameError, Reader, Request, Response, request

AUTHENTICATE, EVENT, DROPPED = "mase/authenticate", "mase/event", "mase/dropped"
#: Elements of one array that a daemon may send.
MAX_ELEMENTS = 1 << 26
_RECEIVE = 256 << 10
_NEWS = 4096
#: Seconds between two tries to reach a daemon that is gone.
_RETRY = (0.0, 0.1, 0.3, 1.0)
#: Methods that change nothing, so that they may be asked again when the connection is lost meanwhile.
REPEATABLE = frozenset(
    ("mase/info", "mase/models", "mase/nodeAt", "mase/roots", "mase/passes", "mase/pipeline", "mase/pipelineSettings",
     "mase/transformed", "mase/verilog", "mase/files", "mase/fileStatus", "mase/inputs", "mase/graph", "mase/tensors",
     "mase/problems", "mase/costs", "mase/compare", "mase/workers", "mase/statistics")
)  # fmt: skip


class Client:
    """One connection to a daemon; safe to use from several threads, one call at a time.

    address: e.g. "unix:/run/user/1000/mase-server/x.sock"; without it the daemon of `workspace` is found.  timeout:
    seconds that a call waits at most.  reconnect: after a lost connection the next call connects again, opens what was
    open, and subscribes to what was subscribed to; what only reads is then asked again.

    >>> with Client(workspace="~/project") as client:  # doctest: +SKIP
    ...     client.call("mase/nodeAt", {"path": "/home/me/project/net.py", "line": 12, "column": 8})
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
        self._reader = Reader()
        self._news: deque[dict[str, Any]] = deque(maxlen=_NEWS)
        self._answers: dict[int, Response] = {}
        self._kept: dict[tuple[str, str], dict[str, Any]] = {}

    def __enter__(self) -> Self:
        with self._lock:
            self._connected()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a later call makes another."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """The answer. RpcError is the daemon's refusal; ClientError a lost connection or a time that is over."""
        given = params or {}
        with self._lock:
            for attempt in range(2):
                known = self._socket is not None
                try:
                    found = self._asked(method, given, timeout or self._timeout)
                except (OSError, FrameError, EOFError) as error:
                    self.close()
                    again = self._reconnect and attempt == 0 and known and method in REPEATABLE
                    if not again:
                        raise ClientError(
                            f"{method}: the connection was lost: {error or type(error).__name__}"
                        ) from error
                    continue
                self._keep(method, given)
                return found
        raise AssertionError("unreachable")

    def events(self, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """What was subscribed to, as it comes; ends when nothing came for `timeout` seconds."""
        while True:
            with self._lock:
                try:
                    self._receive_news(timeout)
                except TimeoutError:
                    return
                except (OSError, FrameError, EOFError) as error:
                    self.close()
                    if not self._reconnect:
                        raise ClientError(f"the connection was lost: {error or type(error).__name__}") from error
                    self._connected()
                    yield {"topic": "reconnected"}
            while self._news:
                yield self._news.popleft()

    def _receive_news(self, timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        self._connected()
        while not self._news:
            self._receive(end)

    def _asked(self, method: str, params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        end = None if timeout is None else time.monotonic() + timeout
        made, ident = self._connected(), self._send(method, params)
        assert made is self._socket
        try:
            while ident not in self._answers:
                self._receive(end)
        except TimeoutError as error:
            self.close()  # its answer would come one day
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
        self._socket.sendall(request(ident, method, params))
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

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        address, token = self._reach()
        self._reader = Reader(MAX_RESPONSE, MAX_ELEMENTS)
        self._answers.clear()
        if token:
            self._asked(AUTHENTICATE, {"token": token}, self._timeout or 10.0)
        for (method, _), params in list(self._kept.items()):
            self._asked(method, params, self._timeout)
        return address

    def _reach(self) -> tuple[socket.socket, str]:
        for pause in _RETRY if self._reconnect else (0.0,):
            time.sleep(pause)
            try:
                address, token = self._target.resolve()
                self._socket = address.connect(self._timeout or 10.0)
                return self._socket, token
            except (OSError, ClientError) as error:
                last = error
        raise last if isinstance(last, ClientError) else ClientError(f"cannot connect to the daemon: {last}")

    def _keep(self, method: str, params: dict[str, Any]) -> None:
        """Remember what has to be asked again on another connection."""
        if method == "mase/open":
            self._kept["mase/open", params["path"]] = {**params, "wait": False}
        elif method == "mase/close":
            self._kept.pop(("mase/open", params["path"]), None)
        elif method == "mase/subscribe":
            self._kept[method, str(sorted(params.items()))] = params
