"""LSP's frames: header lines, an empty line, a JSON body. What is no message is answered with an error.

pygls' own reader skips a header that it does not understand, waits for ever behind a length that is no number, and
gives no answer to a body that is no message; it also reads headers of any length.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from lsprotocol.types import ErrorCodes
from pygls.exceptions import JsonRpcException

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from typing import BinaryIO

_LOG = logging.getLogger(__name__)

#: Bytes of all header lines of one message.
MAX_HEADER = 8 << 10
#: Bytes of the body of one message: a text of 10 MB in which every character is escaped is smaller.
MAX_BODY = 128 << 20
_HEADER = re.compile(rb"([A-Za-z][A-Za-z-]*):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_LENGTH = re.compile(rb"\d{1,18}")
#: Characters of what a client sent that an error quotes.
_QUOTED = 60


class FrameError(Exception):
    """A client sent what is no message. fatal: where the next message begins is unknown, so the stream ends."""

    def __init__(
        self, message: str, *, code: int = ErrorCodes.ParseError, ident: Any = None, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code, self.ident, self.fatal = int(code), ident, fatal

    def to_frame(self) -> bytes:
        """The response that tells it."""
        error = {"code": self.code, "message": str(self)}
        return frame(json.dumps({"jsonrpc": "2.0", "id": self.ident, "error": error}).encode())


class ByteReader(Protocol):
    """Where bytes come from: a stream of asyncio, or standard input."""

    async def readline(self) -> bytes:
        """The bytes up to the next line end or MAX_HEADER; fewer at the end of the stream."""

    async def readexactly(self, size: int, /) -> bytes:
        """So many bytes, fewer or asyncio.IncompleteReadError at the end of the stream."""


class StandardInput:
    """A blocking stream, read in a thread of its own."""

    def __init__(self, stream: BinaryIO, thread: Executor) -> None:
        self._stream, self._thread = stream, thread

    async def readline(self) -> bytes:
        """See ByteReader."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._stream.readline, MAX_HEADER + 1)

    async def readexactly(self, size: int) -> bytes:
        """See ByteReader."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._stream.read, size)


def frame(body: bytes) -> bytes:
    """A body with its headers."""
    return b"Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n" % len(body) + body


async def read_message(reader: ByteReader, most: int = MAX_BODY) -> dict[str, Any] | None:
    """The next message; None at the end of the stream, FrameError for what is none. most: bytes of its body."""
    size = await _read_length(reader)
    if size is None:
        return None
    if size > most:
        raise FrameError(f"Content-Length is {size}; at most {most} bytes are read. The stream ends.", fatal=True)
    try:
        body = await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return None
    return _parse(body) if len(body) == size else None


async def _read_length(reader: ByteReader) -> int | None:
    """The length that the headers of the next message announce; None at the end of the stream."""
    size, left = None, MAX_HEADER
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # a stream of asyncio that was made with MAX_HEADER as its limit
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
            raise FrameError(f"{_quote(line)} is no header. The stream ends.", fatal=True)
        if found[1].lower() == b"content-length":
            if not _LENGTH.fullmatch(found[2]) or size not in (None, int(found[2])):
                raise FrameError(f"{_quote(line)} is no length of a message. The stream ends.", fatal=True)
            size = int(found[2])


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"The body {_quote(body)} is no JSON: {error}.") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise FrameError(f"{_quote(body)} is no message of JSON-RPC 2.0.", code=ErrorCodes.InvalidRequest)
    ident = message.get("id")
    if ident is not None and (isinstance(ident, bool) or not isinstance(ident, int | str)):
        raise FrameError(f"{_quote(body)} has an id that is no integer and no string.", code=ErrorCodes.InvalidRequest)
    if "method" in message and not isinstance(message["method"], str):
        told = f"{_quote(body)} has a method that is no string."
        raise FrameError(told, code=ErrorCodes.InvalidRequest, ident=ident)
    return message


def _quote(data: bytes) -> str:
    text = data[: _QUOTED + 1].decode("utf-8", "replace").strip()
    return ascii(text[:_QUOTED] + "..." if len(text) > _QUOTED else text)


async def serve_messages(
    reader: ByteReader, take: Callable[[dict[str, Any]], None], send: Callable[[bytes], Any]
) -> None:
    """Give every message to `take` until the stream ends, and answer what is none.

    take: JsonRpcException for a message of the wrong form.  send: gets the frame of an answer.
    """
    while True:
        message: dict[str, Any] | None = None
        try:
            if (message := await read_message(reader)) is None:
                return
            take(message)
        except FrameError as error:
            send(error.to_frame())
            if error.fatal:
                return
        except Exception as error:  # noqa: BLE001  (the border of a request: whoever asked must hear of an end)
            code = error.code if isinstance(error, JsonRpcException) else ErrorCodes.InternalError
            if code == ErrorCodes.InternalError:
                _LOG.exception("a message could not be handled")
            if message is not None and "id" in message:
                text = str(error) or type(error).__name__
                send(FrameError(text, code=code, ident=message["id"]).to_frame())
