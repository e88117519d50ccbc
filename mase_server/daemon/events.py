"""Events of the daemon, as maps for subscribers: only the newest of each kind is kept, so no queue can grow.

graph: the shapes of a file changed.  problems: its problems changed.  worker: a trace began or ended, or its worker
died.  progress: the progress of a trace, of passes or of hardware.  verilog: a model's hardware changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, get_args

from mase_server.daemon.slowness import PHASE
from mase_server.daemon.status import Listener, Status
from mase_server.daemon.store import Store
from mase_server.protocol.answers.files import Topic
from mase_server.protocol.records import Event as Event

TOPICS: tuple[str, ...] = get_args(Topic)
_LOG = logging.getLogger(__name__)


class Subscriber(Protocol):
    """Takes events on the event loop and must not block. key: a later event of the same key replaces an unsent one."""

    def offer(self, key: tuple[str, ...], event: Event) -> None:
        """Take one event."""


class Listeners(Listener):
    """Passes calls on to several listeners; an exception in one is logged, and the others are still called."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def status_changed(self, status: Status) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.status_changed(status))

    def views_changed(self, paths: frozenset[str]) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.views_changed(paths))

    def progress(self, path: str, stage: str, message: str) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.progress(path, stage, message))

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.pass_progress(path, model, message, fraction))

    def pass_ended(self, path: str, model: str) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.pass_ended(path, model))

    def verilog_changed(self, path: str, model: str) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.verilog_changed(path, model))

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.verilog_progress(path, model, message, fraction))

    def verilog_ended(self, path: str, model: str) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.verilog_ended(path, model))

    def worker_ended(self, path: str, why: str) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.worker_ended(path, why))

    def warned(self, text: str) -> None:
        """See `Listener`."""
        self._tell_listeners(lambda one: one.warned(text))

    def _tell_listeners(self, tell: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            try:
                tell(listener)
            except Exception:  # noqa: BLE001  (a front's fault must not end a trace)
                _LOG.exception("%s failed", type(listener).__name__)


class Events(Listener):
    """The listener that turns calls into events; it costs nothing while there is no subscriber."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subscribers: set[Subscriber] = set()

    @property
    def count(self) -> int:
        """The number of subscribers."""
        return len(self._subscribers)

    def add(self, subscriber: Subscriber) -> None:
        """Send it all events from now on."""
        self._subscribers.add(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        """Send it no more events."""
        self._subscribers.discard(subscriber)

    def status_changed(self, status: Status) -> None:
        """Emit a `worker` event: the status as a map."""
        if self._subscribers:
            self._offer_event("worker", status.path, "", {**status.to_wire()})

    def views_changed(self, paths: frozenset[str]) -> None:
        """Emit a `graph` and a `problems` event for each file."""
        for path in paths if self._subscribers else ():
            view, shown = self._store.view(path), self._store.snapshot(path)
            models = [] if shown is None else shown.titles
            sha256, stale = ("", False) if view is None else (view.sha256, view.stale)
            complete = shown is not None and shown.complete
            self._offer_event(
                "graph", path, "", {"sha256": sha256, "stale": stale, "models": models, "complete": complete}
            )
            problems = [] if view is None else view.problems()
            kinds = [problem.severity for problem in problems]
            self._offer_event(
                "problems", path, "", {kind: kinds.count(kind) for kind in ("error", "warning", "information")}
            )

    def progress(self, path: str, stage: str, message: str) -> None:
        """Emit a `progress` event of a trace; phases inside a stage are not told."""
        if stage == PHASE:
            return
        self._offer_progress(path, "", "trace", message or stage, None)

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Emit a `progress` event of passes."""
        self._offer_progress(path, model, "passes", message, fraction)

    def pass_ended(self, path: str, model: str) -> None:
        """Emit the last `progress` event of passes."""
        self._offer_progress(path, model, "passes", "", 1.0)

    def verilog_changed(self, path: str, model: str) -> None:
        """Emit a `verilog` event."""
        self._offer_event("verilog", path, model, {"model": model})

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Emit a `progress` event of hardware."""
        self._offer_progress(path, model, "verilog", message, fraction)

    def verilog_ended(self, path: str, model: str) -> None:
        """Emit the last `progress` event of hardware."""
        self._offer_progress(path, model, "verilog", "", 1.0)

    def worker_ended(self, path: str, why: str) -> None:
        """Emit nothing: the shapes stay."""

    def warned(self, text: str) -> None:
        """Emit nothing: the log has the warning."""

    def _offer_progress(self, path: str, model: str, of: str, message: str, fraction: float | None) -> None:
        if self._subscribers:
            told = {"model": model, "of": of, "message": message, "fraction": fraction, "ended": not message}
            self._offer_event("progress", path, f"{model}\0{of}", told)

    def _offer_event(self, topic: str, path: str, key: str, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.offer((topic, path, key), {"topic": topic, "path": path, **event})
