"""Events of the log: what happened, in named plain values, never a text of the person's.

A text may hold what stands in a person's file or settings. So an event names a kind, a place and numbers; of other
records the file gets the words as they stand in our own source, without what was put into them, and of an exception its
type and where it came from.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from mase_server.observe.requests import REQUEST

OURS = "mase_server"
_EVENTS = logging.getLogger(f"{OURS}.events")
_FRAMES = 12


def event(name: str, level: int = logging.INFO, **facts: Any) -> None:
    """Log that something happened. facts: plain values. It costs next to nothing where the level is not logged."""
    if not _EVENTS.isEnabledFor(level):
        return
    record = logging.LogRecord(_EVENTS.name, level, "", 0, name, None, None)
    record.facts = facts
    record.request = facts.pop("request", None) or REQUEST.get()
    _EVENTS.handle(record)


def wanted(level: int) -> bool:
    """Are events of this level logged?"""
    return _EVENTS.isEnabledFor(level)


def within(path: str, folder: str) -> str:
    """A path as the log has it: below its workspace folder, else its name alone."""
    return os.path.relpath(path, folder) if folder and Path(path).is_relative_to(folder) else Path(path).name


def as_line(record: logging.LogRecord, component: str) -> str:
    """A record as one line of JSON."""
    told: dict[str, Any] = {
        "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
        "level": record.levelname.lower(),
        "component": component,
    }
    if request := getattr(record, "request", ""):
        told["request"] = request
    facts = getattr(record, "facts", None)
    if facts is not None:
        told |= {"event": record.msg, **{key: _plain(value) for key, value in facts.items()}}
    else:
        told |= {"event": "message", "from": record.name, "text": _template(record)}
    if error := getattr(record, "failure", None):
        told["error"] = error
    return json.dumps(told, ensure_ascii=True, separators=(", ", ": "))


def as_text(record: logging.LogRecord) -> str:
    """An event as a person reads it in the editor's output."""
    facts = getattr(record, "facts", {})
    told = [f"{key}={_short(value)}" for key, value in facts.items() if value not in ("", None, {})]
    request = getattr(record, "request", "")
    return " ".join([str(record.msg), *told, *([f"[{request}]"] if request else [])])


def failure(error: BaseException) -> dict[str, Any]:
    """The log's record of an exception: {"type", "frames"}, and "errno" for a system error. It omits the text."""
    told: dict[str, Any] = {"type": type(error).__name__, "frames": _frames(error.__traceback__)}
    return told | ({"errno": error.errno} if isinstance(error, OSError) and error.errno is not None else {})


def _frames(trace: TracebackType | None) -> list[str]:
    """Where it came from, the innermost last: file, line and function; of other people's code the file's name alone."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{_module(code.co_filename)}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return found[-_FRAMES:]


def _module(file: str) -> str:
    _, found, below = file.rpartition(f"{os.sep}{OURS}{os.sep}")
    return f"{OURS}/{below}" if found else Path(file).name


def _template(record: logging.LogRecord) -> str:
    """The words of our own source. Messages of other libraries may have been formatted before, so they do not count."""
    ours = record.name.split(".")[0] == OURS
    return str(getattr(record, "template", record.msg)) if ours else f"{record.module}.{record.funcName}"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int) else type(value).__name__


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(_plain(value))
