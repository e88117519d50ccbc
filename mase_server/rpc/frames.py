"""MessagePack-RPC messages: [0, id, method, params], [1, id, error, result], [2, method, params]; all bounded.

Every side of a connection uses these, the client too. A stream that is no MessagePack, or no message, is of no further
use: nobody can tell where the next message would begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack  # type: ignore[import-untyped]

REQUEST, RESPONSE, NOTIFICATION = range(3)
#: Bytes of one message: what a server takes, before and after a client said who it is; and what a client takes.
MAX_STRANGER, MAX_REQUEST, MAX_RESPONSE = 4 << 10, 1 << 20, 1 << 30
_MAX_ID = 1 << 32
#: Bytes to begin with: the library's own choice is so many that asking the system for them takes longer than packing.
_BUFFER = 4 << 10
_EXPECTED = "expected [0, id, method, [params]] with an id from 0 below 2**32, or [2, method, [params]]"
#: Elements of one array or map, for the same: room for all is made when they are announced, at every depth.
MAX_ELEMENTS, STRANGER_ELEMENTS = 4 << 10, 16


class FrameError(Exception):
    """The bytes that arrived are no message; the text describes them."""


@dataclass(frozen=True, slots=True)
class Request:
    """Something to do. ident: None where no answer is wanted.  params: as they came."""

    ident: int | None
    method: Any
    params: Any


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: `error` is None where all went well."""

    ident: int
    error: Any
    result: Any


Message = Request | Response


@dataclass(slots=True)
class Reader:
    """Cuts bytes into messages. limit: bytes of one message.  elements: of one array or map.

    >>> reader = Reader()
    >>> list(reader.feed(request(7, "mase/info", {})))
    [Request(ident=7, method='mase/info', params=[{}])]
    """

    limit: int = MAX_REQUEST
    elements: int = MAX_ELEMENTS
    partial: bool = False
    _unpacker: Any = field(init=False)
    _fed: int = 0
    _start: int = 0

    def __post_init__(self) -> None:
        # Lengths are checked as they are announced, before anything is allocated for them.
        self._unpacker = msgpack.Unpacker(
            raw=False,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            max_buffer_size=0,
            max_str_len=max(self.limit, MAX_REQUEST),
            max_bin_len=max(self.limit, MAX_REQUEST),
            max_ext_len=0,
            max_array_len=self.elements,
            max_map_len=self.elements,
        )

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Message]:
        """Take bytes as they came; the messages that are whole now. FrameError ends the stream.

        partial: has a message begun that is not whole?
        """
        self._unpacker.feed(data)
        self._fed += len(data)
        while True:
            try:
                value = self._unpacker.unpack()
            except msgpack.OutOfData:
                break
            except Exception as error:  # noqa: BLE001  (bytes from outside: msgpack has many ways to refuse them)
                raise FrameError(f"no MessagePack: {type(error).__name__}: {str(error)[:200]}") from None
            self._bound(self._unpacker.tell())
            self._start = self._unpacker.tell()
            yield _message(value)
        self.partial = self._fed > self._start
        self._bound(self._fed)

    def _bound(self, end: int) -> None:
        if end - self._start > self.limit:
            raise FrameError(f"a message of over {self.limit} bytes, which is the limit")


def _message(value: Any) -> Message:
    kind = value[0] if isinstance(value, list) and value else None
    if kind == REQUEST and len(value) == 4 and _is_id(value[1]):
        return Request(*value[1:])
    if kind == NOTIFICATION and len(value) == 3:
        return Request(None, *value[1:])
    if kind == RESPONSE and len(value) == 4 and _is_id(value[1]):
        return Response(*value[1:])
    raise FrameError(f"{_described(value)}; {_EXPECTED}")


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_ID


def _described(value: Any) -> str:
    if isinstance(value, list):
        return f"an array of {len(value)}" + (f" that begins with {value[0]!r:.40}" if value else "")
    return f"a {type(value).__name__}"


def pack(value: Any) -> bytes:
    """MessagePack bytes of plain values; integers of over 64 bits, which it does not have, become floats.

    FrameError for what it cannot express.
    """
    try:
        packed: bytes = msgpack.Packer(unicode_errors="surrogatepass", default=_plain, buf_size=_BUFFER).pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"cannot be packed: {type(error).__name__}: {error}") from error
    return packed


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return float(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def request(ident: int, method: str, params: dict[str, Any]) -> bytes:
    """A request, as bytes."""
    return pack([REQUEST, ident, method, [params]])


def notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification, as bytes."""
    return pack([NOTIFICATION, method, [params]])


def response(ident: int, error: Any, result: dict[str, Any] | None) -> bytes:
    """A response, as bytes."""
    return pack([RESPONSE, ident, error, result])
