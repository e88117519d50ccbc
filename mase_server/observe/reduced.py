"""Texts that a person may send to strangers: without who they are, where their files lie and what must stay secret."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HIDDEN = "(hidden)"
_SECRET = re.compile(r"token|secret|passw|credential|api_?key|private|auth|cookie", re.IGNORECASE)
#: What tokens look like: those of code hosts and model hubs, and any long run of letters and digits mixed.
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|eyJ)[\w.\-]{8,}"
    r"|\b(?=[A-Za-z0-9_\-]*[0-9])(?=[A-Za-z0-9_\-]*[A-Za-z])[A-Za-z0-9_\-]{32,}\b"
)
#: Parts of an address that say who asks: https://user:password@host
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_SHORTEST = 3
#: A shorter value, such as "yes", is no secret whatever its variable is called.
_SECRET_LENGTH = 6
#: Names of people that are words too.
_ORDINARY = frozenset({"root", "user", "admin", "home", "test", "python", "local"})


class Reduced:
    """Reduces texts. folders: of workspaces, told as "(workspace)"; more of them are numbered.

    home: of the person.  names: of the person and the machine, told as "(user)" and "(machine)".
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
        self._words = {name: told for name, told in _names(environment, home) if _is_a_name(name)}

    def text(self, text: str) -> str:
        """The same without them."""
        for found, told in self._exact:
            text = text.replace(found, told)
        for name, told in self._words.items():
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", told, text, flags=re.IGNORECASE)
        return _TOKEN.sub(HIDDEN, _LOGIN.sub(f"{HIDDEN}@", text))

    def value(self, value: Any) -> Any:
        """Plain values, each of their texts reduced; what stands under the name of a secret is left out."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            told = {str(key): HIDDEN if _SECRET.search(str(key)) else self.value(each) for key, each in value.items()}
            return {self.text(key): each for key, each in told.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value if value is None or isinstance(value, int | float) else type(value).__name__


def _names(environment: Mapping[str, str], home: str) -> list[tuple[str, str]]:
    people = [environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    return [(socket.gethostname(), "(machine)"), *((name, "(user)") for name in (*people, Path(home).name))]


def _is_a_name(name: str) -> bool:
    return len(name) >= _SHORTEST and name.lower() not in _ORDINARY
