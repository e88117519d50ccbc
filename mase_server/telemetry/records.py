"""Events of the log: named plain values, never texts from users.

A text may contain parts of a user's file or settings. So an event consists of a kind, a place and numbers. For other
records, the file gets the message template from our source without its arguments, and for an exception its type and
origin.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import time
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from mase_server.protocol.records import Plain


# The present request: a short name that follows it through the server, its workers and its log.

#: The running request: "l12" of an editor, "r3" of another tool, "s4" for a save or another event in the server.
REQUEST: ContextVar[str] = ContextVar("mase_request", default="")

_NUMBERS = itertools.count(1)


def name_request(kind: str) -> str:
    """A new name, unique in this process."""
    return f"{kind}{next(_NUMBERS)}"


def current_request(kind: str) -> str:
    """The running request, or a new name if there is none."""
    return REQUEST.get() or name_request(kind)


OURS = "mase_server"
_EVENTS = logging.getLogger(f"{OURS}.events")
# A program without a log, such as `mase-server sweep`, else writes the names of warnings to its standard error.
_EVENTS.addHandler(logging.NullHandler())
_FRAMES = 12


def log_event(name: str, level: int = logging.INFO, **facts: Any) -> None:
    """Log an event. facts: plain values. The call is cheap if the level is not logged."""
    if not _EVENTS.isEnabledFor(level):
        return
    record = logging.LogRecord(_EVENTS.name, level, "", 0, name, None, None)
    record.facts = facts
    record.request = facts.pop("request", None) or REQUEST.get()
    _EVENTS.handle(record)


def is_logged(level: int) -> bool:
    """Are events of this level logged?"""
    return _EVENTS.isEnabledFor(level)


def path_in_log(path: str, folder: str) -> str:
    """A path for the log: relative to its workspace folder, else its name alone."""
    return os.path.relpath(path, folder) if folder and Path(path).is_relative_to(folder) else Path(path).name


def as_line(record: logging.LogRecord, component: str) -> str:
    """A record as one line of JSON."""
    told: dict[str, Plain] = {
        "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
        "level": record.levelname.lower(),
        "component": component,
    }
    if request := getattr(record, "request", ""):
        told["request"] = request
    facts = getattr(record, "facts", None)
    if facts is not None:
        told |= {"event": record.msg, **{key: _plain_value(value) for key, value in facts.items()}}
    else:
        told |= {"event": "message", "from": record.name, "text": _message_template(record)}
    if error := getattr(record, "failure", None):
        told["error"] = error
    return json.dumps(told, ensure_ascii=True, separators=(", ", ": "))


def as_text(record: logging.LogRecord) -> str:
    """An event for people, as in the editor's output."""
    facts = getattr(record, "facts", {})
    told = [f"{key}={_short_text(value)}" for key, value in facts.items() if value not in ("", None, {})]
    request = getattr(record, "request", "")
    return " ".join([str(record.msg), *told, *([f"[{request}]"] if request else [])])


class ExceptionRecord(TypedDict):
    """The log's record of an exception, without its text. errno: of a system error."""

    type: str
    frames: list[str]
    errno: NotRequired[int]


def describe_exception(error: BaseException) -> ExceptionRecord:
    """The log's record of an exception."""
    told: ExceptionRecord = {"type": type(error).__name__, "frames": _describe_frames(error.__traceback__)}
    if isinstance(error, OSError) and error.errno is not None:
        told["errno"] = error.errno
    return told


def _describe_frames(trace: TracebackType | None) -> list[str]:
    """The frames of a traceback, the innermost last: file, line and function; for third-party files only the name."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{_source_in_log(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return found[-_FRAMES:]


def _source_in_log(file: str) -> str:
    _, found, below = file.rpartition(f"{os.sep}{OURS}{os.sep}")
    return f"{OURS}/{below}" if found else Path(file).name


def _message_template(record: logging.LogRecord) -> str:
    """The template in our own source. Other libraries may format messages early, so theirs are dropped."""
    ours = record.name.split(".")[0] == OURS
    return str(getattr(record, "template", record.msg)) if ours else f"{record.module}.{record.funcName}"


def _plain_value(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {str(key): _plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(each) for each in value]
    return value if value is None or isinstance(value, str | int) else type(value).__name__


def _short_text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(_plain_value(value))
