"""Saves by anything: watches the folders of open files and of what they import."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from mase_server import notebooks

_DEBOUNCE = 0.03
_NEVER = frozenset({".venv", "venv", ".git", "node_modules", "__pycache__", "site-packages", "dist-packages"})
_KINDS = frozenset({"modified", "created", "moved", "closed"})


class Watcher:
    """Calls `changed(path)` on the event loop, once a burst of events, for Python files and notebooks there."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, asyncio.TimerHandle] = {}
        self._watches: dict[str, ObservedWatch] = {}
        self._handler = _Handler(self._from_thread)
        self._observer: BaseObserver | None = None

    def watch(self, folders: set[str]) -> None:
        """Watch exactly these folders, not what is below them."""
        wanted = {folder for folder in folders if not _NEVER & set(Path(folder).parts) and Path(folder).is_dir()}
        for folder in set(self._watches) - wanted:
            watch = self._watches.pop(folder)
            with contextlib.suppress(KeyError, OSError):
                self._running().unschedule(watch)
        for folder in wanted - set(self._watches):
            self._add(folder)

    def close(self) -> None:
        """Stop watching."""
        for handle in self._pending.values():
            handle.cancel()
        self._pending.clear()
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def _running(self) -> BaseObserver:
        if self._observer is None:
            self._observer = Observer()
            self._start(self._observer)
        return self._observer

    def _start(self, observer: BaseObserver) -> None:
        observer.daemon = True
        observer.start()

    def _add(self, folder: str) -> None:
        try:
            self._watches[folder] = self._running().schedule(self._handler, folder)
        except OSError:
            # The system's limit of inotify watches or instances is reached: poll instead, all of them alike.
            self._poll_instead()
            with contextlib.suppress(OSError):
                self._watches[folder] = self._running().schedule(self._handler, folder)

    def _poll_instead(self) -> None:
        if isinstance(self._observer, PollingObserver):
            return
        old, self._observer = self._observer, PollingObserver(timeout=0.5)
        if old is not None and old.is_alive():
            old.stop()
        self._start(self._observer)
        for folder in list(self._watches):
            self._watches[folder] = self._observer.schedule(self._handler, folder)

    def _from_thread(self, path: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._seen, path)

    def _seen(self, path: str) -> None:
        if (waiting := self._pending.pop(path, None)) is not None:
            waiting.cancel()
        self._pending[path] = self._loop.call_later(_DEBOUNCE, self._tell, path)

    def _tell(self, path: str) -> None:
        self._pending.pop(path, None)
        self._changed(path)


class _Handler(FileSystemEventHandler):
    """Runs in watchdog's thread. An editor that saves by renaming shows up as a move onto the file."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.is_directory or event.event_type not in _KINDS:
            return
        path = os.fsdecode(event.dest_path if event.event_type == "moved" else event.src_path)
        if notebooks.is_notebook(path):
            notebooks.read_ahead(path)
        if path.endswith((".py", notebooks.SUFFIX)):
            self._tell(path)
