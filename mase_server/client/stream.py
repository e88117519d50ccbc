"""The wire protocol that both clients share."""

from __future__ import annotations

from mase_server.rpc.frames import MAX_RESPONSE, Reader

AUTHENTICATE, EVENT, DROPPED = "mase/authenticate", "mase/event", "mase/dropped"
#: Elements of one array that a daemon may send.
MAX_ELEMENTS = 1 << 26
#: News that are kept for who does not look at them; then the oldest go.
NEWS = 4096
#: Seconds before each try to reach a daemon.
RETRY = (0.0, 0.1, 0.3, 1.0)
GREETING_SECONDS = 10.0


def reader() -> Reader:
    """Of what a daemon sends."""
    return Reader(MAX_RESPONSE, MAX_ELEMENTS)
