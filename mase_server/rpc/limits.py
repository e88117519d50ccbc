"""The limits of a server and of a connection."""

from __future__ import annotations

from dataclasses import dataclass

from mase_server.rpc.frames import MAX_REQUEST


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    pending: requests of one connection that are worked on; further ones wait unread.  turn: requests that are begun in
    one turn of the event loop.  receive: bytes that are read in one turn.  frame_seconds: from the first byte of a
    message to its last.  greeting_seconds: until a client on TCP has said its token.  drain_seconds: that a client may
    leave what was sent to it unread.  events: different news that wait for a subscriber.
    """

    connections: int = 600
    pending: int = 256
    turn: int = 16
    frame: int = MAX_REQUEST
    receive: int = 32 << 10
    frame_seconds: float = 30.0
    greeting_seconds: float = 10.0
    drain_seconds: float = 60.0
    end_seconds: float = 1.0
    events: int = 2048
    subscriptions: int = 64
    send_buffer: int = 1 << 20
