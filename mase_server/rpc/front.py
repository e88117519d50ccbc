"""The state that all connections of a server share, and its counters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mase_server.rpc.limits import Limits

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon
    from mase_server.rpc.channel import Channel


@dataclass(slots=True)
class Counts:
    """Counters of all connections. refused: over the limit.  dropped: ended by the server, with a reason."""

    connections: int = 0
    refused: int = 0
    dropped: int = 0
    requests: int = 0
    errors: int = 0
    events: int = 0


@dataclass(slots=True)
class Front:
    """The daemon that is asked, and everybody who asks it.

    strangers: those of the connections that have not said the token yet, the oldest first.  began: time.monotonic().
    """

    daemon: Daemon
    limits: Limits = field(default_factory=Limits)
    counts: Counts = field(default_factory=Counts)
    connections: set[Channel] = field(default_factory=set)
    strangers: dict[Channel, None] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def drop_stranger(self) -> None:
        """Make room: end the connection that has not said the token for longest, if there is one."""
        if (oldest := next(iter(self.strangers), None)) is not None:
            self.strangers.pop(oldest)
            self.connections.discard(oldest)
            oldest.drop("more clients came before the token was said")
