"""MessagePack-RPC messages: [0, id, method, params], [1, id, error, result], [2, method, params]; all bounded.

Both sides of a connection use these. A stream with bytes that are no MessagePack, or no message, is of no further
use: the start of the next message is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack  # type: ignore[import-untyped]

from mase_server.protocol.records import Answer, Params

REQUEST, RESPONSE, NOTIFICATION = range(3)
#: Maximum bytes of a message: for a server, before and after the client sent its token; for a client.
MAX_STRANGER, MAX_REQUEST, MAX_RESPONSE = 4 << 10, 1 << 20, 1 << 30
_MAX_ID = 1 << 32
#: Initial size of the buffer in bytes: the library's own default is so large that allocating it takes longer than
#: packing.
_BUFFER = 4 << 10
_EXPECTED = "expected [0, id, method, [params]] with an id from 0 below 2**32, or [2, method, [params]]"
#: Maximum elements of one array or map, likewise: the library allocates announced elements at every depth.
MAX_ELEMENTS, STRANGER_ELEMENTS = 4 << 10, 16


class FrameError(Exception):
    """The received bytes are not a message; the text describes them."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request or notification. ident: None for a notification.  params: as received."""

    ident: int | None
    method: Any
    params: Any


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: `error` is None on success."""

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
        # Lengths are checked when announced, before anything is allocated for them.
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
        """Take received bytes; yields the messages that are complete now. FrameError ends the stream.

        partial: has an incomplete message begun?
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
            yield _parse_message(value)
        self.partial = self._fed > self._start
        self._bound(self._fed)

    def _bound(self, end: int) -> None:
        if end - self._start > self.limit:
            raise FrameError(f"a message of over {self.limit} bytes, which is the limit")


def _parse_message(value: Any) -> Message:
    kind = value[0] if isinstance(value, list) and value else None
    if kind == REQUEST and len(value) == 4 and _is_id(value[1]):
        return Request(*value[1:])
    if kind == NOTIFICATION and len(value) == 3:
        return Request(None, *value[1:])
    if kind == RESPONSE and len(value) == 4 and _is_id(value[1]):
        return Response(*value[1:])
    raise FrameError(f"{_describe_value(value)}; {_EXPECTED}")


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_ID


def _describe_value(value: Any) -> str:
    if isinstance(value, list):
        return f"an array of {len(value)}" + (f" that begins with {value[0]!r:.40}" if value else "")
    return f"a {type(value).__name__}"


def pack_value(value: Any) -> bytes:
    """MessagePack bytes of plain values; integers of over 64 bits, which MessagePack lacks, become floats.

    FrameError for values that cannot be expressed.
    """
    try:
        packed: bytes = msgpack.Packer(unicode_errors="surrogatepass", default=_plain_value, buf_size=_BUFFER).pack(
            value
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"cannot be packed: {type(error).__name__}: {error}") from error
    return packed


def _plain_value(value: Any) -> Any:
    if isinstance(value, int):
        return float(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def pack_request(ident: int, method: str, params: Params) -> bytes:
    """A request, as bytes."""
    return pack_value([REQUEST, ident, method, [dict(params)]])


def pack_notification(method: str, *params: Params | str) -> bytes:
    """A notification, as bytes."""
    return pack_value([NOTIFICATION, method, [each if isinstance(each, str) else dict(each) for each in params]])


def pack_response(ident: int, error: Any, result: Answer | None) -> bytes:
    """A response, as bytes."""
    return pack_value([RESPONSE, ident, error, result])


# Big answers in pieces: packing twenty thousand nodes at once would block the event loop for all clients.

#: Elements packed in one piece, by their kind.
_AT_ONCE = ((dict, 32), (list, 256), (tuple, 256))
_SCALARS_AT_ONCE = 4096
#: Answers with fewer elements than this are packed in one piece.
_SMALL = 512
_DEPTH = 4
_HOLDERS = frozenset({dict, list, tuple})


def whole_response(ident: int, result: Answer) -> bytes | None:
    """The bytes of a successful response, if it is small enough for one piece; FrameError."""
    return pack_value([RESPONSE, ident, None, result]) if _weigh_value(result, _DEPTH) < _SMALL else None


def response_pieces(ident: int, result: Answer) -> Iterator[bytes]:
    """The bytes of a successful response; each piece takes well under a millisecond to make."""
    packer = msgpack.Packer(buf_size=64)
    yield packer.pack_array_header(4) + pack_value(RESPONSE) + pack_value(ident) + pack_value(None)
    yield from _value_pieces(packer, result, _DEPTH)


def _weigh_value(value: Any, depth: int) -> int:
    """About how many elements a value has; stops counting once it is not small, because every request pays for this."""
    if type(value) not in _HOLDERS:
        return 1
    total = len(value)
    if depth == 0 or total >= _SMALL:
        return total
    for each in value.values() if isinstance(value, dict) else value:
        if type(each) in _HOLDERS:
            total += _weigh_value(each, depth - 1)
            if total >= _SMALL:
                break
    return total


def _value_pieces(packer: Any, value: Any, depth: int) -> Iterator[bytes]:
    if depth == 0 or _weigh_value(value, depth) < _SMALL:
        yield pack_value(value)
    elif isinstance(value, dict):
        yield packer.pack_map_header(len(value))
        for key, each in value.items():
            yield pack_value(key)
            yield from _value_pieces(packer, each, depth - 1)
    else:
        yield packer.pack_array_header(len(value))
        yield from _element_pieces(packer, value, depth - 1)


def _element_pieces(packer: Any, values: list[Any] | tuple[Any, ...], depth: int) -> Iterator[bytes]:
    first = values[0]
    if isinstance(first, dict | list | tuple) and len(first) >= _SMALL:
        for each in values:
            yield from _value_pieces(packer, each, depth)
        return
    step = next((size for kind, size in _AT_ONCE if isinstance(first, kind)), _SCALARS_AT_ONCE)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        yield pack_value(part)[len(packer.pack_array_header(len(part))) :]
