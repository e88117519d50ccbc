"""The state of a connection in the daemon: the files that it opened, and its subscriptions."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from typing import Any

from mase_server.rpc.front import Front
from mase_server.rpc.outbox import Outbox

_NUMBERS = itertools.count(1)


class ConnectionSession:
    """See `daemon.methods.Session`."""

    def __init__(self, front: Front, outbox: Outbox) -> None:
        self.ident = f"rpc {next(_NUMBERS)}"
        self.opened: set[str] = set()
        self.errors = "map"
        self._front = front
        self._outbox = outbox

    def subscribe(self, topics: frozenset[str], path: str | None) -> int:
        """Hear of these topics, of one file or of all; the subscription's number."""
        number = self._outbox.subscribe(topics, path)
        self._front.daemon.events.add(self._outbox)
        return number

    def unsubscribe(self, number: int) -> bool:
        """Hear no more; was there such a subscription?"""
        found = self._outbox.unsubscribe(number)
        if not self._outbox.subscribed:
            self._front.daemon.events.remove(self._outbox)
        return found

    def statistics(self) -> dict[str, Any]:
        """Connections now and ever, requests, errors, events; seconds since the server began to listen."""
        front = self._front
        now = {"now": len(front.connections), "seconds": time.monotonic() - front.began}
        return {**asdict(front.counts), **now}

    def close(self) -> None:
        """The connection ended: nobody of it looks at files any longer."""
        self._front.daemon.events.remove(self._outbox)
        for path in self.opened:
            self._front.daemon.closed(path, by=self.ident)
