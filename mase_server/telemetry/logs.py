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
from collections.abc import Container, Iterator
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import IO, Any, TextIO

from mase_server.private import NotPrivate, own_folder
from mase_server.telemetry.records import OURS, REQUEST, as_line, as_text, describe_exception
from mase_server.visible import reveal_lines

LEVELS = ("debug", "info", "warning", "error")
#: Bytes of one file; each server has at most two of them.
FILE_BYTES = 1 << 20
#: Maximum number of servers whose files are kept.
SERVERS = 8
#: Maximum number of records waiting to be written.
WAITING = 10_000
_FILE_LEVEL = logging.INFO
_FORMAT = "%(levelname)s %(name)s: %(message)s"


def folder_of(state_dir: Path) -> Path:
    """The folder with the logs of all servers."""
    return state_dir / "logs"


class Logs:
    """The log of this process, from `start` to `stop`. level: for standard error, by default "warning".

    told: events that people are told elsewhere in plain words: standard error has them only from "info" on.
    """

    def __init__(self, kind: str, level: str, state_dir: Path, told: Container[str] = ()) -> None:
        self._stderr_level = _level_number(level)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._handler = _Queueing(self._queue)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self.path = folder_of(state_dir) / f"{kind}-{stamp}-{os.getpid()}.jsonl"
        self._file = JsonLines(self.path, f"server {os.getpid()}")
        self._stderr = logging.StreamHandler(sys.stderr)
        self._stderr.setFormatter(_ForPeople(_FORMAT))
        self._stderr.addFilter(lambda record: self._stderr.level <= logging.INFO or record.msg not in told)
        self._listener = QueueListener(self._queue, self._file, self._stderr, respect_handler_level=True)
        self._faults: IO[str] | None = None
        self._before: tuple[int, int] = (0, 0)

    @property
    def dropped(self) -> int:
        """The number of lost records: too many were waiting, or the file could not be written."""
        return self._handler.dropped + self._file.dropped

    def start(self) -> None:
        """Begin to write; if no file can be made, write to standard error only."""
        root, ours = logging.getLogger(), logging.getLogger(OURS)
        self._before = root.level, ours.level
        root.addHandler(self._handler)
        self.level(None)
        try:
            folder = own_folder(own_folder(self.path.parent.parent) / self.path.parent.name)
            _prune_logs(folder)
            self._faults = _open_private(str(self.path.with_suffix(".fault")), "w")
            faulthandler.enable(self._faults, all_threads=True)
        except NotPrivate as error:
            self._listener.handlers = (self._stderr,)  # a link planted by another user would be written to
            ours.warning("no log is kept: %s", error)
        except OSError:
            pass  # the file's handler counts what it could not write
        self._listener.start()

    def level(self, name: str | None) -> None:
        """Set the level for people; None restores the initial one. The file's level is "info" or lower."""
        root, ours = logging.getLogger(), logging.getLogger(OURS)
        for_people = self._stderr_level if name is None else _level_number(name)
        in_file = min(_FILE_LEVEL, for_people)
        self._stderr.setLevel(for_people)
        self._file.setLevel(in_file)
        # Libraries log every message they send: show that only to users who ask for it on the command line.
        root.setLevel(self._stderr_level)
        ours.setLevel(min(for_people, in_file))

    def stop(self) -> None:
        """Write waiting records, and close the log."""
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
                Path(self._faults.name).unlink()  # a server killed by a fault leaves its own


@contextlib.contextmanager
def log_session(kind: str, level: str, state_dir: Path) -> Iterator[Logs]:
    """Keep a log during the block."""
    logs = Logs(kind, level, state_dir)
    logs.start()
    try:
        yield logs
    finally:
        logs.stop()


class _Queueing(QueueHandler):
    """Puts records into the queue, with the thread and request that their lines name."""

    def __init__(self, waiting: queue.SimpleQueue[Any]) -> None:
        super().__init__(waiting)
        self._waiting = waiting
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        if hasattr(record, "facts"):
            return record
        record.template, record.request = record.msg, REQUEST.get()
        if record.exc_info and record.exc_info[1] is not None:
            record.failure = describe_exception(record.exc_info[1])
        text: logging.LogRecord = super().prepare(record)
        return text

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() < WAITING:
            self._waiting.put_nowait(record)
        else:
            self.dropped += 1


class JsonLines(RotatingFileHandler):
    """A file of JSON lines that only its owner may read. A full disk loses lines, but causes no other failure."""

    def __init__(self, path: Path, component: str) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=1, encoding="ascii", delay=True)
        self._component = component
        self.dropped = 0

    def _open(self) -> Any:
        return _open_private(self.baseFilename, "a")

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop messages of libraries about their ordinary work."""
        ours = record.name.split(".")[0] == OURS
        return bool(super().filter(record)) and (ours or record.levelno >= logging.WARNING)

    def format(self, record: logging.LogRecord) -> str:
        """Format one line, see `records`."""
        return as_line(record, self._component)

    def handleError(self, record: logging.LogRecord) -> None:
        """Count the error: on a full disk, a traceback for each line would not help."""
        self.dropped += 1


class _ForPeople(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname} {as_text(record)}" if hasattr(record, "facts") else super().format(record)
        return reveal_lines(text)


def _level_number(level: str) -> int:
    return int(logging.getLevelNamesMapping()[level.upper()])


def _open_private(path: str, mode: str) -> TextIO:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    return open(path, mode, encoding="ascii", errors="backslashreplace", opener=opener)  # type: ignore[return-value]


def _prune_logs(folder: Path) -> None:
    """Remove the files of the oldest servers, so that at most `SERVERS` remain, ours included."""
    names: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime):
        key = path.name.partition(".")[0]
        names[key] = [*names.pop(key, []), path]
    for paths in list(names.values())[: max(0, len(names) - SERVERS + 1)]:
        for path in paths:
            path.unlink(missing_ok=True)
