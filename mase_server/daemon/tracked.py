"""One model file: its content, generations, running trace, kept child, dependencies, and restarts after crashes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mase_server import notebooks, reading
from mase_server.daemon.status import Status
from mase_server.daemon.supervisor import TraceWorker
from mase_server.dependencies import MOST, Dependency, Kind, Seen, is_transient, look_at_dependency
from mase_server.protocol.request import TraceOptions
from mase_server.protocol.snapshot import Problem
from mase_server.system import user_id

# The content of a file on disk and its hash, or why it is not read.

_GONE = "This file is not there any more: it was deleted, or moved with its folder."


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file and their sha256. unreadable: why there are none, else "".  unsaved: are they not on disk?"""

    data: bytes
    sha256: str
    unreadable: str = ""
    unsaved: bool = False

    def is_as(self, other: Source) -> bool:
        """Is it the same content, or unreadable for the same reason?"""
        return (self.sha256, self.unreadable) == (other.sha256, other.unreadable)


def read_source(path: str) -> Source | None:
    """The file's present content (the script of a notebook), or why it is unreadable; None if there is no file."""
    try:
        data = notebooks.read_traced_bytes(path, reading.MOST)
    except reading.UnreadableError as error:
        return Source(b"", "", str(error.strerror))
    except OSError:
        return None
    return Source(data, hashlib.sha256(data).hexdigest())


def make_unsaved_source(data: bytes) -> Source:
    """The source for a text that a client holds."""
    return Source(data, hashlib.sha256(data).hexdigest(), unsaved=True)


def make_missing_source(before: Source) -> Source:
    """The source for a missing file: unchanged if it never existed, else unreadable because it is gone."""
    return Source(b"", "", _GONE) if before.sha256 or before.unreadable else before


def make_unreadable_problem(path: str, why: str) -> Problem:
    """The diagnostic for an unreadable file, on its first line."""
    return Problem(path, 1, 0, 2, 0, "error", "unreadable", f"{why} It is traced again as soon as it can be read.")


# Freshness of shown results: the dependencies of a trace, and when the file has to be traced again.

_log = logging.getLogger(__name__)
#: Maximum number of watched folders per file beside those of source files; each costs the system a watch.
MOST_FOLDERS = 64
#: If a path changes during more than `_PATIENCE` traces in a row, the traces themselves change it: from then on the
#: next trace waits, twice as long each time.
_PATIENCE, _PAUSE, _LONGEST_PAUSE = 3, 5.0, 300.0
#: After so many traces for dependencies within so many seconds, the next one waits for `_PAUSE`, too.
_TRACES, _WITHIN = 8, 10.0

_Key = tuple[Kind, str]
#: The order in which dependencies are watched if there are too many folders.
_ORDER: Sequence[Kind] = ("content", "size", "listing", "modules", "presence")
#: The kinds that look at what is in a folder.
_LISTS = ("listing", "modules")


class Freshness:
    """The dependencies of one file's newest trace, and how often they changed lately.

    look: looks at a dependency now; it also gets what was seen before.
    """

    def __init__(self, look: Callable[[Kind, str, Seen], Seen] = look_at_dependency) -> None:
        self._look = look
        self._known: dict[_Key, Dependency] = {}
        self._environment: dict[_Key, Dependency] = {}
        self._restless: Counter[str] = Counter()
        self._traces: deque[float] = deque(maxlen=_TRACES)
        #: What `folders`, `paths` and `listed` were made of.
        self._indexed: list[tuple[Kind, str, Seen | None]] = []
        self.folders: frozenset[str] = frozenset()
        #: Paths that are dependencies, and folders in which every name is one.
        self.paths: frozenset[str] = frozenset()
        self.listed: frozenset[str] = frozenset()

    @property
    def dependencies(self) -> list[Dependency]:
        """All that the newest trace depends on."""
        return list(self._known.values())

    def learn(self, path: str, rows: Iterable[Sequence[Any]]) -> list[Dependency]:
        """Store the dependencies that a trace of the file `path` reported; returns the new ones."""
        before, now = self._known, [Dependency(*row) for row in rows]
        if len(now) >= MOST:
            _log.warning("%s depends on more than %d files and folders; changes of the others are not seen", path, MOST)
        self._known = {(one.kind, one.path): one for one in now}
        self._index_dependencies(path)
        return [one for one in now if before.get((one.kind, one.path)) != one]

    def learn_environment(self, path: str, places: Iterable[_Key]) -> bool:
        """Store the present state of the places that decide the interpreter for `path`; returns whether any is new."""
        before = self._environment.keys()
        self._environment = {
            (kind, place): Dependency(kind, place, look_at_dependency(kind, place)) for kind, place in places
        }
        if self._environment.keys() != before:
            self._index_dependencies(path)
        return self._environment.keys() != before

    def changes_at(self, path: str) -> bool:
        """Something happened at a path: would the trace see something else there now? Each change is reported once."""
        return bool(self.note(self.look_again(self._find_concerned(path))))

    def look_again(self, dependencies: Iterable[Dependency] | None = None) -> list[tuple[Dependency, Seen]]:
        """The dependencies (None: of all) that have changed, each with what is there now. It may run in a thread."""
        every = [*(self._environment | self._known).values()] if dependencies is None else dependencies
        looked = ((one, self._look(one.kind, one.path, one.seen)) for one in every)
        return [(one, now) for one, now in looked if now != one.seen]

    def note(self, looked: Iterable[tuple[Dependency, Seen]]) -> list[Dependency]:
        """The changed dependencies, of those that were looked at; later looks compare with what was seen.

        A change that was noted since the look is not told again.
        """
        found = []
        for one, now in looked:
            key = one.kind, one.path
            holders = [known for known in (self._known, self._environment) if known.get(key) == one]
            for known in holders:
                known[key] = Dependency(one.kind, one.path, now)
            if holders:
                found.append(one)
        return found

    def pause(self, paths: Iterable[str], tracing: bool) -> float:
        """Seconds to wait before the file is traced again because these paths changed.

        tracing: is or was a moment ago a trace running, so that the traced program itself may have changed them?
        """
        now, most = time.monotonic(), 0
        for path in paths:
            self._restless[path] = self._restless[path] + 1 if tracing else 0
            most = max(most, self._restless[path])
        if most > _PATIENCE:
            return float(min(_PAUSE * 2 ** (most - _PATIENCE - 1), _LONGEST_PAUSE))
        if len(self._traces) == _TRACES and now - self._traces[0] < _WITHIN:
            return _PAUSE
        self._traces.append(now)
        return 0.0

    def settle(self) -> None:
        """The user saved the file or asked for a trace: paths that changed during every trace get another chance."""
        self._restless.clear()

    def _find_concerned(self, path: str) -> list[Dependency]:
        folder, name = os.path.split(path)
        keys: list[_Key] = [("content", path), ("size", path), ("presence", path), ("listing", path), ("modules", path)]
        if not is_transient(name):
            keys += [("listing", folder), ("modules", folder)]
            if name.startswith("__init__."):
                keys.append(("modules", os.path.dirname(folder)))  # noqa: PTH120
        known = self._environment | self._known if self._environment else self._known
        return [known[key] for key in keys if key in known]

    def _index_dependencies(self, path: str) -> None:
        every = [*self._known.values(), *self._environment.values()]
        indexed = [(one.kind, one.path, one.seen if one.kind in _LISTS else None) for one in every]
        if indexed == self._indexed:
            return  # as at most keys, when only contents are new
        self._indexed = indexed
        every.sort(key=lambda one: _ORDER.index(one.kind))
        own, folders = os.path.dirname(path), dict[str, None]()  # noqa: PTH120
        for one in every:
            folders.update(dict.fromkeys(_list_watched_folders(one)))
        others = [folder for folder in folders if folder != own]
        sources = {os.path.dirname(one.path) for one in every if one.path.endswith(".py") and one.kind == "content"}  # noqa: PTH120
        kept = [folder for folder in others if folder not in sources][:MOST_FOLDERS]
        if len(others) - len(sources & set(others)) > MOST_FOLDERS:
            _log.warning("%s depends on more than %d folders; changes in the others are not seen", path, MOST_FOLDERS)
        self.folders = frozenset((*kept, *sources))
        self.listed = frozenset(one.path for one in every if one.kind in _LISTS)
        self.paths = frozenset(one.path for one in every)


def _list_watched_folders(one: Dependency) -> list[str]:
    """The folders in which something happens when a dependency changes."""
    if one.kind not in _LISTS:
        return [os.path.dirname(one.path)]  # noqa: PTH120
    # A folder that is no package yet becomes one when a file appears in it.
    inner = [name for name, seen in one.seen.items() if seen == "folder"] if isinstance(one.seen, dict) else []
    return [one.path, *(os.path.join(one.path, name) for name in inner)]  # noqa: PTH118


CRASHES = 5
CRASH_SECONDS = 180.0
#: Must differ from the prefix of socket folders, which may lie beside these and must never be removed.
_SCRATCH = "mase-scratch-"
_USER = user_id() or 0
_SCRATCH_SECONDS = 7 * 24 * 3600.0


@dataclass(slots=True)
class Tracked:
    """A file that is or was open. `source` is the newest requested content.

    openers: the clients that have it open: the editor, connections of other tools.  interpreter: the one that traced
    it last, "" before.  request: the one that asked for the newest generation, see `telemetry.records`.  later: a timer
    that traces it again after a pause.  following: a timer after which work follows the text that was typed.
    module_code: of the last saved text that parsed, see `daemon.discovery`.  typed_crashes: the number of traces of
    unsaved text that crashed since the last save.  typed: has an editor's unsaved text been traced?  ran_ahead: did the
    child of the newest trace run ahead with another text?
    """

    path: str
    folder: str
    options: TraceOptions | None = None
    openers: set[str] = field(default_factory=set)
    source: Source = field(default_factory=lambda: Source(b"", ""))
    generation: int = 0
    asked_at: float = 0.0
    status: Status | None = None
    task: asyncio.Task[None] | None = None
    worker: TraceWorker | None = None
    interpreter: str = ""
    request: str = ""
    instrument: tuple[str, ...] = ()
    freshness: Freshness = field(default_factory=Freshness)
    later: asyncio.TimerHandle | None = None
    following: asyncio.TimerHandle | None = None
    module_code: str | None = None
    typed_crashes: int = 0
    typed: bool = False
    ran_ahead: bool = False
    fit: bytes | None = None
    used_at: float = 0.0
    rereads: int = 0
    crashes: deque[float] = field(default_factory=lambda: deque(maxlen=CRASHES))
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def open(self) -> bool:
        """Does any client have it open?"""
        return bool(self.openers)

    @property
    def live(self) -> bool:
        """Is there a child that holds the shown graphs?"""
        return self.worker is not None and self.worker.live

    def next_generation(self, source: Source) -> int:
        """Begin a generation for `source`."""
        self.source = source
        self.generation += 1
        self.asked_at = self.used_at = time.monotonic()
        self.ended.clear()
        return self.generation

    def may_start(self) -> bool:
        """False after CRASHES crashes within CRASH_SECONDS."""
        recent = [at for at in self.crashes if time.monotonic() - at < CRASH_SECONDS]
        return len(recent) < CRASHES


def make_scratch() -> str:
    """A fresh private folder for files that user code writes; OSError if none can be made."""
    try:
        return tempfile.mkdtemp(prefix=_SCRATCH)
    except FileNotFoundError:
        tempfile.tempdir = None  # the folder chosen at the start is gone: choose another one
        return tempfile.mkdtemp(prefix=_SCRATCH)


def clean_scratch() -> None:
    """Remove folders of killed servers once they are so old that no trace can still use them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        try:
            found = folder.lstat()
            if found.st_uid == _USER and time.time() - found.st_mtime > _SCRATCH_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


async def retire_worker(worker: TraceWorker) -> None:
    """End a worker and remove its scratch folder."""
    worker.retired = True
    await worker.stop()
    await asyncio.to_thread(shutil.rmtree, worker.request.scratch, True)
