"""The report on the trace of one file, from a running daemon or from a daemon of this process.

This module loads neither the daemon nor rich, because a command that queries a daemon must start fast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mase_server import notebooks
from mase_server.lsp.text import Text, decode
from mase_server.reading import UnreadableError
from mase_server.snapshot import Problem

_EXTENT = ("line", "column", "end_line", "end_column")
#: End states that explain themselves only by their message.
_UNSHOWN = frozenset({"no_model", "no_environment", "crashed", "failed", "superseded", "untrusted"})


@dataclass(frozen=True, slots=True)
class Value:
    """A value seen at a site, in the model of this title, so often, in the modules of these paths."""

    value: Any
    model: str
    count: int
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A place that held tensors, as `daemon.graph_snapshot.SiteView` is."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Report:
    """One file. file: as it was named.  source: its bytes.  told: the answer of `mase/traced`, all pages in one."""

    file: str
    path: str
    source: bytes
    told: Mapping[str, Any]

    @cached_property
    def text(self) -> Text:
        """The source as text."""
        return Text(decode(self.source))

    @property
    def state(self) -> str:
        """The end state of the trace, see `daemon.status`."""
        return str((self.told["status"] or {}).get("state", "failed"))

    @property
    def models(self) -> list[dict[str, Any]]:
        """Maps of `snapshot.MODEL_KEYS`, with "title" and "path"."""
        found: list[dict[str, Any]] = self.told["models"]
        return found

    @property
    def lenses(self) -> list[Any]:
        """The models whose class stands in this very file, with attributes in place of keys."""
        return [SimpleNamespace(**model) for model in self.models if model["path"] == self.path]

    def sites(self, kinds: Collection[str]) -> list[Site]:
        """The places of these kinds, in order."""
        return [
            Site(
                **{**site, "values": tuple(Value(**{**one, "scopes": tuple(one["scopes"])}) for one in site["values"])}
            )
            for site in self.told["sites"]
            if site["kind"] in kinds
        ]

    @property
    def told_problems(self) -> list[Problem]:
        """The problems of the trace, in its order, each at a place of this file."""
        return [here(Problem(**problem), self.path) for problem in self.told["problems"]]

    @cached_property
    def problems(self) -> list[Problem]:
        """The problems by position; if there are no shapes, at least the reason."""
        found = self.told_problems
        if self.told["python"] is None and self.state in _UNSHOWN and not found:
            code = self.state.replace("_", "-")
            message = str(self.told["status"]["message"]) or code
            found.append(Problem(self.path, 1, 0, 1, len(self.text.line(0)), "error", code, message))
        return sorted(found, key=lambda problem: (problem.line, problem.column))

    @property
    def has_errors(self) -> bool:
        """Was anything wrong, or nothing shown?"""
        return not self.models or any(problem.severity == "error" for problem in self.problems)

    @property
    def was_misused(self) -> bool:
        """Could the inputs that the command line gave not be read?"""
        return any(problem.code == "bad-inputs" for problem in self.problems)

    @property
    def same_text(self) -> bool:
        """Do the positions speak of `text`?"""
        return bool(self.told["sha256"] == hashlib.sha256(self.source).hexdigest())


def report_of(file: Path, pages: Sequence[Mapping[str, Any]]) -> Report:
    """The report of a file, of all pages of `mase/traced`; OSError where the file is gone."""
    sites = [site for page in pages for site in page["sites"]]
    return Report(str(file), pages[0]["path"], source_of(file), {**pages[0], "sites": sites})


def source_of(file: Path) -> bytes:
    """The text of a file; nothing of one that is there and cannot be read, which a problem tells.

    OSError where it is gone.
    """
    try:
        return notebooks.read(str(file))
    except UnreadableError:
        return b""


def here(problem: Problem, path: str) -> Problem:
    """A problem of another file, told at the place in this file that led to it."""
    if problem.file == path:
        return problem
    message = f"{problem.file}:{problem.line}: {problem.message}"
    place = next((place for place in problem.related if place["file"] == path), None)
    line, column, end_line, end_column = (place[key] for key in _EXTENT) if place else (1, 0, 1, 0)
    return Problem(path, line, column, end_line, end_column, problem.severity, problem.code, message, problem.related)
