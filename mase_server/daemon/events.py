"""What happens in the daemon, as maps for whoever subscribes: the newest of each kind, never a queue that grows.

graph: the shapes of a file changed.  problems: its problems did.  worker: a trace began, ended, died.  progress: how
far a trace, passes or hardware are.  verilog: what is told of the hardware of a model changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from mase_server.daemon.status import Listener, Status
from mase_server.daemon.store import Store

TOPICS = ("graph", "problems", "worker", "progress", "verilog")
_LOG = logging.getLogger(__name__)

Event = dict[str, Any]


class Subscriber(Protocol):
    """Takes events on the event loop; must not block. key: a later event of the same key replaces one not yet told."""

    def offer(self, key: tuple[str, ...], event: Event) -> None:
        """Something happened."""


class Listeners:
    """Tells several listeners; one that fails is logged, and does not keep the others from hearing."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def status_changed(self, status: Status) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.status_changed(status))

    def views_changed(self, paths: frozenset[str]) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.views_changed(paths))

    def progress(self, path: str, stage: str, message: str) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.progress(path, stage, message))

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.pass_progress(path, model, message, fraction))

    def pass_ended(self, path: str, model: str) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.pass_ended(path, model))

    def verilog_changed(self, path: str, model: str) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.verilog_changed(path, model))

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.verilog_progress(path, model, message, fraction))

    def verilog_ended(self, path: str, model: str) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.verilog_ended(path, model))

    def warned(self, text: str) -> None:
        """See `Listener`."""
        self._tell(lambda one: one.warned(text))

    def _tell(self, tell: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            try:
                tell(listener)
            except Exception:  # noqa: BLE001  (a front's fault must not end a trace)
                _LOG.exception("%s failed", type(listener).__name__)


class Events:
    """The listener that makes events; they cost nothing while nobody subscribes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subscribers: set[Subscriber] = set()

    @property
    def count(self) -> int:
        """How many subscribe."""
        return len(self._subscribers)

    def add(self, subscriber: Subscriber) -> None:
        """Tell it what happens from now on."""
        self._subscribers.add(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        """Tell it no more."""
        self._subscribers.discard(subscriber)

    def status_changed(self, status: Status) -> None:
        """A `worker` event: the status as a map."""
        if self._subscribers:
            self._offer("worker", status.path, "", asdict(status))

    def views_changed(self, paths: frozenset[str]) -> None:
        """A `graph` and a `problems` event for each file."""
        for path in paths if self._subscribers else ():
            view, shown = self._store.view(path), self._store.snapshot(path)
            models = [] if shown is None else shown.titles
            sha256, stale = ("", False) if view is None else (view.sha256, view.stale)
            complete = shown is not None and shown.complete
            self._offer("graph", path, "", {"sha256": sha256, "stale": stale, "models": models, "complete": complete})
            problems = [] if view is None else view.problems()
            kinds = [problem.severity for problem in problems]
            self._offer("problems", path, "", {kind: kinds.count(kind) for kind in ("error", "warning", "information")})

    def progress(self, path: str, stage: str, message: str) -> None:
        """A `progress` event of a trace."""
        self._progress(path, "", "trace", message or stage, None)

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """A `progress` event of passes."""
        self._progress(path, model, "passes", message, fraction)

    def pass_ended(self, path: str, model: str) -> None:
        """The last of these."""
        self._progress(path, model, "passes", "", 1.0)

    def verilog_changed(self, path: str, model: str) -> None:
        """A `verilog` event."""
        self._offer("verilog", path, model, {"model": model})

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """A `progress` event of hardware."""
        self._progress(path, model, "verilog", message, fraction)

    def verilog_ended(self, path: str, model: str) -> None:
        """The last of these."""
        self._progress(path, model, "verilog", "", 1.0)

    def warned(self, text: str) -> None:
        """No event: the log has it."""

    def _progress(self, path: str, model: str, of: str, message: str, fraction: float | None) -> None:
        if self._subscribers:
            told = {"model": model, "of": of, "message": message, "fraction": fraction, "ended": not message}
            self._offer("progress", path, f"{model}\0{of}", told)

    def _offer(self, topic: str, path: str, key: str, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.offer((topic, path, key), {"topic": topic, "path": path, **event})
