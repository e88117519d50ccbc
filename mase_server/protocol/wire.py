"""Frames between the server and its workers: a 4-byte big-endian length, then one msgpack map of that many bytes.

Both halves load this module. If the worker's interpreter has no msgpack, the boot file has already put msgpack's
pure-Python fallback into `sys.modules` under `PRIVATE_MSGPACK`. Nothing is ever unpickled.

Messages are maps. From the server to a warm parent: `{"op": "fork", "id", "needs", "rehearse"}` with the child's socket
and log pipe sent along (`rehearse`: trace a small model first, and say `{"event": "rehearsed"}`), `{"op": "preload",
"modules"}`, `{"op": "exit"}`. From it: `{"handshake"}` or `{"handshake_failed"}`,
`{"forked": id, "pid"}`, `{"refused": id}` where an import has made forking unsafe, `{"exited": id, "status"}`,
`{"preloaded", "failed", "harmful"}`.

To a child: `{"op": "trace", "request"}`, then `{"op": "call", "id", "method", "params"}` and `{"op": "cancel",
"id"}`. From it: events `stage`, `phase`, `excused` (seconds that do not count against its time limit), `snapshot`,
`failed` and `done`; during a call `progress` and `transform`; at its end `{"result": id, "value"}`, or `{"result":
id, "error", "kind"}` with the kind pass, limit, cancelled, argument or internal.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mase_server.protocol.records import NodeDetails

PROTOCOL = 1
MAX_FRAME = 64 << 20
PRIVATE_MSGPACK = "_mase_msgpack"
#: Exit statuses of a trace child: its connection was closed or corrupted; it could not go on, and said why.
LOST_WIRE, BROKEN = 121, 122
#: The first bytes of a checkpoint's `.mz`: the compiler half writes them, the daemon half checks them.
CHECKPOINT = b"MASE.mz\n"
_RECEIVE = 256 << 10
_EMPTY_MAP = b"\x80"
_LENGTH = struct.Struct(">I")

#: One map on the wire between the server and a child; its "op" or "event" says which.
Message = dict[str, Any]


class WireError(Exception):
    """A frame that cannot be sent or read; the connection is of no further use."""


def _load_codec() -> tuple[str, Any]:
    private = sys.modules.get(f"{PRIVATE_MSGPACK}.fallback")
    if private is not None:
        return "fallback", private
    import msgpack  # type: ignore[import-untyped]

    return "msgpack", msgpack


#: "msgpack" (the C module) or "fallback"; the handshake says which.
CODEC, _codec = _load_codec()


def pack(value: Any) -> bytes:
    """Msgpack bytes of plain values; WireError for values that msgpack cannot express."""
    try:
        packer = _codec.Packer(use_bin_type=True, unicode_errors="surrogatepass")
        return bytes(packer.pack(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"cannot be packed: {type(error).__name__}: {error}") from error


def unpack(data: bytes | memoryview) -> Any:
    """The value in `data`; WireError if `data` is not exactly one msgpack value."""
    try:
        return _codec.unpackb(data, raw=False, strict_map_key=False, unicode_errors="surrogatepass")
    except Exception as error:
        raise WireError(f"a frame of {len(data)} bytes is not msgpack: {type(error).__name__}: {error}") from error


def pack_blob(value: NodeDetails) -> bytes:
    """A node's map as one blob: JSON under the pure-Python codec, which is five times slower than `json` at this."""
    return json.dumps(value, separators=(",", ":")).encode() if CODEC == "fallback" else pack(value)


def unpack_blob(blob: bytes) -> NodeDetails:
    """The inverse of `pack_blob` for either codec: no msgpack map begins with a brace."""
    value: NodeDetails = json.loads(blob) if blob[:1] == b"{" else unpack(blob)
    return value


def unpack_blobs(blobs: Sequence[bytes]) -> list[NodeDetails]:
    """Unpack many blobs, an empty one as an empty map: sharing one unpacker takes a third of the time."""
    if any(blob[:1] == b"{" for blob in blobs):
        return [unpack_blob(blob) if blob else NodeDetails() for blob in blobs]
    unpacker = _codec.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogatepass", max_buffer_size=0)
    unpacker.feed(b"".join(blob or _EMPTY_MAP for blob in blobs))
    return list(unpacker)


def encode(message: Message) -> bytes:
    """One frame; WireError over MAX_FRAME bytes."""
    body = pack(message)
    if len(body) > MAX_FRAME:
        raise WireError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME}; keys {sorted(message)}")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Cuts a byte stream into messages.

    >>> decoder = Decoder()
    >>> decoder.feed(encode({"op": "exit"}))
    >>> decoder.next()
    {'op': 'exit'}
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as received from the socket."""
        self._buffer += data

    def next(self) -> Message | None:
        """The next whole message, None until more bytes arrive; WireError for an oversized or malformed frame."""
        body = self._start + _LENGTH.size
        if len(self._buffer) < body:
            self._compact()
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, self._start)
        if size > MAX_FRAME:
            raise WireError(f"a frame announces {size} bytes, the limit is {MAX_FRAME}")
        if len(self._buffer) < body + size:
            self._compact()
            return None
        value = unpack(bytes(memoryview(self._buffer)[body : body + size]))
        self._start = body + size
        if not isinstance(value, dict):
            raise WireError(f"a frame holds a {type(value).__name__}, expected a map")
        return value

    def _compact(self) -> None:
        # Dropping used bytes once per read, not once per frame, keeps many small frames linear.
        del self._buffer[: self._start]
        self._start = 0

    def close(self) -> None:
        """Report the end of the stream; WireError if it ended inside a frame."""
        left = len(self._buffer) - self._start
        if left:
            raise WireError(f"the stream ended inside a frame, {left} bytes of it had arrived")


class Connection:
    """Messages over a blocking socket, for workers.

    decoder: holds received bytes, for callers that wait by other means.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.decoder = Decoder()

    def send(self, message: Message) -> None:
        """Send one message; WireError or OSError."""
        self.sock.sendall(encode(message))

    def read(self) -> Message | None:
        """The next message, None at the end of the stream; WireError inside a frame."""
        while (message := self.decoder.next()) is None:
            data = self.sock.recv(_RECEIVE)
            if not data:
                self.decoder.close()
                return None
            self.decoder.feed(data)
        return message
