"""LSP's frames: header lines, an empty line, a JSON body. An invalid message is answered with an error.

pygls' own reader skips a header that it does not understand, waits for ever after an invalid length, gives no answer
to an invalid body, and reads headers of any length.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from lsprotocol.types import ErrorCodes
from pygls.exceptions import JsonRpcException

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from io import BufferedReader


_LOG = logging.getLogger(__name__)

#: A message of JSON-RPC as its JSON says, before anything is known of its form.
RawMessage = dict[str, Any]

#: Maximum bytes of all header lines of one message.
MAX_HEADER = 8 << 10
#: Maximum bytes of the body of one message: enough for a text of 10 MB with every character escaped.
MAX_BODY = 128 << 20
#: Maximum bytes that are read at once: a pipe holds no more.
_RECEIVE = 64 << 10
_HEADER = re.compile(rb"([A-Za-z][A-Za-z-]*):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_LENGTH = re.compile(rb"\d{1,18}")
#: Maximum quoted characters of a client's input in an error.
_QUOTED = 60


class FrameError(Exception):
    """A client sent an invalid message. fatal: the start of the next message is unknown, so the stream ends."""

    def __init__(
        self, message: str, *, code: int = ErrorCodes.ParseError, ident: Any = None, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code, self.ident, self.fatal = int(code), ident, fatal

    def to_frame(self) -> bytes:
        """The response that reports it."""
        error = {"code": self.code, "message": str(self)}
        return frame_body(json.dumps({"jsonrpc": "2.0", "id": self.ident, "error": error}).encode())


class ByteReader(Protocol):
    """A source of bytes: an asyncio stream, or standard input."""

    async def readline(self) -> bytes:
        """The bytes up to the next line end or MAX_HEADER; fewer at the end of the stream."""

    async def readexactly(self, size: int, /) -> bytes:
        """Exactly so many bytes; at the end of the stream fewer, or asyncio.IncompleteReadError."""


class StandardInput:
    """A blocking stream, read in a separate thread, which is waited for once for all that has arrived."""

    def __init__(self, stream: BufferedReader, thread: Executor) -> None:
        self._stream, self._thread = stream, thread
        self._buffer = bytearray()

    async def readline(self) -> bytes:
        """See ByteReader."""
        while b"\n" not in self._buffer and len(self._buffer) <= MAX_HEADER and await self._receive():
            pass
        return self._take(min(self._buffer.find(b"\n") + 1 or MAX_HEADER + 1, MAX_HEADER + 1))

    async def readexactly(self, size: int) -> bytes:
        """See ByteReader."""
        while len(self._buffer) < size and await self._receive():
            pass
        return self._take(size)

    async def _receive(self) -> bool:
        """Wait for further bytes; False at the end of the stream."""
        received = await asyncio.get_running_loop().run_in_executor(self._thread, self._stream.read1, _RECEIVE)
        self._buffer += received
        return bool(received)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def frame_body(body: bytes) -> bytes:
    """A body with its headers."""
    return b"Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n" % len(body) + body


async def read_message(reader: ByteReader, most: int = MAX_BODY) -> RawMessage | None:
    """The next message; None at the end of the stream, FrameError for an invalid one.

    most: maximum bytes of its body.
    """
    size = await _read_length(reader)
    if size is None:
        return None
    if size > most:
        raise FrameError(f"Content-Length is {size}; at most {most} bytes are read. The stream ends.", fatal=True)
    try:
        body = await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
    return _parse_message(body) if len(body) == size else None


async def _read_length(reader: ByteReader) -> int | None:
    """The length that the headers of the next message announce; None at the end of the stream."""
    size, left = None, MAX_HEADER
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # an asyncio stream whose limit is MAX_HEADER raises this
            line = b" " * (MAX_HEADER + 1)
        left -= len(line)
        if left < 0:
            raise FrameError(f"The headers have more than {MAX_HEADER} bytes. The stream ends.", fatal=True)
        if not line.endswith(b"\n"):
            return None
        if not line.strip():
            if size is None:
                raise FrameError("The headers have no Content-Length. The stream ends.", fatal=True)
            return size
        if (found := _HEADER.fullmatch(line)) is None:
            raise FrameError(f"{_quote_bytes(line)} is not a header. The stream ends.", fatal=True)
        if found[1].lower() == b"content-length":
            if not _LENGTH.fullmatch(found[2]) or size not in (None, int(found[2])):
                raise FrameError(f"{_quote_bytes(line)} is not a valid message length. The stream ends.", fatal=True)
            size = int(found[2])


def _parse_message(body: bytes) -> RawMessage:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"The body {_quote_bytes(body)} is not JSON: {error}.") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise FrameError(f"{_quote_bytes(body)} is not a JSON-RPC 2.0 message.", code=ErrorCodes.InvalidRequest)
    ident = message.get("id")
    if ident is not None and (isinstance(ident, bool) or not isinstance(ident, int | str)):
        raise FrameError(
            f"{_quote_bytes(body)} has an id that is neither an integer nor a string.", code=ErrorCodes.InvalidRequest
        )
    if "method" in message and not isinstance(message["method"], str):
        told = f"{_quote_bytes(body)} has a method that is not a string."
        raise FrameError(told, code=ErrorCodes.InvalidRequest, ident=ident)
    return message


def _quote_bytes(data: bytes) -> str:
    text = data[: _QUOTED + 1].decode("utf-8", "replace").strip()
    return ascii(text[:_QUOTED] + "..." if len(text) > _QUOTED else text)


async def serve_messages(reader: ByteReader, take: Callable[[RawMessage], None], send: Callable[[bytes], Any]) -> None:
    """Pass every message to `take` until the stream ends, and answer invalid ones; others get a turn after each.

    take: raises JsonRpcException for a message of the wrong form.  send: sends the frame of an answer.
    """
    while True:
        await asyncio.sleep(0)
        message: RawMessage | None = None
        try:
            if (message := await read_message(reader)) is None:
                return
            take(message)
        except FrameError as error:
            send(error.to_frame())
            if error.fatal:
                return
        except Exception as error:  # noqa: BLE001  (the border of a request: the client must learn of its end)
            code = error.code if isinstance(error, JsonRpcException) else ErrorCodes.InternalError
            if code == ErrorCodes.InternalError:
                _LOG.exception("a message could not be handled")
            if message is not None and "id" in message:
                text = str(error) or type(error).__name__
                send(FrameError(text, code=code, ident=message["id"]).to_frame())


# Big answers in pieces: turning twenty thousand hints into JSON at once would block the event loop for all clients.

#: Elements written in one piece, by their kind.
_SCALARS_AT_ONCE, _CHARACTERS_AT_ONCE, _AT_ONCE = 4000, 1 << 16, 16
#: Values with more elements than this are written in pieces.
_SMALL = 128
_DEPTH = 8
_SCALARS = (str, int, float, bool, type(None))

Default = Callable[[Any], Any]


def is_big(value: Any) -> bool:
    """Does writing this answer take so long that it is written in pieces?"""
    return _weigh_value(value, _DEPTH) >= _SMALL


def json_pieces(value: Any, default: Default) -> Iterator[str]:
    """The JSON text of a value as `json.dumps(value, default=default)` writes it; each piece takes a millisecond."""
    return _value_pieces(value, default, _DEPTH)


def _weigh_value(value: Any, depth: int) -> int:
    """About how many elements a value has (a text counts one per kilobyte); stops counting once it is not small."""
    if isinstance(value, str):
        return 1 + len(value) // 1024
    parts = _parts_of_value(value)
    if parts is None or depth == 0:
        return 1 if parts is None else 1 + len(parts)
    total = 1 + len(parts) // (16 if parts and isinstance(parts[0], int | float) else 1)
    for each in parts:
        if total >= _SMALL:
            break
        total += 0 if isinstance(each, int | float) else _weigh_value(each, depth - 1)
    return total


def _parts_of_value(value: Any) -> Sequence[Any] | None:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return list(value.values())
    if attrs.has(type(value)):
        return [getattr(value, each.name) for each in attrs.fields(type(value))]
    return None


def _value_pieces(value: Any, default: Default, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _text_pieces(value)
    elif depth == 0 or _weigh_value(value, depth) < _SMALL:
        yield json.dumps(value, default=default)
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        yield from _entry_pieces(value, default, depth)
    elif isinstance(value, list | tuple):
        yield from _element_pieces(value, default, depth)
    elif attrs.has(type(value)):
        yield from _entry_pieces(_open_structure(value, default), default, depth)
    else:
        yield json.dumps(value, default=default)


def _text_pieces(value: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(value), _CHARACTERS_AT_ONCE):
        yield json.dumps(value[start : start + _CHARACTERS_AT_ONCE])[1:-1]
    yield '"'


def _open_structure(value: Any, default: Default) -> Mapping[str, object]:
    """A structure of the protocol as a map, with its long lists left as they are."""
    fields = [each.name for each in attrs.fields(type(value)) if "_" not in each.name]
    long = {name: found for name in fields if isinstance(found := getattr(value, name), list) and is_big(found)}
    return {**default(attrs.evolve(value, **{name: [] for name in long})), **long}


def _entry_pieces(value: Mapping[str, object], default: Default, depth: int) -> Iterator[str]:
    before = "{"
    for key, each in value.items():
        yield f"{before}{json.dumps(key)}: "
        yield from _value_pieces(each, default, depth - 1)
        before = ", "
    yield "}"


def _element_pieces(values: Sequence[Any], default: Default, depth: int) -> Iterator[str]:
    before = "["
    step = _SCALARS_AT_ONCE if isinstance(values[0], _SCALARS) else _AT_ONCE
    for start in range(0, len(values), step):
        part = values[start : start + step]
        yield before
        if depth > 1 and any(
            _weigh_value(each, depth - 1) >= _SMALL for each in part if not isinstance(each, _SCALARS)
        ):
            yield from _batch_pieces(part, default, depth - 1)
        else:
            yield json.dumps(part, default=default)[1:-1]
        before = ", "
    yield "]"


def _batch_pieces(part: Sequence[Any], default: Default, depth: int) -> Iterator[str]:
    for number, value in enumerate(part):
        if number:
            yield ", "
        yield from _value_pieces(value, default, depth)
