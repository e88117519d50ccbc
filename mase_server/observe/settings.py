"""Settings as a report tells them: numbers and switches as they are, of texts only what kind of thing they are.

A person may have written anything into a text: names of models, paths, a command with a password in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any


def _path(value: Any) -> str:
    """The end of a path tells whose environment it is: .venv/bin/python."""
    return "/".join(["...", *PurePath(str(value)).parts[-3:]])


def _count(value: Any) -> str:
    return f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"


def _command(value: Any) -> str:
    return f"{len(value)} words, the first is {PurePath(str(value[0])).name}"


def _word(value: Any) -> str:
    return str(value) if value in _WORDS else "set"


def _format(value: Any) -> str:
    return str(value) if re.fullmatch(r"fixed\(\d{1,3}, ?\d{1,3}\)", str(value)) else "set"


_WORDS = frozenset({"debug", "info", "warning", "error", "off", "messages", "verbose"})
#: Settings that are texts, and how each is told; a text that is not named here is told as "set".
_TEXTS: dict[str, Callable[[Any], str]] = {
    "interpreter": _path,
    "server.command": _command,
    "inputs": _count,
    "pipelines": _count,
    "log.level": _word,
    "trace.server": _word,
    "verilog.precision": _format,
}


def told(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The section `mase` of an editor's settings, its keys in one line each; empty ones are left out."""
    found: dict[str, Any] = {}
    for key, value in _flat(settings):
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, bool | int | float):
            found[key] = value
        else:
            found[key] = _safely(_TEXTS.get(key), value)
    return dict(sorted(found.items()))


def _safely(tell: Callable[[Any], str] | None, value: Any) -> str:
    try:
        return "set" if tell is None else tell(value)[:80]
    except (TypeError, IndexError, KeyError):
        return "set"


def _flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """(dotted key, value) of all settings; the maps that are settings themselves stay whole."""
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and name not in _TEXTS:
            found += _flat(value, f"{name}.")
        else:
            found.append((name, value))
    return found
