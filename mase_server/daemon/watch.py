"""Notice saves by any program: watch the folders of open files and of their dependencies.

A watched folder is identified by its inode, not its name: the watcher checks once a second whether it was moved or
re-created, because the system does not report that, and then treats everything in it as changed.
"""

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

from watchdog import events
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingObserver

from mase_server import notebooks

_log = logging.getLogger(__name__)
_DEBOUNCE = 0.03
#: Seconds until a moved, deleted or re-created folder is noticed, because the system does not report that.
_LOOK = 1.0
#: Seconds between two looks at every file, if the system watches no more folders.
_POLL = 0.5
#: Why the system watches no more: too many folders, watchers of one user, or open files.
_LIMITS = {
    errno.ENOSPC: "its limit of watched folders is reached; `sysctl fs.inotify.max_user_watches=524288` raises it",
    errno.EMFILE: "its limit of open files or of watchers is reached; `ulimit -n 4096` raises the first, and "
    "`sysctl fs.inotify.max_user_instances=512` the second",
    errno.ENFILE: "its limit of open files is reached",
    errno.ENOMEM: "it has no memory left",
}
_NEVER = frozenset({".venv", "venv", ".git", "node_modules", "__pycache__", "site-packages", "dist-packages"})
_SUFFIXES = (".py", notebooks.SUFFIX)
#: watchdog reports this when its thread reads a folder that was just given up. It is harmless: the thread ends then.
#: A thread that ended though its folder is wanted is found by looking.
_ENDING = "queue_events() called when the thread is inactive"
#: The events that the system is to tell. A trace opens hundreds of files, and each opening that is told takes time.
#: A change of rights is a modification before watchdog 7.
_KINDS: list[type[FileSystemEvent]] = [
    getattr(events, name)
    for name in (
        "FileCreatedEvent", "FileMovedEvent", "FileDeletedEvent", "FileModifiedEvent", "FileAttribEvent",
        "FileClosedEvent", "DirCreatedEvent", "DirMovedEvent", "DirDeletedEvent",
    )
    if hasattr(events, name)
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Watched:
    """The identity of a folder when the system began to watch it: (device, inode)."""

    watch: ObservedWatch
    identity: tuple[int, int]


class Watcher:
    """Calls `changed(path)` on the event loop, once per burst of events, for interesting paths in the watched folders.

    Interesting paths are Python files, notebooks, and those given to `watch`. `warned(text)` is called if the system
    watches no more folders, so that they are polled.
    """

    def __init__(self, changed: Callable[[str], None], warned: Callable[[str], None] = lambda text: None) -> None:
        self._changed, self._warned = changed, warned
        self._rewrite_loop = asyncio.get_running_loop()
        self._pending: dict[str, asyncio.TimerHandle] = {}
        self._asked: tuple[set[str], frozenset[str], frozenset[str]] = set(), frozenset(), frozenset()
        self._wanted: set[str] = set()
        self._paths_of_mention: frozenset[str] = frozenset()
        self._listed: frozenset[str] = frozenset()
        self._watches: dict[str, _Watched] = {}
        #: Folders that were missing: when they appear, their files may have changed.
        self._lost: set[str] = set()
        self._handler = _Handler(self._from_thread, self._is_of_interest)
        self._observer: BaseObserver | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def watch(
        self, folders: set[str], paths: frozenset[str] = frozenset(), listed: frozenset[str] = frozenset()
    ) -> None:
        """Watch exactly these folders, without their subfolders, even if they are re-created later.

        paths: interesting besides Python files and notebooks.  listed: folders in which every name is interesting.
        """
        if (folders, paths, listed) != self._asked:
            self._asked = folders, paths, listed
            needed = listed | {os.path.dirname(path) for path in paths}  # noqa: PTH120 - hundreds of them
            self._paths_of_mention, self._listed = paths, listed
            self._wanted = {folder for folder in folders if folder in needed or not _NEVER & set(Path(folder).parts)}
        self._lost &= self._wanted
        self._update_watches()

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

    def _update_watches(self) -> None:
        """Watch the wanted folders that exist. A re-created folder is a new one, whatever its name."""
        if self._next_look is not None:
            self._next_look.cancel()
        now = {folder: _identify_folder(folder) for folder in self._wanted}
        alive = self._get_alive()
        for folder, watched in list(self._watches.items()):
            if now.get(folder) != watched.identity or watched.watch not in alive:
                self._drop_watch(folder)
        for folder, identity in now.items():
            if identity is None:
                self._lost.add(folder)
            elif folder not in self._watches:
                self._add_watch(folder, identity)
        if self._wanted:
            self._next_look = self._rewrite_loop.call_later(_LOOK, self._update_watches)

    def _get_alive(self) -> set[ObservedWatch]:
        """The watches that still work: a re-created folder may get the number of the deleted one."""
        emitters = () if self._observer is None else self._observer.emitters
        return {emitter.watch for emitter in emitters if emitter.is_alive()}

    def _drop_watch(self, folder: str) -> None:
        with contextlib.suppress(KeyError, OSError):
            self._get_observer().unschedule(self._watches.pop(folder).watch)
        if folder in self._wanted:
            self._lost.add(folder)
            self._tell_all(folder)

    def _get_observer(self) -> BaseObserver:
        if self._observer is None:
            logging.getLogger("watchdog.observers.inotify").addFilter(_is_news)
            self._observer = self._start_observer(Observer())
        return self._observer

    def _start_observer(self, observer: BaseObserver) -> BaseObserver:
        observer.daemon = True
        observer.start()
        return observer

    def _add_watch(self, folder: str, identity: tuple[int, int]) -> None:
        try:
            watch = self._get_observer().schedule(self._handler, folder, event_filter=_KINDS)
        except OSError as error:
            if error.errno not in _LIMITS or isinstance(self._observer, PollingObserver):
                return  # it is gone again or unreadable: the next look tries once more
            self._poll_instead(error)
            return self._add_watch(folder, identity)
        self._watches[folder] = _Watched(watch, identity)
        if folder in self._lost:
            self._lost.discard(folder)
            self._tell_all(folder)

    def _poll_instead(self, error: OSError) -> None:
        why = f"The system watches no more folders: {_LIMITS[error.errno or 0]}"
        _log.warning(text := f"{why}. Files are looked at every {_POLL:g} s instead.")
        self._warned(text)
        old, self._observer = self._observer, self._start_observer(PollingObserver(timeout=_POLL))
        if old is not None and old.is_alive():
            old.stop()
        watched, self._watches = self._watches, {}
        for folder, one in watched.items():
            self._add_watch(folder, one.identity)

    def _tell_all(self, folder: str) -> None:
        """A folder is back or gone: everything in it may have changed."""
        for path in self._paths_of_mention:
            if os.path.dirname(path) == folder:  # noqa: PTH120 - as above
                self._debounce_change(path)
        if folder in self._listed:
            self._debounce_change(folder)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES):
                    self._debounce_change(entry.path)

    def _is_of_interest(self, path: str) -> bool:
        """Is the path interesting? May be called in any thread."""
        return path in self._paths_of_mention or os.path.dirname(path) in self._listed  # noqa: PTH120 - as above

    def _from_thread(self, path: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._rewrite_loop.call_soon_threadsafe(self._debounce_change, path)

    def _debounce_change(self, path: str) -> None:
        if (waiting := self._pending.pop(path, None)) is not None:
            waiting.cancel()
        self._pending[path] = self._rewrite_loop.call_later(_DEBOUNCE, self._tell_change, path)

    def _tell_change(self, path: str) -> None:
        self._pending.pop(path, None)
        self._changed(path)


def _is_news(record: logging.LogRecord) -> bool:
    return _ENDING not in record.getMessage()


def _identify_folder(folder: str) -> tuple[int, int] | None:
    try:
        found = Path(folder).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


class _Handler(FileSystemEventHandler):
    """Runs in watchdog's thread. An editor that saves by renaming appears as a move onto the file."""

    def __init__(self, tell: Callable[[str], None], is_of_interest: Callable[[str], bool]) -> None:
        self._tell_change, self._is_of_interest = tell, is_of_interest

    def on_any_event(self, event: FileSystemEvent) -> None:
        for path in {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)} - {""}:
            is_source = not event.is_directory and path.endswith(_SUFFIXES)
            if is_source and notebooks.is_notebook(path):
                notebooks.read_ahead(path)
            if is_source or self._is_of_interest(path):
                self._tell_change(path)
