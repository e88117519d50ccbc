"""Saves by anything: watches the folders of open files and of what they depend on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from mase_server import notebooks

_log = logging.getLogger(__name__)
_DEBOUNCE = 0.03
#: Seconds after which it is seen that a folder was moved away, deleted or made again: the system does not tell.
_LOOK = 1.0
#: Seconds between two looks at every file, where the system watches no more folders.
_POLL = 0.5
#: What the system says when it watches no more: too many folders, watchers of one user, or open files.
_LIMITS = {
    errno.ENOSPC: "its limit of watched folders is reached; `sysctl fs.inotify.max_user_watches=524288` raises it",
    errno.EMFILE: "its limit of open files or of watchers is reached; `ulimit -n 4096` raises the first, and "
    "`sysctl fs.inotify.max_user_instances=512` the second",
    errno.ENFILE: "its limit of open files is reached",
    errno.ENOMEM: "it has no memory left",
}
_NEVER = frozenset({".venv", "venv", ".git", "node_modules", "__pycache__", "site-packages", "dist-packages"})
_SUFFIXES = (".py", notebooks.SUFFIX)
#: watchdog's complaint of a thread that was about to read, or had just read, when its folder was given up: no error,
#: since it ends then. That the thread of a wanted folder has ended is seen by looking.
_ENDING = "queue_events() called when the thread is inactive"
_COMINGS_AND_GOINGS = frozenset({"created", "moved", "deleted"})
_KINDS = _COMINGS_AND_GOINGS | {"attrib", "modified", "closed"}


@dataclass(frozen=True, slots=True)
class _Watched:
    """A folder as it was when the system began to watch it: (device, inode)."""

    watch: ObservedWatch
    identity: tuple[int, int]


class Watcher:
    """Calls `changed(path)` on the event loop, once a burst of events, for what is of interest in the watched folders.

    Of interest are Python files and notebooks, and whatever `watch` names. `warned(text)` is called where the system
    watches no more folders, so that they are polled.
    """

    def __init__(self, changed: Callable[[str], None], warned: Callable[[str], None] = lambda text: None) -> None:
        self._changed, self._warned = changed, warned
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, asyncio.TimerHandle] = {}
        self._wanted: set[str] = set()
        self._paths: frozenset[str] = frozenset()
        self._listed: frozenset[str] = frozenset()
        self._watches: dict[str, _Watched] = {}
        #: Folders that were not there: once they are, their files may be others.
        self._lost: set[str] = set()
        self._handler = _Handler(self._from_thread, self._is_of_interest)
        self._observer: BaseObserver | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def watch(
        self, folders: set[str], paths: frozenset[str] = frozenset(), listed: frozenset[str] = frozenset()
    ) -> None:
        """Watch exactly these folders, not what is below them; also those that are made again later.

        paths: of interest besides Python files and notebooks.  listed: folders in which every name is.
        """
        needed = listed | {os.path.dirname(path) for path in paths}  # noqa: PTH120 - hundreds of them
        self._paths, self._listed = paths, listed
        self._wanted = {folder for folder in folders if folder in needed or not _NEVER & set(Path(folder).parts)}
        self._lost &= self._wanted
        self._look()

    def close(self) -> None:
        """Stop watching."""
        self._wanted = set()
        if self._next_look is not None:
            self._next_look.cancel()
        for handle in self._pending.values():
            handle.cancel()
        self._pending.clear()
        if self._observer is not None:
            self._observer.stop()
            self._observer = None

    def _look(self) -> None:
        """Watch what is wanted and there. A folder that was made again is another one, whatever its name."""
        if self._next_look is not None:
            self._next_look.cancel()
        now = {folder: _identity(folder) for folder in self._wanted}
        alive = self._alive()
        for folder, watched in list(self._watches.items()):
            if now.get(folder) != watched.identity or watched.watch not in alive:
                self._drop(folder)
        for folder, identity in now.items():
            if identity is None:
                self._lost.add(folder)
            elif folder not in self._watches:
                self._add(folder, identity)
        if self._wanted:
            self._next_look = self._loop.call_later(_LOOK, self._look)

    def _alive(self) -> set[ObservedWatch]:
        """Those that still watch: a folder that is made again may get the number of the one that was deleted."""
        emitters = () if self._observer is None else self._observer.emitters
        return {emitter.watch for emitter in emitters if emitter.is_alive()}

    def _drop(self, folder: str) -> None:
        with contextlib.suppress(KeyError, OSError):
            self._running().unschedule(self._watches.pop(folder).watch)
        if folder in self._wanted:
            self._lost.add(folder)
            self._tell_all(folder)

    def _running(self) -> BaseObserver:
        if self._observer is None:
            logging.getLogger("watchdog.observers.inotify").addFilter(_is_news)
            self._observer = self._started(Observer())
        return self._observer

    def _started(self, observer: BaseObserver) -> BaseObserver:
        observer.daemon = True
        observer.start()
        return observer

    def _add(self, folder: str, identity: tuple[int, int]) -> None:
        try:
            watch = self._running().schedule(self._handler, folder)
        except OSError as error:
            if error.errno not in _LIMITS or isinstance(self._observer, PollingObserver):
                return  # it is gone again, or may not be read: the next look tries it once more
            self._poll_instead(error)
            return self._add(folder, identity)
        self._watches[folder] = _Watched(watch, identity)
        if folder in self._lost:
            self._lost.discard(folder)
            self._tell_all(folder)

    def _poll_instead(self, error: OSError) -> None:
        why = f"The system watches no more folders: {_LIMITS[error.errno or 0]}"
        _log.warning(text := f"{why}. Files are looked at every {_POLL:g} s instead.")
        self._warned(text)
        old, self._observer = self._observer, self._started(PollingObserver(timeout=_POLL))
        if old is not None and old.is_alive():
            old.stop()
        watched, self._watches = self._watches, {}
        for folder, one in watched.items():
            self._add(folder, one.identity)

    def _tell_all(self, folder: str) -> None:
        """A folder is there again, or is gone: whatever it holds may have changed."""
        for path in self._paths:
            if os.path.dirname(path) == folder:  # noqa: PTH120 - as above
                self._seen(path)
        if folder in self._listed:
            self._seen(folder)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES):
                    self._seen(entry.path)

    def _is_of_interest(self, path: str) -> bool:
        """May be called in any thread."""
        return path in self._paths or os.path.dirname(path) in self._listed  # noqa: PTH120 - as above

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


def _is_news(record: logging.LogRecord) -> bool:
    return _ENDING not in record.getMessage()


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        found = Path(folder).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


class _Handler(FileSystemEventHandler):
    """Runs in watchdog's thread. An editor that saves by renaming shows up as a move onto the file."""

    def __init__(self, tell: Callable[[str], None], is_of_interest: Callable[[str], bool]) -> None:
        self._tell, self._is_of_interest = tell, is_of_interest

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type not in _KINDS or (event.is_directory and event.event_type not in _COMINGS_AND_GOINGS):
            return
        for path in {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)} - {""}:
            is_source = not event.is_directory and path.endswith(_SUFFIXES)
            if is_source and notebooks.is_notebook(path):
                notebooks.read_ahead(path)
            if is_source or self._is_of_interest(path):
                self._tell(path)
