"""The subscriptions of a connection, and its pending events: the newest of each kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from mase_server.daemon.events import TOPICS, Event
from mase_server.daemon.methods import ApiError
from mase_server.suggestions import suggest

Key = tuple[str, ...]


class Outbox:
    """The subscriptions of one connection. wake: called when news wait.  limit: of different news that may wait."""

    def __init__(self, wake: Callable[[], None], *, events: int, subscriptions: int) -> None:
        self._wake = wake
        self._limits = (events, subscriptions)
        self._numbers = itertools.count(1)
        self._topics: dict[int, tuple[frozenset[str], str | None]] = {}
        self._waiting: dict[Key, tuple[list[int], Event]] = {}
        self.overrun = ""

    def subscribe(self, topics: frozenset[str], path: str | None) -> int:
        """Hear of these topics, of one file or of all; ApiError for a topic that there is not, or too many."""
        if unknown := sorted(topics - set(TOPICS)):
            name = unknown[0][:80]
            raise ApiError("invalid-params", f"there is no topic {name!r}{suggest(name, TOPICS)}")
        if len(self._topics) >= self._limits[1]:
            raise ApiError("too-many", f"a connection has at most {self._limits[1]} subscriptions")
        number = next(self._numbers)
        self._topics[number] = (topics, path)
        return number

    def unsubscribe(self, number: int) -> bool:
        """Hear no more; was there such a subscription?"""
        return self._topics.pop(number, None) is not None

    @property
    def subscribed(self) -> bool:
        """Is there any subscription?"""
        return bool(self._topics)

    def offer(self, key: Key, event: Event) -> None:
        """Something happened: it takes the place of older news of the same key that nobody has read yet."""
        path = event["path"]
        wanted = [
            number for number, (topics, of) in self._topics.items() if event["topic"] in topics and of in (None, path)
        ]
        if not wanted:
            return
        known = self._waiting.pop(key, None)
        if known is None and len(self._waiting) >= self._limits[0]:
            self.overrun = f"{self._limits[0]} different events were waiting"
        else:
            self._waiting[key] = (wanted, event if known is None else {**event, "coalesced": True})
        self._wake()

    def take(self) -> Iterator[Event]:
        """The news that wait, oldest first, each with the subscriptions that it is for."""
        while self._waiting:
            wanted, event = self._waiting.pop(next(iter(self._waiting)))
            yield {**event, "subscriptions": wanted}
