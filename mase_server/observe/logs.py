"""The log of a server: one JSON line for each event in a file of its own, and lines for people on standard error.

A thread writes both. A log call only puts a record into a queue, so neither a slow disk nor an editor that does not
read holds up the event loop. The queue, the files and their number are bounded; the log counts records that do not fit.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import queue
import sys
import time
from collections.abc import Iterator
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import IO, Any, TextIO

from mase_server.observe.records import OURS, as_line, as_text, failure
from mase_server.observe.requests import REQUEST
from mase_server.private import NotPrivate, own_folder
from mase_server.visible import reveal_lines

LEVELS = ("debug", "info", "warning", "error")
#: Bytes of one file; each server has at most two of them.
FILE_BYTES = 1 << 20
#: Servers whose files are kept.
SERVERS = 8
#: Records that may wait to be written.
WAITING = 10_000
_FILE_LEVEL = logging.INFO
_FORMAT = "%(levelname)s %(name)s: %(message)s"


def folder_of(state_dir: Path) -> Path:
    """Where the logs of all servers lie."""
    return state_dir / "logs"


class Logs:
    """The log of this process, from `start` to `stop`. level: of what goes to standard error, "warning" by itself."""

    def __init__(self, kind: str, level: str, state_dir: Path) -> None:
        self._stderr_level = _number(level)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._handler = _Queueing(self._queue)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self.path = folder_of(state_dir) / f"{kind}-{stamp}-{os.getpid()}.jsonl"
        self._file = JsonLines(self.path, f"server {os.getpid()}")
        self._stderr = logging.StreamHandler(sys.stderr)
        self._stderr.setFormatter(_ForPeople(_FORMAT))
        self._listener = QueueListener(self._queue, self._file, self._stderr, respect_handler_level=True)
        self._faults: IO[str] | None = None
        self._before: tuple[int, int] = (0, 0)

    @property
    def dropped(self) -> int:
        """Records that were not written: too many waited, or the file could not be written."""
        return self._handler.dropped + self._file.dropped

    def start(self) -> None:
        """Begin to write; where no file can be had, standard error alone is written."""
        root, ours = logging.getLogger(), logging.getLogger(OURS)
        self._before = root.level, ours.level
        root.addHandler(self._handler)
        self.level(None)
        try:
            folder = own_folder(own_folder(self.path.parent.parent) / self.path.parent.name)
            _prune(folder)
            self._faults = _private(str(self.path.with_suffix(".fault")), "w")
            faulthandler.enable(self._faults, all_threads=True)
        except NotPrivate as error:
            self._listener.handlers = (self._stderr,)  # a link that somebody planted would be written to
            ours.warning("no log is kept: %s", error)
        except OSError:
            pass  # the handler of the file counts what it could not write
        self._listener.start()

    def level(self, name: str | None) -> None:
        """Log for people from this level on; None: as it was started. The file has "info" at least."""
        root, ours = logging.getLogger(), logging.getLogger(OURS)
        for_people = self._stderr_level if name is None else _number(name)
        in_file = min(_FILE_LEVEL, for_people)
        self._stderr.setLevel(for_people)
        self._file.setLevel(in_file)
        # Libraries log every message that they send: that is for people who ask for it on the command line.
        root.setLevel(self._stderr_level)
        ours.setLevel(min(for_people, in_file))

    def stop(self) -> None:
        """Write what waits, and let go."""
        root, ours = logging.getLogger(), logging.getLogger(OURS)
        root.removeHandler(self._handler)
        root.setLevel(self._before[0])
        ours.setLevel(self._before[1])
        self._listener.stop()
        self._file.close()
        if self._faults is not None:
            faulthandler.disable()
            self._faults.close()
            with contextlib.suppress(OSError):
                Path(self._faults.name).unlink()  # a server that is killed by a fault leaves its own


@contextlib.contextmanager
def logged(kind: str, level: str, state_dir: Path) -> Iterator[Logs]:
    """A log from here to the end of the block."""
    logs = Logs(kind, level, state_dir)
    logs.start()
    try:
        yield logs
    finally:
        logs.stop()


class _Queueing(QueueHandler):
    """Puts records into the queue, with all that their line needs from the thread and the request that made them."""

    def __init__(self, waiting: queue.SimpleQueue[Any]) -> None:
        super().__init__(waiting)
        self._waiting = waiting
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        if hasattr(record, "facts"):
            return record
        record.template, record.request = record.msg, REQUEST.get()
        if record.exc_info and record.exc_info[1] is not None:
            record.failure = failure(record.exc_info[1])
        text: logging.LogRecord = super().prepare(record)
        return text

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() < WAITING:
            self._waiting.put_nowait(record)
        else:
            self.dropped += 1


class JsonLines(RotatingFileHandler):
    """A file of JSON lines that only its owner may read. A full disk costs lines, never more."""

    def __init__(self, path: Path, component: str) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=1, encoding="ascii", delay=True)
        self._component = component
        self.dropped = 0

    def _open(self) -> Any:
        return _private(self.baseFilename, "a")

    def filter(self, record: logging.LogRecord) -> bool:
        """Not what libraries tell of their ordinary work."""
        ours = record.name.split(".")[0] == OURS
        return bool(super().filter(record)) and (ours or record.levelno >= logging.WARNING)

    def format(self, record: logging.LogRecord) -> str:
        """One line, see `records`."""
        return as_line(record, self._component)

    def handleError(self, record: logging.LogRecord) -> None:
        """Count it: who has no disk left should not get a traceback for each line as well."""
        self.dropped += 1


class _ForPeople(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname} {as_text(record)}" if hasattr(record, "facts") else super().format(record)
        return reveal_lines(text)


def _number(level: str) -> int:
    return int(logging.getLevelNamesMapping()[level.upper()])


def _private(path: str, mode: str) -> TextIO:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    return open(path, mode, encoding="ascii", errors="backslashreplace", opener=opener)  # type: ignore[return-value]


def _prune(folder: Path) -> None:
    """Forget the oldest servers' files, so that with ours no more are left than `SERVERS`."""
    names: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime):
        key = path.name.partition(".")[0]
        names[key] = [*names.pop(key, []), path]
    for paths in list(names.values())[: max(0, len(names) - SERVERS + 1)]:
        for path in paths:
            path.unlink(missing_ok=True)
