"""Reduce texts that users send to others: no names, no locations of files, no secrets."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mase_server.protocol.records import Plain


HIDDEN = "(hidden)"
_SECRET = re.compile(r"token|secret|passw|credential|api_?key|private|auth|cookie", re.IGNORECASE)
#: Patterns of tokens: those of code hosts and model hubs, and any long mix of letters and digits.
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|eyJ)[\w.\-]{8,}"
    r"|\b(?=[A-Za-z0-9_\-]*[0-9])(?=[A-Za-z0-9_\-]*[A-Za-z])[A-Za-z0-9_\-]{32,}\b"
)
#: Credentials in an address: https://user:password@host
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_SHORTEST = 3
#: A shorter value, such as "yes", counts as no secret, whatever its variable's name.
_SECRET_LENGTH = 6
#: Names of users that are ordinary words, too.
_ORDINARY = frozenset({"root", "user", "admin", "home", "test", "python", "local"})


class Reduced:
    """Reduces texts. folders: of workspaces, shown as "(workspace)"; several are numbered.

    home: of the user.  names: of the user and the machine, shown as "(user)" and "(machine)".
    """

    def __init__(self, folders: Iterable[str], environment: Mapping[str, str], home: str) -> None:
        listed = sorted({each for each in folders if len(each) > 1}, key=len, reverse=True)
        words = ["(workspace)" if len(listed) == 1 else f"(workspace {number})" for number in range(1, len(listed) + 1)]
        secrets = {
            value for name, value in environment.items() if _SECRET.search(name) and len(value) >= _SECRET_LENGTH
        }
        self._exact = [(each, HIDDEN) for each in sorted(secrets, key=len, reverse=True)]
        self._exact += zip(listed, words, strict=True)
        self._exact += [(home, "~")] if len(home) > 1 else []
        self._words = {name: told for name, told in _personal_names(environment, home) if _is_a_name(name)}

    def text(self, text: str) -> str:
        """The reduced text."""
        for found, told in self._exact:
            text = text.replace(found, told)
        for name, told in self._words.items():
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", told, text, flags=re.IGNORECASE)
        return _TOKEN.sub(HIDDEN, _LOGIN.sub(f"{HIDDEN}@", text))

    def value(self, value: Any) -> Any:
        """Plain values with all texts reduced; values under the name of a secret are left out."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            told = {str(key): HIDDEN if _SECRET.search(str(key)) else self.value(each) for key, each in value.items()}
            return {self.text(key): each for key, each in told.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value if value is None or isinstance(value, int | float) else type(value).__name__


def _personal_names(environment: Mapping[str, str], home: str) -> list[tuple[str, str]]:
    people = [environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    return [(socket.gethostname(), "(machine)"), *((name, "(user)") for name in (*people, Path(home).name))]


def _is_a_name(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in _ORDINARY


# Settings in a report: numbers and switches as they are, but of texts only their kind.
#
# Users may have put anything into a text: names of models, paths, a command with a password in it.


def _end_of_path(value: Any) -> str:
    """The end of a path shows which environment it is: .venv/bin/python."""
    return "/".join(["...", *PurePath(str(value)).parts[-3:]])


def _count_entries(value: Any) -> str:
    return f"{len(value)} {'entry' if len(value) == 1 else 'entries'}"


def _describe_command(value: Any) -> str:
    return f"{len(value)} words, the first is {PurePath(str(value[0])).name}"


def _known_word_or_set(value: Any) -> str:
    return str(value) if value in _WORDS else "set"


def _format_or_set(value: Any) -> str:
    return str(value) if re.fullmatch(r"fixed\(\d{1,3}, ?\d{1,3}\)", str(value)) else "set"


_WORDS = frozenset({"debug", "info", "warning", "error", "off", "messages", "verbose", "onType", "onSave"})
#: Settings with texts, and how each is described; a text not listed here is described as "set".
_TEXTS: dict[str, Callable[[Any], str]] = {
    "interpreter": _end_of_path,
    "server.command": _describe_command,
    "inputs": _count_entries,
    "pipelines": _count_entries,
    "update": _known_word_or_set,
    "log.level": _known_word_or_set,
    "trace.server": _known_word_or_set,
    "verilog.precision": _format_or_set,
}


def describe_settings(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """The section `mase` of an editor's settings, one line for each key; empty ones are left out."""
    found: dict[str, Plain] = {}
    for key, value in _flatten_settings(settings):
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, bool | int | float):
            found[key] = value
        else:
            found[key] = _describe_safely(_TEXTS.get(key), value)
    return dict(sorted(found.items()))


def _describe_safely(tell: Callable[[Any], str] | None, value: Any) -> str:
    try:
        return "set" if tell is None else tell(value)[:80]
    except (TypeError, IndexError, KeyError):
        return "set"


def _flatten_settings(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """(dotted key, value) of all settings; maps that are settings themselves stay whole."""
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and name not in _TEXTS:
            found += _flatten_settings(value, f"{name}.")
        else:
            found.append((name, value))
    return found
