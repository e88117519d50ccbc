"""Two clients that share no code with the project: JSON-RPC over a process's pipes, MessagePack-RPC over a socket.

A thread reads; whoever plays takes what arrived when it is ready for it, so nothing here ever waits for an answer.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgpack

#: Longest that anything is waited for, in seconds: a busy machine is slow, but nothing takes a minute and a half.
PATIENCE = 90.0
#: Codes of errors: the server's own fault, and what a request that was taken back is answered.
INTERNAL, CANCELLED = {-32603, -32601, -32600, "internal-error", "unknown-method"}, {-32800, "cancelled"}


class Broken(AssertionError):
    """A promise of the server's was seen broken."""


@dataclass(slots=True)
class Question:
    """One request that was sent, and what its answer has to be.

    check: takes the answer, {"result": ...} or {"error": ...}.  cancelled: did the client take it back?
    """

    ident: int
    method: str
    check: Callable[[dict[str, Any]], None]
    cancelled: bool = False


class Asking:
    """What two protocols have in common: numbered questions, each answered exactly once."""

    def __init__(self) -> None:
        self.open: dict[int, Question] = {}
        self.answered: set[int] = set()
        self.asked = 0
        self.told: list[tuple[str, Any]] = []
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask(self, method: str, params: Any, check: Callable[[dict[str, Any]], None]) -> Question:
        """Send a request, whose answer `check` will be given."""
        self.asked += 1
        question = self.open[self.asked] = Question(self.asked, method, check)
        self.send_request(question.ident, method, params)
        return question

    def send_request(self, ident: int, method: str, params: Any) -> None:
        """Write it."""
        raise NotImplementedError

    def answer(self, ident: Any, answer: dict[str, Any]) -> None:
        """An answer came."""
        question = self.open.pop(ident, None)
        if question is None:
            what = "was answered before" if ident in self.answered else "was never asked"
            raise Broken(f"an answer to request {ident!r}, which {what}: {short(answer)}")
        self.answered.add(ident)
        code = (answer.get("error") or {}).get("code")
        if code in INTERNAL:
            raise Broken(f"{question.method} failed inside the server: {short(answer)}")
        if not (question.cancelled and code in CANCELLED):
            question.check(answer)

    def take(self, message: Any) -> None:
        """One message of the server."""
        raise NotImplementedError

    def pump(self) -> None:
        """Take everything that has arrived."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.take(_or_end(self.arrived.get_nowait()))

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Take what arrives until this is true."""
        end = time.monotonic() + PATIENCE
        self.pump()
        while not true():
            with contextlib.suppress(queue.Empty):
                self.take(_or_end(self.arrived.get(timeout=0.02)))
            if time.monotonic() > end:
                left = [f"{one.ident} {one.method}" for one in self.open.values()]
                raise Broken(f"{what} did not come within {PATIENCE:.0f} s; without an answer: {left or 'nothing'}")

    def result(self, method: str, params: Any) -> dict[str, Any]:
        """Ask, and wait: {"result": ...} or {"error": ...}."""
        found: list[dict[str, Any]] = []
        self.ask(method, params, found.append)
        self.until(lambda: bool(found), f"the answer to {method}")
        return found[0]


def _or_end(message: Any) -> Any:
    if message is None:
        raise Broken("the server's stream ended")
    return message


def short(value: Any, most: int = 600) -> str:
    """A value as it stands in a message."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]}…"


class EditorWire(Asking):
    """An editor's end of a server that it started.

    serve: answers what the server asks the editor.  hear: is told every notification.
    """

    def __init__(self, process: subprocess.Popen[bytes], serve: Callable[[str, Any], Any]) -> None:
        super().__init__()
        self.process, self.serve = process, serve
        self.hear: Callable[[str, Any], None] = lambda method, params: None
        assert process.stdin is not None
        assert process.stdout is not None
        self._to: BinaryIO = process.stdin  # type: ignore[assignment]
        self._theirs: set[Any] = set()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def send_request(self, ident: int, method: str, params: Any) -> None:
        self.send({"id": ident, "method": method, "params": params})

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    def cancel(self, ident: int) -> None:
        """Take a request back, open or not."""
        if ident in self.open:
            self.open[ident].cancelled = True
        self.notify("$/cancelRequest", {"id": ident})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            self._to.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
            self._to.flush()
        except OSError as error:
            raise Broken(f"the server no longer reads: {error}") from error

    def take(self, message: Any) -> None:
        if "method" not in message:
            if ("result" in message) == ("error" in message):
                raise Broken(f"an answer has a result or an error: {short(message)}")
            self.answer(message.get("id"), message)
        elif "id" in message:
            if message["id"] in self._theirs:
                raise Broken(f"the server used the id of a request twice: {short(message)}")
            self._theirs.add(message["id"])
            self.send({"id": message["id"], "result": self.serve(message["method"], message.get("params"))})
        else:
            self.hear(message["method"], message.get("params"))

    def _read(self, stream: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            for message in _framed(stream):
                self.arrived.put(message)
        self.arrived.put(None)


def _framed(stream: BinaryIO) -> Iterator[Any]:
    """The messages of a stream, until it ends."""
    while True:
        length = 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not line:
            return
        yield json.loads(stream.read(length))


class ToolWire(Asking):
    """Another tool's end of the same server's socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self.heard: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def send_request(self, ident: int, method: str, params: Any) -> None:
        try:
            self._socket.sendall(msgpack.packb([0, ident, method, [params]]))
        except OSError as error:
            raise Broken(f"the server closed the socket: {error}") from error

    def cancel(self, ident: int) -> None:
        """Take a request back."""
        if ident in self.open:
            self.open[ident].cancelled = True
        self._socket.sendall(msgpack.packb([2, "mase/cancel", [{"id": ident}]]))

    def take(self, message: Any) -> None:
        kind, *rest = message
        if kind == 2:
            self.heard.append(rest[0])
            return
        ident, error, result = rest
        self.answer(ident, {"result": result} if error is None else {"error": error})

    def close(self) -> None:
        """End the connection; what was asked is answered no more."""
        self.open.clear()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the thread that reads would keep it open
        self._socket.close()

    def _read(self) -> None:
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
        with contextlib.suppress(OSError, ValueError):
            while data := self._socket.recv(1 << 16):
                unpacker.feed(data)
                for message in unpacker:
                    self.arrived.put(message)
        self.arrived.put(None)
